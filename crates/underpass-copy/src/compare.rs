//! Whether two files have the same content.

mod content_hash;

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;
use underpass::Side;

use content_hash::ContentHash;

/// What is read and compared at once: some milliseconds even from a slow disk.
const BLOCK_BYTES: usize = 1 << 20;

/// What comparing came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Equal as far as they were to be compared; the content hash of that much, in hexadecimal.
    ///
    /// It depends on the content alone, and not on where the holes are. It is the BLAKE3 hash of
    /// the bytes, as `b3sum` prints it, for all content that has no 16 MiB of zeros at a multiple
    /// of 16 MiB; [`content_hash`] says what it is for the rest.
    Equal(String),
    /// The first byte that differs, or that one of them lacks.
    DifferentAt(u64),
    /// `tick` stopped it.
    Stopped,
}

/// Compares the first `len` bytes. `tick` receives the number of bytes since its last call.
/// Blocks; leaves file positions unspecified. Where both have a hole nothing is read.
///
/// # Errors
/// Which side can't be read, and why.
pub(crate) fn compare(
    source: BorrowedFd<'_>,
    dest: BorrowedFd<'_>,
    len: u64,
    tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Comparison, (Side, Errno)> {
    let (mut source, mut dest) = ComparedFile::of_both(source, dest, len)?;
    let mut hash = ContentHash::default();
    let mut at = 0;
    while at < len {
        let hole = source.hole_until(at)?.zip(dest.hole_until(at)?);
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

/// Makes the kernel forget what it holds of a file, so that it is read from the disk when it is
/// compared. Only what was synced is forgotten. A file system that keeps its files in memory, or
/// that doesn't know the advice, keeps them: that is no error.
pub(crate) fn forget_pages(file: BorrowedFd<'_>) {
    let _hint = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// One side.
struct ComparedFile<'a> {
    file: BorrowedFd<'a>,
    side: Side,
    extents: HoleMap,
    buffer: Vec<u8>,
}

impl<'a> ComparedFile<'a> {
    fn of_both(
        source: BorrowedFd<'a>,
        dest: BorrowedFd<'a>,
        len: u64,
    ) -> Result<(Self, Self), (Side, Errno)> {
        let mut both = (
            Self::of(source, Side::Source, len),
            Self::of(dest, Side::Sink, len),
        );
        // What fits into a block is read sooner than asked about.
        if len > BLOCK_BYTES as u64 && both.0.is_sparse()? && both.1.is_sparse()? {
            both.0.extents = HoleMap::Unknown;
            both.1.extents = HoleMap::Unknown;
        }
        Ok(both)
    }

    fn of(file: BorrowedFd<'a>, side: Side, len: u64) -> Self {
        let bytes = BLOCK_BYTES.min(usize::try_from(len).unwrap_or(BLOCK_BYTES));
        Self {
            file,
            side,
            extents: HoleMap::AllData,
            buffer: vec![0; bytes],
        }
    }

    fn is_sparse(&self) -> Result<bool, (Side, Errno)> {
        let stat = rustix::fs::fstat(self.file).map_err(|errno| (self.side, errno))?;
        // The unit of st_blocks is 512 bytes, whatever the file system's is (stat(3type)).
        Ok(stat.st_blocks.saturating_mul(512) < stat.st_size)
    }

    fn hole_until(&mut self, at: u64) -> Result<Option<u64>, (Side, Errno)> {
        let side = self.side;
        let hole = self.extents.hole_until(self.file, at);
        hole.map_err(|errno| (side, errno))
    }

    /// What is there of `bytes` bytes from `at` on.
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

/// Where a file has holes, found by SEEK_DATA and SEEK_HOLE (lseek(2)) one extent at a time, as far
/// as it is known. A file system that answers nonsense makes the rest plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoleMap {
    /// Nothing is.
    Unknown,
    /// From where it was asked up to here there is data.
    Data(u64),
    /// From where it was asked up to here there is a hole.
    Hole(u64),
    /// All of the rest is to be read.
    AllData,
}

impl HoleMap {
    /// The end of the hole that `at` is in, if it is in one. What was asked before was not behind
    /// `at`. A hole ends where the file does.
    fn hole_until(&mut self, file: BorrowedFd<'_>, at: u64) -> Result<Option<u64>, Errno> {
        let is_known = match *self {
            Self::Unknown => false,
            Self::Data(end) | Self::Hole(end) => at < end,
            Self::AllData => true,
        };
        if !is_known {
            *self = Self::around(file, at)?;
        }
        Ok(match *self {
            Self::Hole(end) => Some(end),
            _ => None,
        })
    }

    fn around(file: BorrowedFd<'_>, at: u64) -> Result<Self, Errno> {
        Ok(match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) if data > at => Self::Hole(data),
            Ok(data) if data == at => match rustix::fs::seek(file, SeekFrom::Hole(at)) {
                Ok(hole) if hole > at => Self::Data(hole),
                _ => Self::AllData,
            },
            // No data from here on, or no file either.
            Err(Errno::NXIO) => match u64::try_from(rustix::fs::fstat(file)?.st_size) {
                Ok(size) if size > at => Self::Hole(size),
                _ => Self::AllData,
            },
            _ => Self::AllData,
        })
    }
}

/// Where the first of `bytes` bytes is that differs, or that one of them lacks.
fn first_difference(one: &[u8], other: &[u8], bytes: usize) -> Option<usize> {
    let both = one.len().min(other.len());
    if one[..both] == other[..both] {
        return (both < bytes).then_some(both);
    }
    one.iter().zip(other).position(|(one, other)| one != other)
}

#[cfg(test)]
mod tests;
