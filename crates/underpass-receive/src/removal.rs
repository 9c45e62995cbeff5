//! Removing folders with everything in them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, openat, openat2};
use rustix::fs::{renameat, unlinkat};
use rustix::io::Errno;

use crate::beneath::FOLDER;
use crate::error::{Doing, Error};
use crate::record::UploadId;

const DOING: &str = "removing the content of a folder";

/// Attempts to empty a folder into which somebody else writes.
const ATTEMPTS_MAX: u32 = 100;

/// Removes a folder and everything in it. Folders that their owner may not write to are made
/// writable.
///
/// A folder within is moved to the top first, and emptied there: every call is about one name in
/// an open folder. So no path is too long, and whoever may write to a part of the tree cannot lead
/// out of it by a link.
pub(crate) fn remove_tree(folder: BorrowedFd<'_>, name: &str) -> Result<(), Error> {
    for _ in 0..ATTEMPTS_MAX {
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(Error::of(DOING, errno)),
        }
        let top = open_for_removal(folder, name.as_bytes()).doing(DOING)?;
        let mut left = empty(top.as_fd(), None)?;
        while let Some(within) = left.pop() {
            let opened = match open_for_removal(top.as_fd(), &within) {
                // Somebody else has removed it, or put a link in its place.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => opened.doing(DOING)?,
            };
            left.extend(empty(opened.as_fd(), Some(top.as_fd()))?);
            match unlinkat(&top, &within, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(errno) => return Err(Error::of(DOING, errno)),
            }
        }
    }
    Err(Error::NotEmpty)
}

/// Removes everything in a folder but the folders in it that are not empty: those are moved to
/// `top`, if there is one. Returns their names.
fn empty(folder: BorrowedFd<'_>, top: Option<BorrowedFd<'_>>) -> Result<Vec<Vec<u8>>, Error> {
    let mut folders = Vec::new();
    for entry in Dir::read_from(folder).doing(DOING)? {
        let entry = entry.doing(DOING)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        match accessible(folder, || unlinkat(folder, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(Error::of(DOING, errno)),
        }
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            // A file that may not be removed.
            Err(Errno::NOTDIR) => return Err(Error::Denied),
            Err(errno) => return Err(Error::of(DOING, errno)),
        }
        folders.push(match top {
            Some(top) => move_up(folder, name, top)?,
            None => name.to_vec(),
        });
    }
    Ok(folders)
}

/// Moves a folder to `top`, under a name that nothing has. Returns the name.
fn move_up(folder: BorrowedFd<'_>, name: &[u8], top: BorrowedFd<'_>) -> Result<Vec<u8>, Error> {
    let new = UploadId::random()?;
    let moved = || renameat(folder, name, top, new.as_str());
    // Its entry for the folder that it is in changes: its owner must be allowed to write to it.
    let moved = moved().or_else(|errno| match errno {
        Errno::ACCESS => open_for_removal(folder, name)
            .and_then(|within| make_accessible(within.as_fd()))
            .and_then(|()| moved()),
        errno => Err(errno),
    });
    match moved {
        Ok(()) | Err(Errno::NOENT) => Ok(new.as_str().as_bytes().to_vec()),
        Err(errno) => Err(Error::of(DOING, errno)),
    }
}

/// Makes the folder writable if the call needs that.
fn accessible(folder: BorrowedFd<'_>, call: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match call() {
        Err(Errno::ACCESS) => make_accessible(folder).and_then(|()| call()),
        done => done,
    }
}

fn open_for_removal(folder: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let open = |flags| openat(folder, name, flags, Mode::empty());
    match open(FOLDER | OFlags::NOFOLLOW) {
        Err(Errno::ACCESS) => {
            make_accessible(open(OFlags::PATH | FOLDER | OFlags::NOFOLLOW)?.as_fd())?;
            open(FOLDER | OFlags::NOFOLLOW)
        }
        opened => opened,
    }
}

/// Gives the owner all permissions of an open folder. The name in /proc is that of the descriptor:
/// one that was opened for its path alone has no `fchmod`.
fn make_accessible(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU)
}

/// Whether another file system is mounted in a folder, or the same one once more. Folders that
/// cannot be read, or whose path is too long, are not looked into.
pub(crate) fn holds_mount(folder: BorrowedFd<'_>, name: &str) -> Result<bool, Error> {
    let doing = "looking for mounts in a folder";
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut left = vec![name.as_bytes().to_vec()];
    while let Some(path) = left.pop() {
        let opened = match openat2(folder, &path, FOLDER, Mode::empty(), resolve) {
            Ok(opened) => opened,
            Err(Errno::XDEV) => return Ok(true),
            Err(_) => continue,
        };
        for entry in Dir::read_from(&opened).doing(doing)? {
            let entry = entry.doing(doing)?;
            let within = entry.file_name().to_bytes();
            let is_folder = may_be_folder(entry.file_type());
            if is_folder && within != b"." && within != b".." {
                left.push([&path[..], b"/", within].concat());
            }
        }
    }
    Ok(false)
}

/// Whether an entry of a folder can be one. Some file systems do not tell.
pub(crate) fn may_be_folder(kind: FileType) -> bool {
    matches!(kind, FileType::Directory | FileType::Unknown)
}
