//! A file held so that no name leads to it any more.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::fs::folder::{Folder, file_type, identity};
use crate::report::problem::{Problem, ProblemKind};

/// A file whose metadata is read or set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetadataTarget<'a> {
    /// An open file or folder.
    Open(BorrowedFd<'a>),
    /// A name in an open folder, for what can't or must not be opened; a symbolic link is meant
    /// itself.
    Named(BorrowedFd<'a>, &'a CStr),
}

impl<'a> MetadataTarget<'a> {
    pub(crate) fn of_folder(folder: &'a Folder) -> Self {
        match folder {
            Folder::Open(_) => Self::Open(folder.fd()),
            _ => Self::Named(folder.fd(), c"."),
        }
    }
}

/// How the copy came into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// It was created with these permission bits, less what the umask took.
    New(u32),
    /// It was there.
    Existing,
}

/// An open file, or one that is only pointed at (`O_PATH`): of that one modes and attributes are
/// reached through its link in `/proc`, which leads to it whatever has become of its name, and to a
/// symbolic link itself.
pub(super) enum FileHandle<'a> {
    Open(BorrowedFd<'a>),
    Pinned(OwnedFd, String),
}

impl<'a> FileHandle<'a> {
    /// A source that is what it was when `stat` was taken.
    pub(super) fn on_source(held: MetadataTarget<'a>, stat: &Stat) -> Result<Self, Problem> {
        Self::on(held, |now| identity(now) == identity(stat))
    }

    /// A copy that can be the one that was made: of the source's kind, and without another name.
    /// Somebody else who may write the folder can put a name of another file in its place, and
    /// would be given that file.
    pub(super) fn on_dest(
        held: MetadataTarget<'a>,
        source: &Stat,
        creation: Creation,
    ) -> Result<Self, Problem> {
        let kind = file_type(source);
        Self::on(held, |now| {
            let is_alone = now.st_nlink == 1 || kind == FileType::Directory;
            let is_kind = file_type(now) == kind;
            is_kind && (is_alone || creation == Creation::Existing)
        })
    }

    fn on(held: MetadataTarget<'a>, is_meant: impl FnOnce(&Stat) -> bool) -> Result<Self, Problem> {
        let (folder, name) = match held {
            MetadataTarget::Open(file) => return Ok(Self::Open(file)),
            MetadataTarget::Named(folder, name) => (folder, name),
        };
        let replaced = |errno| Problem::failed(ProblemKind::Replaced, "", errno);
        let file = pin(folder, name).map_err(|errno| replaced(errno).by_call("openat"))?;
        let now = rustix::fs::fstat(&file).map_err(|errno| replaced(errno).by_call("fstat"))?;
        if !is_meant(&now) {
            return Err(replaced(Errno::STALE).by_call("fstat"));
        }
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(Self::Pinned(file, link))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(file) => *file,
            Self::Pinned(file, _) => file.as_fd(),
        }
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(self.fd())
    }

    pub(super) fn chown(&self, user: Option<u32>, group: u32) -> Result<(), Errno> {
        let (user, group) = (user.map(Uid::from_raw), Some(Gid::from_raw(group)));
        rustix::fs::chownat(self.fd(), c"", user, group, AtFlags::EMPTY_PATH)
    }

    pub(super) fn chmod(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(file) => rustix::fs::fchmod(file, mode),
            Self::Pinned(_, link) => rustix::fs::chmod(link.as_str(), mode),
        }
    }

    pub(super) fn set_times(&self, stat: &Stat) -> Result<(), Errno> {
        let times = times(stat);
        match self {
            Self::Open(file) => rustix::fs::futimens(file, &times),
            Self::Pinned(file, _) => rustix::fs::utimensat(file, c"", &times, AtFlags::EMPTY_PATH),
        }
    }

    /// The names of all extended attributes, each with a NUL behind it. ERANGE where `names` is too
    /// short.
    pub(super) fn list(&self, names: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::fs::flistxattr(file, names),
            Self::Pinned(_, link) => rustix::fs::listxattr(link.as_str(), names),
        }
    }

    /// An attribute's value. ERANGE where `value` is too short.
    pub(super) fn get(&self, name: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::fs::fgetxattr(file, name, value),
            Self::Pinned(_, link) => rustix::fs::getxattr(link.as_str(), name, value),
        }
    }

    pub(super) fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, name, value, flags),
            Self::Pinned(_, link) => rustix::fs::setxattr(link.as_str(), name, value, flags),
        }
    }

    pub(super) fn remove(&self, name: &CStr) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::fremovexattr(file, name),
            Self::Pinned(_, link) => rustix::fs::removexattr(link.as_str(), name),
        }
    }
}

/// A folder that is named from within needs no right to search it.
fn pin(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) if name == c"." => rustix::io::fcntl_dupfd_cloexec(folder, 0),
        pinned => pinned,
    }
}

pub(crate) fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn time(seconds: i64, nanoseconds: impl TryInto<i64>) -> Timespec {
    Timespec {
        tv_sec: seconds,
        // Always below a thousand million.
        tv_nsec: nanoseconds.try_into().unwrap_or(0),
    }
}
