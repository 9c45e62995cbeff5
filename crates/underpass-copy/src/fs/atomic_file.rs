//! Files that get their name once they are complete (`--atomic`).
//!
//! ```text
//!   O_TMPFILE ──linkat──▶ the name, where nothing is
//!       └─────linkat──▶ .underpass-…  ──rename──▶ the name, over what is there
//!   .underpass-…  ──rename──▶ the name                 where there is no O_TMPFILE
//!   .underpass-part-…  ──rename──▶ the name            with --resume: it outlives the run
//! ```
//!
//! A file without a name is gone when the process is, however that ended.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, linkat,
    openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::entry::decide::file_type;
use crate::entry::special::name_beside;
use crate::tree::level::identity;

/// A file that has not got its name yet.
#[derive(Debug)]
pub(crate) struct Staged {
    name: Name,
}

#[derive(Debug)]
enum Name {
    None,
    Random(CString),
    /// The same for every run, so that the next one finds it.
    Lasting(CString),
}

/// Whether something may be in the place of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Nothing,
    Anything,
}

impl Staged {
    /// A new, empty file in `folder`.
    pub(crate) fn create(folder: impl AsFd, mode: Mode) -> Result<(OwnedFd, Self), Errno> {
        let folder = folder.as_fd();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match openat(folder, c".", flags | OFlags::TMPFILE, mode) {
            Ok(fd) => return Ok((fd, Self { name: Name::None })),
            // File systems that have no such files say so in several ways (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => (),
            Err(errno) => return Err(errno),
        }
        let name = name_beside();
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = openat(folder, &name, flags, mode)?;
        Ok((
            fd,
            Self {
                name: Name::Random(name),
            },
        ))
    }

    /// What an earlier run left of the file that is to be called `name`, or a new one. Somebody
    /// else's file is refused (`EPERM`), and so is
    /// one that another run is writing (`EAGAIN`).
    pub(crate) fn lasting(
        folder: impl AsFd,
        name: &CStr,
        mode: Mode,
        user: u32,
    ) -> Result<(OwnedFd, Self), Errno> {
        let hash = blake3::hash(name.to_bytes()).to_hex();
        let left = CString::new(format!(".underpass-part-{}", &hash[..16])).unwrap_or_default();
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let folder = folder.as_fd();
        let fd = openat(folder, &left, flags, mode)?;
        // Two runs must not write one file.
        flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        let stat = fstat(&fd)?;
        let named = statat(folder, &left, AtFlags::SYMLINK_NOFOLLOW)?;
        if identity(&named) != identity(&stat) {
            // Another run has just finished with it.
            return Err(Errno::AGAIN);
        }
        let ours =
            file_type(&stat) == FileType::RegularFile && stat.st_nlink == 1 && stat.st_uid == user;
        if !ours {
            return Err(Errno::PERM);
        }
        Ok((
            fd,
            Self {
                name: Name::Lasting(left),
            },
        ))
    }

    /// The complete file gets its name.
    pub(crate) fn place(
        self,
        fd: &OwnedFd,
        folder: impl AsFd,
        name: &CStr,
        over: Over,
    ) -> Result<(), (Self, Errno)> {
        let folder = folder.as_fd();
        let placed = match &self.name {
            Name::None => match (link_nameless(fd, folder, name), over) {
                (Err(Errno::EXIST), Over::Anything) => {
                    let beside = name_beside();
                    link_nameless(fd, folder, &beside).and_then(|()| {
                        rename(folder, &beside, name, over).inspect_err(|_| {
                            let _gone = unlinkat(folder, &beside, AtFlags::empty());
                        })
                    })
                }
                (linked, _) => linked,
            },
            Name::Random(left) | Name::Lasting(left) => rename(folder, left, name, over),
        };
        placed.map_err(|errno| (self, errno))
    }

    /// It will not be complete: nothing stays of it, unless a later run may go on with it.
    pub(crate) fn discard(self, folder: impl AsFd) {
        if let Name::Random(name) = self.name {
            let _gone = unlinkat(folder, &name, AtFlags::empty());
        }
    }
}

fn link_nameless(fd: &OwnedFd, folder: impl AsFd, name: &CStr) -> Result<(), Errno> {
    let itself = format!("/proc/self/fd/{}", fd.as_raw_fd());
    linkat(CWD, itself, folder, name, AtFlags::SYMLINK_FOLLOW)
}

fn rename(folder: impl AsFd, from: &CStr, to: &CStr, over: Over) -> Result<(), Errno> {
    let folder = folder.as_fd();
    let plain = || renameat_with(folder, from, folder, to, RenameFlags::empty());
    match over {
        Over::Anything => plain(),
        Over::Nothing => match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(folder, from, folder, to, AtFlags::empty())?;
                unlinkat(folder, from, AtFlags::empty())
            }
            done => done,
        },
    }
}
