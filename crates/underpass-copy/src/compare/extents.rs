//! Where a file has holes, found by SEEK_DATA and SEEK_HOLE (lseek(2)) one extent at a time. A file
//! system that answers nonsense makes the rest plain data.

use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// How far the map is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentMap {
    /// Nothing is.
    Unknown,
    /// From where it was asked up to here there is data.
    Data(u64),
    /// From where it was asked up to here there is a hole.
    Hole(u64),
    /// All of the rest is to be read.
    AllData,
}

impl ExtentMap {
    /// The end of the hole that `at` is in, if it is in one. What was asked before was not behind
    /// `at`. A hole ends where the file does.
    pub(super) fn hole_until(
        &mut self,
        file: BorrowedFd<'_>,
        at: u64,
    ) -> Result<Option<u64>, Errno> {
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
