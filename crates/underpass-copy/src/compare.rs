//! Compares the content of two files.

mod content_hash;

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use rustix::fs::{Advice, SeekFrom, Stat};
use rustix::io::Errno;
use underpass::Side;

use crate::fs::folder::{endpoint, size};
use content_hash::ContentHash;

/// The size of one read and comparison: some milliseconds even from a slow disk.
const BLOCK_BYTES: usize = 1 << 20;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Equal over the compared length; the content hash of that part, in hexadecimal.
    ///
    /// It depends on the content alone, and not on the positions of holes. It is the BLAKE3 hash of
    /// the bytes, as `b3sum` prints it, for all content without 16 MiB of zeros at a multiple of 16
    /// MiB; [`content_hash`] describes it for the rest.
    Equal(String),
    /// Offset of the first byte that differs, or that one file lacks.
    DifferentAt(u64),
    /// `tick` stopped it.
    Stopped,
}

/// Compares the first `len` bytes. `tick` receives the number of bytes since its last call. Blocks;
/// leaves file positions unspecified. Where both have a hole nothing is read.
///
/// # Errors
/// The side that cannot be read, and the errno.
pub(crate) fn compare(
    source: BorrowedFd<'_>,
    dest: BorrowedFd<'_>,
    len: u64,
    tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Comparison, (Side, Errno)> {
    let mut source = ComparedFile::of(source, Side::Source, len);
    let mut dest = ComparedFile::of(dest, Side::Sink, len);
    // Reading a single block is faster than querying its holes.
    let may_skip = len > BLOCK_BYTES as u64 && source.is_sparse()? && dest.is_sparse()?;
    let mut hash = ContentHash::default();
    let mut at = 0;
    while at < len {
        let hole = match may_skip {
            true => source.hole_until(at)?.zip(dest.hole_until(at)?),
            false => None,
        };
        let advanced = match hole {
            Some((one, other)) => {
                let bytes = one.min(other).min(len) - at;
                hash.zeros(bytes);
                bytes
            }
            None => {
                let bytes = BLOCK_BYTES.min(usize::try_from(len - at).unwrap_or(BLOCK_BYTES));
                let (one, other) = (source.read(at, bytes)?, dest.read(at, bytes)?);
                if let Some(same) = first_difference(one, other, bytes) {
                    return Ok(Comparison::DifferentAt(at + same as u64));
                }
                hash.data(one);
                bytes as u64
            }
        };
        at += advanced;
        if tick(advanced).is_break() {
            return Ok(Comparison::Stopped);
        }
    }
    Ok(Comparison::Equal(hash.finish()))
}

/// Makes the kernel drop the cached pages of a file, so that it is read from the disk when it is
/// compared. Only synced pages are dropped. A file system that keeps its files in memory, or that
/// does not support the advice, keeps them: that is not an error.
pub(crate) fn forget_pages(file: BorrowedFd<'_>) {
    let _hint = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// One side of a comparison.
struct ComparedFile<'a> {
    file: BorrowedFd<'a>,
    side: Side,
    buffer: Vec<u8>,
}

impl<'a> ComparedFile<'a> {
    fn of(file: BorrowedFd<'a>, side: Side, len: u64) -> Self {
        let bytes = BLOCK_BYTES.min(usize::try_from(len).unwrap_or(BLOCK_BYTES));
        Self {
            file,
            side,
            buffer: vec![0; bytes],
        }
    }

    fn is_sparse(&self) -> Result<bool, (Side, Errno)> {
        Ok(endpoint(&self.stat()?).may_have_holes())
    }

    fn stat(&self) -> Result<Stat, (Side, Errno)> {
        rustix::fs::fstat(self.file).map_err(|errno| (self.side, errno))
    }

    /// Returns the end of the hole that `at` is in, if it is in one (SEEK_DATA, lseek(2)). A hole
    /// ends at the end of the file. If a file system returns nonsense, `at` counts as data.
    fn hole_until(&self, at: u64) -> Result<Option<u64>, (Side, Errno)> {
        let end = match rustix::fs::seek(self.file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // No data from here on, or past the end of the file.
            Err(Errno::NXIO) => size(&self.stat()?),
            Err(_) => at,
        };
        Ok((end > at).then_some(end))
    }

    /// Reads up to `bytes` bytes from `at` on; fewer only at the end of the file.
    fn read(&mut self, at: u64, bytes: usize) -> Result<&[u8], (Side, Errno)> {
        let mut len = 0;
        while len < bytes {
            let place = &mut self.buffer[len..bytes];
            match rustix::io::pread(self.file, place, at + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(Errno::INTR) => {}
                Err(errno) => return Err((self.side, errno)),
            }
        }
        Ok(&self.buffer[..len])
    }
}

/// Returns the position of the first of `bytes` bytes that differs, or that one side lacks.
fn first_difference(one: &[u8], other: &[u8], bytes: usize) -> Option<usize> {
    let both = one.len().min(other.len());
    if one[..both] == other[..both] {
        return (both < bytes).then_some(both);
    }
    one.iter().zip(other).position(|(one, other)| one != other)
}

#[cfg(test)]
mod tests;
