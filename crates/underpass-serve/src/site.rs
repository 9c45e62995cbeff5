//! What is served: one folder and everything beneath it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::error::Error;
use crate::resolve;

/// A folder that is served. It is held open: renaming it does not change what is served.
#[derive(Debug)]
pub struct Site {
    root: OwnedFd,
    path: PathBuf,
}

impl Site {
    /// Opens the folder at `path` and makes sure that names can be kept beneath it.
    ///
    /// # Errors
    /// [`Error::Root`] if it is no folder or may not be opened; [`Error::NoBeneath`] if the kernel
    /// (before 5.6) or a system call filter does not offer `openat2`, without which this server
    /// would have to trust every name.
    pub fn open(path: impl Into<PathBuf>) -> Result<Site, Error> {
        let path = path.into();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match open(&path, flags, Mode::empty()) {
            Ok(root) => root,
            Err(errno) => return Err(Error::Root { path, errno }),
        };
        match resolve::probe(root.as_fd()) {
            Ok(()) => Ok(Site { root, path }),
            Err(errno @ (Errno::NOSYS | Errno::PERM)) => Err(Error::NoBeneath { errno }),
            Err(errno) => Err(Error::Root { path, errno }),
        }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}
