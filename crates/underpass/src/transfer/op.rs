//! One system call as plain data: a [`Transfer`](crate::Transfer) returns it and a driver makes it.
//! Also the two-call mechanisms, splice through a pipe and read/write through a buffer, as one
//! machine.
//!
//! The order of its rules makes it safe: held bytes are drained before anything else is read, so
//! that a relay buffer is empty whenever the mechanism changes, and EAGAIN can mean one side only.

use crate::vocabulary::account::Mechanism;
use crate::vocabulary::endpoint::Side;
use crate::vocabulary::limits::{BUFFER_BYTES, PIPE_BYTES};

/// The buffer between the two calls of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayBuffer {
    /// A pipe: pages pass by reference.
    Pipe,
    /// A buffer in user space.
    Buffer,
}

impl RelayBuffer {
    /// Returns the mechanism that uses this relay buffer.
    pub const fn mechanism(self) -> Mechanism {
        match self {
            Self::Pipe => Mechanism::Splice,
            Self::Buffer => Mechanism::ReadWrite,
        }
    }
}

/// The held bytes of the relay buffer, in blocks of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferedBytes {
    /// Offset in the sink of the first byte.
    pub to: u64,
    /// Number of bytes.
    pub len: u64,
    /// Block size of the sink in bytes; blocks start at its multiples. Never 0.
    pub block_bytes: u64,
    /// Offset in the sink of the end of the transfer, if known: a block may be shorter there.
    pub end: Option<u64>,
}

/// One system call, without descriptors, or a look at the relay buffer. Offsets are `None` if the
/// side has none.
///
/// Its result is the returned count, an offset for seeks, or 0 for plain success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// `ioctl(sink, FICLONE, source)`.
    Clone,
    /// `ioctl(sink, FICLONERANGE, …)`.
    CloneRange {
        /// Offset in the source.
        from: u64,
        /// Offset in the sink.
        to: u64,
        /// Length in bytes.
        len: u64,
    },
    /// `copy_file_range(2)`.
    CopyRange {
        /// Offset in the source.
        from: u64,
        /// Offset in the sink.
        to: u64,
        /// Maximum length in bytes.
        len: u64,
    },
    /// `sendfile(2)`. A sink that is a file is written at its current position.
    Sendfile {
        /// Offset in the source.
        from: Option<u64>,
        /// Maximum length in bytes.
        len: u64,
    },
    /// `splice(2)` straight from source to sink, one of which is a pipe.
    Splice {
        /// Offset in the source.
        from: Option<u64>,
        /// Offset in the sink.
        to: Option<u64>,
        /// Maximum length in bytes.
        len: u64,
    },
    /// From the source into the empty relay buffer.
    Fill {
        /// The relay buffer to fill.
        through: RelayBuffer,
        /// Offset in the source.
        from: Option<u64>,
        /// Maximum length in bytes.
        len: u64,
    },
    /// From the relay buffer to the sink.
    Drain {
        /// The relay buffer to drain.
        through: RelayBuffer,
        /// Offset in the sink.
        to: Option<u64>,
        /// Length in bytes: all held bytes, or those before zeros that become a hole.
        len: u64,
    },
    /// From the relay pipe into the buffer in user space, because the sink takes no pipe.
    ReadOut {
        /// Maximum length in bytes.
        len: u64,
    },
    /// Removes the blocks of zeros at the beginning of the buffer in user space; its result is
    /// their length in bytes. No system call.
    DropZeros(BufferedBytes),
    /// Counts the bytes of the buffer in user space before the first block of zeros. No system
    /// call.
    DataAhead(BufferedBytes),
    /// Reads one byte and discards it: has the source really ended?
    Peek {
        /// Offset in the source.
        from: u64,
    },
    /// The mechanism's call without descriptors: does it exist at all?
    Probe(Mechanism),
    /// `lseek(sink, to, SEEK_SET)`.
    SeekSink {
        /// Offset in the sink.
        to: u64,
    },
    /// `lseek(source, from, SEEK_DATA)`.
    SeekData {
        /// Offset in the source.
        from: u64,
    },
    /// `lseek(source, from, SEEK_HOLE)`.
    SeekHole {
        /// Offset in the source.
        from: u64,
    },
    /// `fallocate(sink, PUNCH_HOLE | KEEP_SIZE)`: frees blocks that were allocated in advance.
    Punch {
        /// Offset in the sink.
        to: u64,
        /// Length in bytes.
        len: u64,
    },
    /// `ftruncate(sink, len)`: a hole at the end has no bytes that would extend the file.
    SetLength {
        /// The sink's new length in bytes.
        len: u64,
    },
    /// `pwrite(sink, "\0", at)`: extends the file for a hole at the end of a range, and keeps data
    /// that others have written after it.
    LastByte {
        /// Offset in the sink.
        at: u64,
    },
    /// The length of a side, by `fstat(2)`.
    Length(Side),
}

