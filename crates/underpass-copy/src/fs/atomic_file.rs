//! Files that get their name once they are complete (`--atomic`).
//!
//! ```text
//!   O_TMPFILE ──linkat──▶ the name, where nothing is
//!       └─────linkat──▶ .underpass-…  ──rename──▶ the name, over what is there
//!   .underpass-…  ──rename──▶ the name                 where there is no O_TMPFILE
//!   .underpass-part-…  ──rename──▶ the name            with --resume: it outlives the run
//! ```
//!
//! A file without a name disappears with the process, however that ends.

use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, linkat, openat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::fs::folder::{identity, is_regular};

/// A file that has not got its name yet.
#[derive(Debug)]
pub(crate) enum AtomicFile {
    Nameless,
    Temporary(CString),
    /// Under the same name in every run, so that the next one finds it.
    Resumable(CString),
}

/// What may be in the place of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitMode {
    Nothing,
    Anything,
}

impl AtomicFile {
    /// Creates an empty file in `folder`.
    pub(crate) fn create(folder: BorrowedFd<'_>, mode: Mode) -> Result<(OwnedFd, Self), Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match openat(folder, c".", flags | OFlags::TMPFILE, mode) {
            Ok(fd) => return Ok((fd, Self::Nameless)),
            // File systems that have no such files say so in several ways (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => (),
            Err(errno) => return Err(errno),
        }
        let name = temporary_name();
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = openat(folder, &name, flags, mode)?;
        Ok((fd, Self::Temporary(name)))
    }

    /// Opens what an earlier run left of the file that is to be called `name`, or creates it.
    ///
    /// # Errors
    /// `EPERM` where it is another user's file, `EAGAIN` while another run writes it.
    pub(crate) fn resume(
        folder: BorrowedFd<'_>,
        name: &CStr,
        mode: Mode,
        user: u32,
    ) -> Result<(OwnedFd, Self), Errno> {
        let hash = blake3::hash(name.to_bytes()).to_hex();
        let left = CString::new(format!(".underpass-part-{}", &hash[..16])).unwrap_or_default();
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(folder, &left, flags, mode)?;
        // Two runs must not write one file.
        flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        let stat = fstat(&fd)?;
        let named = statat(folder, &left, AtFlags::SYMLINK_NOFOLLOW)?;
        if identity(&named) != identity(&stat) {
            // Another run has just finished with it.
            return Err(Errno::AGAIN);
        }
        let is_ours = is_regular(&stat) && stat.st_nlink == 1 && stat.st_uid == user;
        if !is_ours {
            return Err(Errno::PERM);
        }
        Ok((fd, Self::Resumable(left)))
    }

    /// Gives the complete file its name, or discards it.
    pub(crate) fn commit(
        self,
        fd: &OwnedFd,
        folder: BorrowedFd<'_>,
        name: &CStr,
        over: CommitMode,
    ) -> Result<(), Errno> {
        let link = |name: &CStr| {
            let itself = format!("/proc/self/fd/{}", fd.as_raw_fd());
            linkat(CWD, itself, folder, name, AtFlags::SYMLINK_FOLLOW)
        };
        let committed = match &self {
            Self::Nameless => match (link(name), over) {
                (Err(Errno::EXIST), CommitMode::Anything) => replace(folder, name, link),
                (linked, _) => linked,
            },
            Self::Temporary(left) | Self::Resumable(left) => rename(folder, left, name, over),
        };
        committed.inspect_err(|_| self.discard(folder))
    }

    /// Removes the incomplete file, unless a later run may resume it.
    pub(crate) fn discard(&self, folder: impl AsFd) {
        if let Self::Temporary(name) = self {
            let _gone = unlinkat(folder, name, AtFlags::empty());
        }
    }
}

fn rename(folder: BorrowedFd<'_>, from: &CStr, to: &CStr, over: CommitMode) -> Result<(), Errno> {
    let rename = |flags| renameat_with(folder, from, folder, to, flags);
    match over {
        CommitMode::Anything => rename(RenameFlags::empty()),
        CommitMode::Nothing => match rename(RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(folder, from, folder, to, AtFlags::empty())?;
                unlinkat(folder, from, AtFlags::empty())
            }
            done => done,
        },
    }
}

/// A name that nobody else uses or guesses.
pub(crate) fn temporary_name() -> CString {
    let random = RandomState::new().build_hasher().finish();
    CString::new(format!(".underpass-{random:016x}")).unwrap_or_default()
}

/// Makes something under a temporary name in `folder`, then renames it to `name`, over what is
/// there.
///
/// # Errors
/// The errno of `make` or of the renaming. Nothing stays under the temporary name.
pub(crate) fn replace(
    folder: BorrowedFd<'_>,
    name: &CStr,
    make: impl FnOnce(&CStr) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let temporary = temporary_name();
    make(&temporary)?;
    let renamed = renameat_with(folder, &temporary, folder, name, RenameFlags::empty());
    // Where both are names of one file already, nothing is renamed and the temporary one stays.
    let _gone = unlinkat(folder, &temporary, AtFlags::empty());
    renamed
}
