//! The interface of an outbox for drivers that encrypt or compress: they read its contents into
//! their own buffer, send that, and report the bytes that have left.

use std::sync::Arc;

use rustix::io::Errno;

use crate::outbox::{FileRange, Outbox, Piece};
use crate::shared_file::SharedFile;
use crate::transfer::verdict::Wait;
use crate::vocabulary::account::Mechanism;
use crate::vocabulary::endpoint::Waits;
use crate::vocabulary::error::Error;

/// The result of reading an outbox into a driver's buffer ([`Outbox::gather`]).
#[derive(Debug)]
pub enum Gathered {
    /// The number of bytes read; 0 if nothing is owed, or the call is to be repeated.
    Bytes(usize),
    /// Nothing was read: this range is next, and it is not in the page cache.
    Cold(FileRange),
}

/// A part of the contents of an outbox ([`Outbox::unsent`]).
#[derive(Clone, Copy, Debug)]
pub enum Unsent<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// A range of a file.
    Range {
        /// The file.
        file: &'a Arc<SharedFile>,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

impl Outbox {
    /// Returns the contents beyond the first `skipped` bytes, in order, for a driver with a buffer.
    /// The driver skips bytes that its buffer holds and the socket has not taken yet.
    pub fn unsent(&self, skipped: u64) -> impl Iterator<Item = Unsent<'_>> {
        let mut passed = skipped.saturating_add(self.front_sent as u64);
        self.pieces.iter().filter_map(move |piece| {
            let len = piece.len();
            let skip = passed.min(len);
            passed -= skip;
            if skip == len {
                return None;
            }
            Some(match piece {
                Piece::Range(range) => Unsent::Range {
                    file: &range.file,
                    offset: range.offset.saturating_add(skip),
                    len: len - skip,
                },
                _ => Unsent::Bytes(&piece.bytes()[usize::try_from(skip).unwrap_or(usize::MAX)..]),
            })
        })
    }

    /// Reads the contents beyond the first `skipped` bytes, in order, into the buffer of a driver:
    /// as much as fits and is available without waiting for the disk. `read` reads a file from an
    /// offset on, and returns `None` if it would block.
    ///
    /// # Errors
    /// The next piece cannot be read, or the file ends before it. This is reported once nothing is
    /// skipped, so that the bytes before it can be sent.
    pub fn gather(
        &mut self,
        skipped: u64,
        buffer: &mut [u8],
        mut read: impl FnMut(&SharedFile, &mut [u8], u64) -> Option<Result<usize, Errno>>,
    ) -> Result<Gathered, Error> {
        let (mut filled, mut calls, mut failed, mut cold) = (0, 0, None, None);
        for unsent in self.unsent(skipped) {
            let room = &mut buffer[filled..];
            let (got, wanted) = match unsent {
                Unsent::Bytes(bytes) => {
                    let wanted = bytes.len().min(room.len());
                    room[..wanted].copy_from_slice(&bytes[..wanted]);
                    (wanted, bytes.len())
                }
                Unsent::Range { file, offset, len } => {
                    let wanted = usize::try_from(len).map_or(room.len(), |len| len.min(room.len()));
                    if wanted == 0 {
                        break;
                    }
                    calls += 1;
                    let got = match read(file, &mut room[..wanted], offset) {
                        Some(Ok(got)) if got > 0 => got.min(wanted),
                        Some(result) => {
                            failed = Some(result);
                            break;
                        }
                        None => {
                            let file = Arc::clone(file);
                            cold = Some(FileRange { file, offset, len });
                            break;
                        }
                    };
                    (got, usize::try_from(len).unwrap_or(usize::MAX))
                }
            };
            filled += got;
            if got < wanted {
                break;
            }
        }
        self.account.record(Mechanism::ReadWrite, 0, calls);
        match (failed, cold) {
            _ if filled > 0 || skipped > 0 => Ok(Gathered::Bytes(filled)),
            (Some(result), _) => {
                // The read was interrupted, if this is not an error.
                self.read(result.map(|read| read as u64))?;
                Ok(Gathered::Bytes(0))
            }
            (None, Some(range)) => Ok(Gathered::Cold(range)),
            (None, None) => Ok(Gathered::Bytes(filled)),
        }
    }

    /// Records the result of `send(2)` from a driver's own buffer, as the number of owed bytes it
    /// completed. Returns the side that the driver has to wait for.
    ///
    /// # Errors
    /// The socket cannot be written: the outbox cannot be used further.
    pub fn sent_from_buffer(
        &mut self,
        result: Result<u64, Errno>,
        waits: Waits,
    ) -> Result<Option<Wait>, Error> {
        match result {
            Ok(bytes) => {
                self.advance(bytes, 1);
                Ok(None)
            }
            Err(errno) => self.written(Err(errno), waits).map(|(_, wait)| wait),
        }
    }

    /// Records that the socket has taken the next `bytes` of the outbox, heads and ranges alike,
    /// from a buffer of the driver, and that the driver made `calls` system calls for it. The
    /// payload among them counts as moved by [`Mechanism::ReadWrite`]. Bytes beyond the contents
    /// are ignored.
    pub fn advance(&mut self, bytes: u64, calls: u64) {
        self.account.record(Mechanism::ReadWrite, 0, calls);
        let mut left = bytes;
        while left > 0 && !self.pieces.is_empty() {
            left -= match self.pieces.front() {
                Some(Piece::Range(range)) => {
                    let payload = range.len.min(left);
                    self.account.moved(Mechanism::ReadWrite, payload);
                    self.pass_range(0, payload);
                    payload
                }
                _ => self.pass_bytes(left),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: u64 = 1000;
    const LEN: u64 = 500;

    /// Creates an outbox with a head of four bytes before a range of a file.
    fn outbox() -> Outbox {
        let file = SharedFile::new(tempfile::tempfile().unwrap().into());
        let mut outbox = Outbox::new();
        outbox.push(Piece::Bytes(b"head".to_vec()));
        outbox.push(Piece::Range(FileRange {
            file,
            offset: FROM,
            len: LEN,
        }));
        outbox
    }

    /// Gathers from a file that is in the page cache only before `end`.
    fn gather(outbox: &mut Outbox, skipped: u64, end: u64) -> Gathered {
        let mut buffer = [0; 1000];
        let read = |_: &SharedFile, room: &mut [u8], offset: u64| {
            let cached = usize::try_from(end.checked_sub(offset)?).unwrap();
            (cached > 0).then(|| Ok(cached.min(room.len())))
        };
        outbox.gather(skipped, &mut buffer, read).unwrap()
    }

    fn bytes(gathered: Gathered) -> Option<usize> {
        match gathered {
            Gathered::Bytes(count) => Some(count),
            Gathered::Cold(_) => None,
        }
    }

    fn cold(gathered: Gathered) -> Option<(u64, u64)> {
        match gathered {
            Gathered::Bytes(_) => None,
            Gathered::Cold(range) => Some((range.offset, range.len)),
        }
    }

    #[test]
    fn a_cold_range_is_reported_once_it_is_next_and_from_where_it_is_cold() {
        let mut outbox = outbox();
        // Bytes before it leave first, including those in a driver's buffer.
        assert_eq!(bytes(gather(&mut outbox, 0, FROM)), Some(4));
        assert_eq!(bytes(gather(&mut outbox, 4, FROM)), Some(0));
        outbox.advance(4, 1);
        assert_eq!(cold(gather(&mut outbox, 0, FROM)), Some((FROM, LEN)));
        // A part of it has arrived.
        assert_eq!(bytes(gather(&mut outbox, 0, FROM + 120)), Some(120));
        outbox.advance(120, 1);
        assert_eq!(
            cold(gather(&mut outbox, 0, FROM + 120)),
            Some((FROM + 120, LEN - 120))
        );
        assert_eq!(bytes(gather(&mut outbox, 0, FROM + LEN)), Some(380));
        outbox.advance(380, 1);
        assert_eq!(bytes(gather(&mut outbox, 0, FROM)), Some(0));
        assert!(outbox.is_empty());
    }
}