impl Op {
    /// `read(2)` into a buffer, to interpret its results.
    pub(crate) const READ: Self = Self::Fill {
        through: RelayBuffer::Buffer,
        from: None,
        len: 0,
    };

    /// `write(2)` or `send(2)` from a buffer.
    pub(crate) const WRITE: Self = Self::Drain {
        through: RelayBuffer::Buffer,
        to: None,
        len: 0,
    };

    /// Returns the mechanism it belongs to, if it moves payload.
    pub const fn mechanism(self) -> Option<Mechanism> {
        Some(match self {
            Self::Clone | Self::CloneRange { .. } => Mechanism::Clone,
            Self::CopyRange { .. } => Mechanism::CopyRange,
            Self::Sendfile { .. } => Mechanism::Sendfile,
            Self::Splice { .. } => Mechanism::Splice,
            Self::Fill { through, .. } | Self::Drain { through, .. } => through.mechanism(),
            Self::ReadOut { .. } => Mechanism::ReadWrite,
            _ => return None,
        })
    }

    /// Returns whether it only looks at the contents of the buffer.
    pub(crate) const fn is_look(self) -> bool {
        matches!(self, Self::DropZeros(_) | Self::DataAhead(_))
    }

    /// Returns whether it moves bytes from the source into a relay buffer.
    pub const fn fills(self) -> bool {
        matches!(self, Self::Fill { .. })
    }

    /// Returns the maximum number of bytes it writes to the sink; `None` if it writes none.
    pub const fn writes(self) -> Option<u64> {
        match self {
            Self::Sendfile { len, .. } | Self::Splice { len, .. } | Self::Drain { len, .. } => {
                Some(len)
            }
            _ => None,
        }
    }

    /// Returns offset and length of its read from a source that has offsets.
    pub const fn reads(self) -> Option<(u64, u64)> {
        let (Self::Sendfile { from, len }
        | Self::Splice { from, len, .. }
        | Self::Fill { from, len, .. }) = self
        else {
            return None;
        };
        match from {
            Some(from) => Some((from, len)),
            None => None,
        }
    }
}

/// The bytes between source and sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relay {
    pipe: u64,
    buffer: u64,
    /// The sink refused splice: bytes in the pipe are read out and written.
    reads_out: bool,
}

impl Relay {
    /// Returns the bytes taken from the source that have not reached the sink.
    pub(crate) fn held(&self) -> u64 {
        self.pipe + self.buffer
    }

    /// Records that the sink refused the pipe.
    pub(crate) fn read_out(&mut self) {
        self.reads_out = true;
    }

    /// Returns the bytes in the buffer that have not been written.
    pub(crate) fn buffered(&self) -> u64 {
        self.buffer
    }

    /// Records a new hole of `len` bytes in the sink, and drops its zeros from the buffer, if any.
    pub(crate) fn skipped(&mut self, len: u64) {
        self.buffer = self.buffer.saturating_sub(len);
    }

    /// Returns the call that must come first: held bytes are drained, at most `most` per call from
    /// the buffer.
    pub(crate) fn drain(&self, to: Option<u64>, most: u64) -> Option<Op> {
        if self.buffer > 0 {
            return Some(Op::Drain {
                through: RelayBuffer::Buffer,
                to,
                len: self.buffer.min(most),
            });
        }
        if self.pipe == 0 {
            return None;
        }
        Some(match self.reads_out {
            false => Op::Drain {
                through: RelayBuffer::Pipe,
                to,
                len: self.pipe,
            },
            true => Op::ReadOut {
                len: self.pipe.min(BUFFER_BYTES as u64),
            },
        })
    }

