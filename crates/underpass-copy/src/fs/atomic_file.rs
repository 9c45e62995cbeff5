//! Files that get their name once they are complete (`--atomic`).
//!
//! ```text
//!   O_TMPFILE ──linkat──▶ the name, where nothing is
//!       └─────linkat──▶ .underpass-…  ──rename──▶ the name, over what is there
//!   .underpass-…  ──rename──▶ the name                 where there is no O_TMPFILE, or no /proc
//!   .underpass-part-…  ──rename──▶ the name            with --resume: it outlives the run
//! ```
//!
//! A file without a name disappears with the process, however that ends.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, linkat, lstat, openat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::fs::folder::{identity, is_regular};

/// A file without its final name.
#[derive(Debug)]
pub(crate) enum AtomicFile {
    Nameless,
    Temporary(CString),
    /// Named the same in every run, so that the next one finds it.
    Resumable(CString),
}

/// The files that the final name may replace.
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
            // Only its link in /proc gives it a name, which a chroot may lack.
            Ok(fd) if lstat(itself(&fd)).is_ok() => return Ok((fd, Self::Nameless)),
            Ok(_) => (),
            // File systems without such files report this in several ways (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => (),
            Err(errno) => return Err(errno),
        }
        let name = temporary_name();
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = openat(folder, &name, flags, mode)?;
        Ok((fd, Self::Temporary(name)))
    }

    /// Opens the incomplete file of an earlier run that is to be called `name`, or creates it.
    ///
    /// # Errors
    /// The errno, and the failed call; without a call `EPERM` if it is another user's file, and
    /// `EAGAIN` if another run has just completed it.
    pub(crate) fn resume(
        folder: BorrowedFd<'_>,
        name: &CStr,
        mode: Mode,
        user: u32,
    ) -> Result<(OwnedFd, Self), (Errno, Option<&'static str>)> {
        let hash = blake3::hash(name.to_bytes()).to_hex();
        let left = CString::new(format!(".underpass-part-{}", &hash[..16])).unwrap_or_default();
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let by = |call| move |errno| (errno, Some(call));
        let fd = openat(folder, &left, flags, mode).map_err(by("openat"))?;
        // Two runs must not write one file.
        flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(by("flock"))?;
        let stat = fstat(&fd).map_err(by("fstat"))?;
        let named = statat(folder, &left, AtFlags::SYMLINK_NOFOLLOW).map_err(by("newfstatat"))?;
        if identity(&named) != identity(&stat) {
            // Another run has just completed it.
            return Err((Errno::AGAIN, None));
        }
        let is_ours = is_regular(&stat) && stat.st_nlink == 1 && stat.st_uid == user;
        if !is_ours {
            return Err((Errno::PERM, None));
        }
        Ok((fd, Self::Resumable(left)))
    }

    /// Gives the complete file its name, or discards it.
    ///
    /// # Errors
    /// The errno, and the failed call.
    pub(crate) fn commit(
        self,
        fd: &OwnedFd,
        folder: BorrowedFd<'_>,
        name: &CStr,
        over: CommitMode,
    ) -> Result<(), (Errno, &'static str)> {
        let call = Cell::new("renameat2");
        let link = |name: &CStr| {
            let linked = linkat(CWD, itself(fd), folder, name, AtFlags::SYMLINK_FOLLOW);
            linked.inspect_err(|_| call.set("linkat"))
        };
        let committed = match &self {
            Self::Nameless => match (link(name), over) {
                (Err(Errno::EXIST), CommitMode::Anything) => {
                    call.set("renameat2");
                    replace(folder, name, link)
                }
                (linked, _) => linked,
            },
            Self::Temporary(left) | Self::Resumable(left) => match over {
                CommitMode::Anything => {
                    renameat_with(folder, left, folder, name, RenameFlags::empty())
                }
                CommitMode::Nothing => rename_to_nothing(folder, left, name),
            },
        };
        committed.map_err(|errno| {
            let _gone = self.discard(folder);
            (errno, call.get())
        })
    }

    /// Removes the incomplete file, unless a later run may resume it: an empty one has nothing to
    /// resume. Returns whether it is gone.
    pub(crate) fn discard(&self, folder: impl AsFd) -> bool {
        let folder = folder.as_fd();
        let (name, is_wanted) = match self {
            Self::Nameless => return true,
            Self::Temporary(name) => (name, false),
            Self::Resumable(name) => {
                let left = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
                (name, left.is_ok_and(|left| left.st_size > 0))
            }
        };
        !is_wanted && unlinkat(folder, name, AtFlags::empty()).is_ok()
    }
}

/// Returns the link in `/proc` that leads to an open file.
fn itself(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Renames `name` to `new`, which must not exist.
///
/// # Errors
/// `EEXIST` if it exists.
pub(crate) fn rename_to_nothing(dir: BorrowedFd<'_>, name: &CStr, new: &CStr) -> Result<(), Errno> {
    match renameat_with(dir, name, dir, new, RenameFlags::NOREPLACE) {
        // Not every file system supports the flag; Linux before 3.15 lacks the call.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_over(dir, name, new),
        result => result,
    }
}

/// Renames on file systems that always replace: a link is never made over an existing file.
fn link_over(dir: BorrowedFd<'_>, name: &CStr, new: &CStr) -> Result<(), Errno> {
    match linkat(dir, name, dir, new, AtFlags::empty()) {
        Ok(()) => unlinkat(dir, name, AtFlags::empty()),
        // Links are unsupported, unsupported for folders, or at their limit for this file.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            look_and_rename(dir, name, new)
        }
        Err(errno) => Err(errno),
    }
}

fn look_and_rename(dir: BorrowedFd<'_>, name: &CStr, new: &CStr) -> Result<(), Errno> {
    match statat(dir, new, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => renameat_with(dir, name, dir, new, RenameFlags::empty()),
        Err(errno) => Err(errno),
    }
}

/// Returns a name that no other process uses or guesses.
pub(crate) fn temporary_name() -> CString {
    let random = RandomState::new().build_hasher().finish();
    CString::new(format!(".underpass-{random:016x}")).unwrap_or_default()
}

/// Creates a file under a temporary name in `folder`, then renames it to `name`, replacing an
/// existing one.
///
/// # Errors
/// The errno of `make` or of the renaming. The temporary name is removed.
pub(crate) fn replace(
    folder: BorrowedFd<'_>,
    name: &CStr,
    make: impl FnOnce(&CStr) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let temporary = temporary_name();
    make(&temporary)?;
    let renamed = renameat_with(folder, &temporary, folder, name, RenameFlags::empty());
    // If both already name one file, rename(2) does nothing and the temporary name remains.
    let _gone = unlinkat(folder, &temporary, AtFlags::empty());
    renamed
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn without_the_flag_nothing_is_replaced_either() {
        for rename in [link_over, look_and_rename] {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            for name in ["d", "there"] {
                fs::write(path(name), name).unwrap();
            }
            let dir = File::open(folder.path()).unwrap();
            assert_eq!(rename(dir.as_fd(), c"d", c"there"), Err(Errno::EXIST));
            assert_eq!(fs::read(path("there")).unwrap(), b"there");
            assert_eq!(rename(dir.as_fd(), c"d", c"free"), Ok(()));
            assert_eq!(fs::read(path("free")).unwrap(), b"d");
            assert!(!path("d").exists());
        }
    }

    #[test]
    fn a_folder_is_renamed_without_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        let dir = File::open(folder.path()).unwrap();
        assert_eq!(link_over(dir.as_fd(), c"d", c"e"), Ok(()));
        assert!(folder.path().join("e").is_dir());
    }
}
