//! From a path to an open file, beneath the root.
//!
//! The kernel resolves the name (`openat2`), and nothing on the way leads out: neither `..`, nor
//! an absolute link, nor a relative one that climbs too far, nor the links of `/proc`, and no
//! swapping of folders while it happens. Everything that is decided afterwards is decided on the
//! opened descriptor, so nothing can change between looking and sending.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::SystemTime;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use crate::file::File;
use crate::folder::Folder;
use crate::limits::{LINK_TRIES_MAX, RESOLVE_TRIES_MAX};
use crate::path::{Form, SitePath};

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    File(File),
    /// A folder that was asked for without its slash.
    Folder(SitePath),
    /// A folder, open: one without an index, or one that was asked for as itself.
    NoIndex(Folder),
    /// Nothing that is served: no such name, hidden, no regular file, outside the root.
    Nothing,
    /// Permission is missing.
    Forbidden,
    /// Descriptors or memory have run out, or somebody renames faster than the kernel resolves.
    Busy(Errno),
    /// The file system failed.
    Failed(Errno),
}

/// Opening never waits (`NONBLOCK`: a FIFO would wait for its writer), never makes a terminal ours
/// and is never inherited.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Nothing above the root, nothing through links that only `/proc` has.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Opens what a path leads to, at the time `now`.
pub(crate) fn find(root: BorrowedFd<'_>, path: SitePath, now: SystemTime) -> Found {
    match path.form() {
        Form::File => match open(root, path.bytes(), OPEN) {
            Ok(opened) => known(opened, path, now, Found::Folder),
            Err(errno) => missing(errno),
        },
        Form::Folder => index(root, path, now),
    }
}

/// Opens a folder, whether it has an index or not.
pub(crate) fn folder(root: BorrowedFd<'_>, path: SitePath) -> Found {
    match path.is_hidden() {
        true => Found::Nothing,
        false => folder_itself(root, path),
    }
}

/// Whether this process may use `openat2`: kernels before 5.6 lack it, filters may forbid it.
pub(crate) fn probe(root: BorrowedFd<'_>) -> Result<(), Errno> {
    open(root, b".", OFlags::PATH | OFlags::CLOEXEC).map(drop)
}

/// Opens the index of a folder; where there is none, tells a folder from nothing.
fn index(root: BorrowedFd<'_>, folder: SitePath, now: SystemTime) -> Found {
    let index = folder.clone().into_index();
    match open(root, index.bytes(), OPEN) {
        Ok(opened) => known(opened, index, now, |_| folder_itself(root, folder)),
        Err(Errno::NOENT) => folder_itself(root, folder),
        Err(errno) => missing(errno),
    }
}

/// Opens a folder to be read.
fn folder_itself(root: BorrowedFd<'_>, folder: SitePath) -> Found {
    let name = match folder.bytes() {
        b"" => b".",
        name => name,
    };
    let opened = open(root, name, OPEN | OFlags::DIRECTORY);
    let opened = opened.and_then(|opened| Folder::new(opened, root, folder));
    opened.map_or_else(missing, Found::NoIndex)
}

/// What a link in a folder leads to beneath `root`. Whoever lists a folder has more patience than
/// whoever answers for a file: a link that is missing would be a wrong answer.
pub(crate) fn look_beneath(root: BorrowedFd<'_>, path: &[u8]) -> Result<Stat, Errno> {
    let mut tries = 0;
    loop {
        tries += 1;
        match open(root, path, OFlags::PATH | OFlags::CLOEXEC) {
            Err(Errno::AGAIN) if tries < LINK_TRIES_MAX => std::thread::yield_now(),
            opened => return fstat(opened?),
        }
    }
}

/// Looks at what was opened.
fn known(
    opened: OwnedFd,
    path: SitePath,
    now: SystemTime,
    folder: impl FnOnce(SitePath) -> Found,
) -> Found {
    let stat = match fstat(&opened) {
        Ok(stat) => stat,
        Err(errno) => return missing(errno),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Found::File(File::new(opened, path, &stat, now)),
        FileType::Directory => folder(path),
        _ => Found::Nothing,
    }
}

/// EAGAIN: a rename or a mount elsewhere on the system got in the way of a link's `..`
/// (openat2(2)).
fn open(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        tries += 1;
        match openat2(root.as_fd(), path, flags, Mode::empty(), BENEATH) {
            Err(Errno::AGAIN | Errno::INTR) if tries < RESOLVE_TRIES_MAX => {}
            outcome => return outcome,
        }
    }
}

/// What it means that a name could not be opened. ENXIO is a socket, ENODEV or ENXIO a device
/// without driver, EXDEV and ELOOP are what leads outside or in circles.
fn missing(errno: Errno) -> Found {
    match errno {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::NODEV
        | Errno::INVAL
        | Errno::STALE => Found::Nothing,
        Errno::ACCESS | Errno::PERM => Found::Forbidden,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => {
            Found::Busy(errno)
        }
        _ => Found::Failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_its_meaning() {
        assert!(matches!(missing(Errno::XDEV), Found::Nothing));
        assert!(matches!(missing(Errno::ACCESS), Found::Forbidden));
        assert!(matches!(missing(Errno::MFILE), Found::Busy(_)));
        assert!(matches!(missing(Errno::IO), Found::Failed(_)));
    }
}
