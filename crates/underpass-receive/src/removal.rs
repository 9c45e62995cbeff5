//! Removing folders with everything in them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, chmod, openat, unlinkat};
use rustix::io::Errno;

use crate::beneath::FOLDER;
use crate::error::{Doing, Error};

/// Removes a folder and everything in it, without following a link. Deep trees are flattened into
/// a list, so that depth costs memory and not stack. Folders that their owner may not write to are
/// made writable.
pub(crate) fn remove_tree(folder: BorrowedFd<'_>, name: &str) -> Result<(), Error> {
    let doing = "removing the content of a folder";
    let mut left = vec![name.as_bytes().to_vec()];
    while let Some(path) = left.last().cloned() {
        match unlinkat(folder, &path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {
                left.pop();
                continue;
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(Error::of(doing, errno)),
        }
        let opened = open_for_removal(folder, &path).doing(doing)?;
        for entry in Dir::read_from(&opened).doing(doing)? {
            let entry = entry.doing(doing)?;
            let entry = entry.file_name().to_bytes();
            if entry == b"." || entry == b".." {
                continue;
            }
            let remove = || unlinkat(&opened, entry, AtFlags::empty());
            let removed = remove().or_else(|errno| match errno {
                Errno::ACCESS => make_accessible(opened.as_fd()).and_then(|()| remove()),
                errno => Err(errno),
            });
            match removed {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => left.push([&path[..], b"/", entry].concat()),
                Err(errno) => return Err(Error::of(doing, errno)),
            }
        }
    }
    Ok(())
}

fn open_for_removal(folder: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let open = |flags| openat(folder, path, flags, Mode::empty());
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
