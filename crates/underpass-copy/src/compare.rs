//! Whether two files have the same content.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use underpass::Side;

/// What comparing came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Equal as far as they were to be compared; the BLAKE3 hash of that much, in hexadecimal.
    Equal(String),
    /// The first byte that differs, or that one of them lacks.
    DifferentAt(u64),
    /// The hook said stop.
    Stopped,
}

/// Compares the first `len` bytes. `tick` is told every so often how many bytes more were compared.
/// Blocks; leaves file positions unspecified.
///
/// # Errors
/// Which side can't be read, and why.
pub(crate) fn compare(
    source: BorrowedFd<'_>,
    dest: BorrowedFd<'_>,
    len: u64,
    tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Compared, (Side, Errno)> {
    let _ = tick;
    todo!("{source:?} {dest:?} {len}")
}

/// Drops what is in memory of a file that was synced, so that reading it asks the disk.
pub(crate) fn forget_pages(file: BorrowedFd<'_>) {
    let _advised = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}
