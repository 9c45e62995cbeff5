//! Open folders: names are looked up in them, and no path is resolved twice.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, fsync, openat, statat};
use rustix::io::Errno;

use crate::fs::stat::{Identity, identity};

/// Opens a folder for reading.
pub(crate) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens a folder as a place only.
pub(crate) const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open folder, or what stands for one.
#[derive(Debug)]
pub(crate) enum Folder {
    /// Open for reading.
    Open(OwnedFd),
    /// Open as a place only (`O_PATH`): it can't be read.
    Place(OwnedFd),
    /// The same, for many operands.
    Target(Arc<OwnedFd>),
    /// The working directory.
    Working,
    /// A folder that `--dry-run` did not make.
    Imagined,
}

impl Folder {
    /// Opens a folder for reading, or as a place where reading is not allowed.
    pub(crate) fn open(
        folder: BorrowedFd<'_>,
        name: &CStr,
        more_flags: OFlags,
    ) -> Result<Self, Errno> {
        match openat(folder, name, READ | more_flags, Mode::empty()) {
            Ok(fd) => Ok(Self::Open(fd)),
            Err(Errno::ACCESS) => {
                let fd = openat(folder, name, PLACE | more_flags, Mode::empty())?;
                Ok(Self::Place(fd))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Opens `..`, if it is the folder that it has to be.
    pub(crate) fn parent(&self, expected: Identity) -> Result<Self, Errno> {
        let opened = Self::open(self.fd(), c"..", OFlags::empty())?;
        if identity(&fstat(opened.fd())?) == expected {
            Ok(opened)
        } else {
            Err(Errno::NOENT)
        }
    }

    /// For calls that look up a name in it.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(fd) | Self::Place(fd) => fd.as_fd(),
            Self::Target(fd) => fd.as_fd(),
            Self::Working | Self::Imagined => CWD,
        }
    }

    /// Looks up a name, without following a symbolic link.
    pub(crate) fn look_at(&self, name: &CStr) -> Result<Stat, Errno> {
        statat(self.fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Looks up a name, following symbolic links.
    pub(crate) fn look_behind(&self, name: &CStr) -> Result<Stat, Errno> {
        statat(self.fd(), name, AtFlags::empty())
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        let stat = self.look_behind(c".");
        stat.ok().map(|stat| identity(&stat))
    }

    /// Opens it again, for reading.
    pub(crate) fn readable(&self) -> Result<OwnedFd, Errno> {
        openat(self.fd(), c".", READ, Mode::empty())
    }

    /// Writes the names in it to disk.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fsync(fd),
            Self::Imagined => Ok(()),
            _ => fsync(self.readable()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_moved_does_not_lead_to_its_old_parent() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        for name in ["parent", "parent/child", "elsewhere"] {
            std::fs::create_dir(path(name)).expect("room");
        }
        let open = |name: &str| openat(CWD, path(name), READ, Mode::empty()).expect("a folder");
        let parent = identity(&fstat(open("parent")).expect("open"));
        let child = Folder::Open(open("parent/child"));
        let found = child.parent(parent).expect("it is there");
        assert_eq!(identity(&fstat(found.fd()).expect("open")), parent);
        std::fs::rename(path("parent/child"), path("elsewhere/child")).expect("ours");
        let found = child.parent(parent).map(drop);
        assert_eq!(found, Err(Errno::NOENT));
    }
}