    /// Returns the call that reads the next piece of the source, at most `owed` bytes.
    pub(crate) fn fill(through: RelayBuffer, from: Option<u64>, owed: u64) -> Op {
        let capacity = match through {
            RelayBuffer::Pipe => PIPE_BYTES as u64 - unaligned(from),
            RelayBuffer::Buffer => BUFFER_BYTES as u64,
        };
        Op::Fill {
            through,
            from,
            len: owed.min(capacity),
        }
    }

    /// Records that `op` moved `bytes`. Returns how many of them reached the sink.
    pub(crate) fn moved(&mut self, op: Op, bytes: u64) -> u64 {
        match op {
            Op::Fill { through, .. } => {
                *self.middle(through) += bytes;
                0
            }
            Op::Drain { through, .. } => {
                let held = self.middle(through);
                debug_assert!(
                    bytes <= *held,
                    "the kernel drained more than the middle held"
                );
                *held -= bytes;
                bytes
            }
            Op::ReadOut { .. } => {
                self.pipe -= bytes;
                self.buffer += bytes;
                0
            }
            _ => bytes,
        }
    }

    fn middle(&mut self, through: RelayBuffer) -> &mut u64 {
        match through {
            RelayBuffer::Pipe => &mut self.pipe,
            RelayBuffer::Buffer => &mut self.buffer,
        }
    }
}

/// QUIRK(splice-slots): a pipe holds pages, not bytes; from an offset inside a page the first slot
/// is only partly used, and so would be the first slot of every later call. A shorter first piece
/// makes the later ones start on a page.
fn unaligned(from: Option<u64>) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    from.unwrap_or(0) % PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_go_on_before_new_ones_come() {
        let mut relay = Relay::default();
        assert_eq!(relay.drain(None, u64::MAX), None);
        let fill = Relay::fill(RelayBuffer::Pipe, Some(0), 100);
        assert_eq!(relay.moved(fill, 60), 0);
        let drain = relay.drain(Some(0), u64::MAX).expect("holds bytes");
        assert_eq!(
            drain,
            Op::Drain {
                through: RelayBuffer::Pipe,
                to: Some(0),
                len: 60
            }
        );
        assert_eq!(relay.moved(drain, 20), 20);
        relay.read_out();
        let out = relay.drain(Some(20), u64::MAX).expect("still holds bytes");
        assert_eq!(out, Op::ReadOut { len: 40 });
        assert_eq!(relay.moved(out, 40), 0);
        let rest = relay.drain(Some(20), u64::MAX).expect("in the buffer now");
        assert_eq!(
            rest,
            Op::Drain {
                through: RelayBuffer::Buffer,
                to: Some(20),
                len: 40
            }
        );
        let part = relay.drain(Some(20), 30).map(|op| relay.moved(op, 30));
        assert_eq!((part, relay.held()), (Some(30), 10));
        relay.skipped(10);
        assert_eq!(relay.held(), 0);
    }

    #[test]
    fn operations_read_fill_and_write() {
        let (from, to, len) = (Some(7), None, 9);
        let (pipe, buffer) = (RelayBuffer::Pipe, RelayBuffer::Buffer);
        let fill = |through| Op::Fill { through, from, len };
        let drain = |through| Op::Drain { through, to, len };
        for (op, reads, fills, writes) in [
            (fill(pipe), from, true, false),
            (fill(buffer), from, true, false),
            (drain(pipe), None, false, true),
            (drain(buffer), None, false, true),
            (Op::Sendfile { from, len }, from, false, true),
            (Op::Splice { from, to, len }, from, false, true),
            (Op::Clone, None, false, false),
            (Op::ReadOut { len }, None, false, false),
            (Op::READ, None, true, false),
        ] {
            assert_eq!(op.reads(), reads.map(|from| (from, len)), "{op:?}");
            assert_eq!(
                (op.fills(), op.writes().is_some()),
                (fills, writes),
                "{op:?}"
            );
        }
    }

    /// QUIRK(splice-slots)
    #[test]
    fn splice_slots() {
        let fill = Relay::fill(RelayBuffer::Pipe, Some(100), u64::MAX);
        let Op::Fill { len, .. } = fill else {
            panic!("a fill")
        };
        let capacity = PIPE_BYTES as u64;
        assert_eq!(len, capacity - 100, "the second piece starts on a page");
        let fill = Relay::fill(RelayBuffer::Pipe, Some(8192), u64::MAX);
        assert!(matches!(fill, Op::Fill { len, .. } if len == capacity));
    }
}
