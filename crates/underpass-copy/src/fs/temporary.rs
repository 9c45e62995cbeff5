//! What is made under a temporary name and then renamed.

use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, RenameFlags, renameat_with, unlinkat};
use rustix::io::Errno;

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
