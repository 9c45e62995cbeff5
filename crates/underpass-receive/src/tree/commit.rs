//! Gives a tree its name, or its names, at the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, fchmod, fstat, openat, renameat,
    renameat_with, statat,
};
use rustix::io::Errno;

use crate::beneath::{FOLDER, open_beneath};
use crate::error::{Doing, Error};
use crate::overwrite::Overwrite;
use crate::tree::error::{TreeError, TreeFault};
use crate::tree::settings::TreeMerge;

/// Returns the number of names in a tree that are not those of folders; `None` if there are folders
/// that may not be read.
pub(super) fn count_entries(root: BorrowedFd<'_>) -> Result<Option<u64>, Error> {
    let doing = "reading a folder of the tree";
    let (mut count, mut left) = (0, vec![b".".to_vec()]);
    while let Some(path) = left.pop() {
        let folder = match open_beneath(root, &path[..], FOLDER) {
            Err(Errno::ACCESS) => return Ok(None),
            folder => folder.doing(doing)?,
        };
        for entry in entries(folder.as_fd())? {
            let (name, kind) = entry?;
            match kind {
                FileType::Directory => left.push([&path[..], b"/", &name].concat()),
                _ => count += 1,
            }
        }
    }
    Ok(Some(count))
}

/// Renames a folder to a name that nothing has.
pub(super) fn name_folder(
    from: BorrowedFd<'_>,
    old: &[u8],
    to: BorrowedFd<'_>,
    new: &[u8],
) -> Result<(), Errno> {
    match renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // File systems without RENAME_NOREPLACE (NFS, some FUSE) answer EINVAL. A folder replaces
        // no more than an empty one.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => renameat(from, old, to, new),
            Ok(_) => Err(Errno::EXIST),
            Err(errno) => Err(errno),
        },
        // Moving a folder writes to it, which its mode may forbid.
        Err(Errno::ACCESS) => move_unwritable(from, old, to, new),
        renamed => renamed,
    }
}

fn move_unwritable(
    from: BorrowedFd<'_>,
    old: &[u8],
    to: BorrowedFd<'_>,
    new: &[u8],
) -> Result<(), Errno> {
    let folder = openat(from, old, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&folder)?.st_mode & 0o7777);
    if mode.contains(Mode::WUSR) {
        return Err(Errno::ACCESS);
    }
    fchmod(&folder, mode | Mode::WUSR)?;
    let renamed = renameat_with(from, old, to, new, RenameFlags::NOREPLACE);
    fchmod(&folder, mode)?;
    renamed
}

/// Moves everything in one folder to another. First everything is looked at, so that a name that
/// is taken is found before anything has moved.
pub(super) fn merge(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    merge: TreeMerge,
) -> Result<(), TreeError> {
    walk(from, to, &mut Vec::new(), merge, MergePass::Look)?;
    // A name may be missed while others are taken from its folder.
    while walk(from, to, &mut Vec::new(), merge, MergePass::Move)? > 0 {}
    Ok(())
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum MergePass {
    Look,
    Move,
}

/// Looks at or moves everything in a folder. Returns the number of names that were moved.
fn walk(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    path: &mut Vec<u8>,
    merge: TreeMerge,
    pass: MergePass,
) -> Result<u64, TreeError> {
    let fail = |error: Error, path: &[u8]| TreeFault::Failed(error).of(path);
    let mut moved = 0;
    let entries = entries(from).map_err(|error| fail(error, path))?;
    for entry in entries {
        let length = path.len();
        let (name, kind) = entry.map_err(|error| fail(error, path))?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let both = pair(from, to, &name, kind, merge).map_err(|error| fail(error, path))?;
        match both {
            Some((from, to)) => {
                moved += walk(from.as_fd(), to.as_fd(), path, merge, pass)?;
            }
            None if pass == MergePass::Look => {}
            None => {
                let named = move_entry(from, to, &name, kind, merge);
                let named = named.doing("naming a member of the tree");
                named.map_err(|error| fail(error, path))?;
                moved += 1;
            }
        }
        path.truncate(length);
    }
    Ok(moved)
}

/// Returns the names in a folder and their types.
fn entries(
    folder: BorrowedFd<'_>,
) -> Result<impl Iterator<Item = Result<(Vec<u8>, FileType), Error>>, Error> {
    let doing = "reading a folder of the tree";
    let entries = Dir::read_from(folder).doing(doing)?;
    Ok(entries.filter_map(move |entry| {
        let entry = match entry.doing(doing) {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            return None;
        }
        let kind = match entry.file_type() {
            // Not every file system says it.
            FileType::Unknown => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map(|stat| FileType::from_raw_mode(stat.st_mode))
                .doing(doing),
            kind => Ok(kind),
        };
        Some(kind.map(|kind| (name.to_vec(), kind)))
    }))
}

/// Returns both folders of a name that are to be merged; `None` if the name is to be moved.
fn pair(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &[u8],
    kind: FileType,
    merge: TreeMerge,
) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
    let doing = "looking for the name";
    let stat = match statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat.doing(doing)?,
    };
    let TreeMerge::Folders(overwrite) = merge else {
        return Err(Error::Exists);
    };
    match (kind, FileType::from_raw_mode(stat.st_mode)) {
        (FileType::Directory, FileType::Directory) => {
            let open = |folder| openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
            Ok(Some((open(from).doing(doing)?, open(to).doing(doing)?)))
        }
        (FileType::Directory, _) => Err(Error::NotAFolder),
        (_, FileType::Directory) => Err(Error::IsFolder),
        (_, FileType::RegularFile) if overwrite == Overwrite::Allowed => Ok(None),
        (_, FileType::RegularFile) => Err(Error::Exists),
        _ => Err(Error::Link),
    }
}

fn move_entry(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &[u8],
    kind: FileType,
    merge: TreeMerge,
) -> Result<(), Errno> {
    match (kind, merge) {
        (FileType::Directory, _) => name_folder(from, name, to, name),
        (_, TreeMerge::Folders(Overwrite::Allowed)) => renameat(from, name, to, name),
        _ => crate::partial::rename(from, name, to, name, Overwrite::Refused),
    }
}
