//! Old destinations under another name (`--backup`).

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::options::Backup;

/// Renames `name` in `dir` as `backup` says, which is not [`Backup::None`], and answers its new name.
pub(crate) fn make(dir: BorrowedFd<'_>, name: &CStr, backup: &Backup) -> Result<CString, Errno> {
    todo!("{dir:?} {name:?} {backup:?}")
}
