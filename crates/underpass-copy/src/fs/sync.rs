//! Getting things on disk (`--fsync`).

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fsync, openat, syncfs};
use rustix::io::Errno;

use crate::tree::level::Folder;

/// A folder: the names in it.
pub(crate) fn folder(folder: &Folder) -> Result<(), Errno> {
    match folder {
        Folder::Open(fd) => fsync(fd),
        Folder::Imagined => Ok(()),
        _ => fsync(readable(folder)?),
    }
}

/// Something on the same file system, for the end of all.
pub(crate) fn readable(folder: &Folder) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(folder.fd(), c".", flags, Mode::empty())
}

/// All of a file system.
pub(crate) fn file_system(fd: &OwnedFd) -> Result<(), Errno> {
    syncfs(fd.as_fd())
}
