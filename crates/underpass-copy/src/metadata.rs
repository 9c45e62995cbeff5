//! What of a file's metadata goes along, and in which order.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::options::Preserve;
use crate::problem::What;

/// A file whose metadata is read or set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held<'a> {
    /// An open file or folder.
    Open(BorrowedFd<'a>),
    /// A name in an open folder, for what can't or must not be opened; a symbolic link is meant
    /// itself.
    Named(BorrowedFd<'a>, &'a CStr),
}

/// How the copy came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// It was created with these permission bits, less what the umask took.
    New(u32),
    /// It was there.
    Before,
}

/// What about this process decides how metadata goes along. Read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// Permission bits that new files lack.
    pub(crate) umask: u32,
    /// The effective user.
    pub(crate) user: u32,
}

impl Process {
    /// Asks the kernel.
    pub(crate) fn read() -> Self {
        todo!()
    }
}

/// Something that could not be put on a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) what: What,
    pub(crate) errno: Errno,
    pub(crate) call: &'static str,
}

/// The permission bits to create a copy with: private as long as its final mode or owner is still to
/// be set.
pub(crate) fn mode_at_first(source: &Stat, wishes: &Preserve, process: &Process) -> u32 {
    todo!("{} {wishes:?} {process:?}", source.st_mode)
}

/// Puts the metadata of `source`, whose state was `stat` when it was opened, on `dest`: owner, then
/// extended attributes, ACLs and mode, then times.
pub(crate) fn preserve(
    source: Held<'_>,
    stat: &Stat,
    dest: Held<'_>,
    made: Made,
    wishes: &Preserve,
    process: &Process,
) -> Vec<Trouble> {
    let _ = (source, dest, made);
    todo!("{} {wishes:?} {process:?}", stat.st_mode)
}
