//! One system call as plain data: a [`Transfer`](crate::Transfer) returns it and a driver makes it.

use crate::transfer::verdict::Call;
use crate::vocabulary::endpoint::Side;
use crate::vocabulary::mechanism::Mechanism;

/// What bytes pass through between the two calls of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayBuffer {
    /// A pipe: pages pass by reference.
    Pipe,
    /// A buffer in user space.
    Buffer,
}

impl RelayBuffer {
    /// The mechanism whose middle it is.
    pub const fn mechanism(self) -> Mechanism {
        match self {
            Self::Pipe => Mechanism::Splice,
            Self::Buffer => Mechanism::ReadWrite,
        }
    }
}

/// What the middle buffer holds, seen by the blocks of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferedBytes {
    /// Offset in the sink of the first byte.
    pub to: u64,
    /// Bytes.
    pub len: u64,
    /// Size of a block of the sink in bytes; blocks begin at its multiples. Never 0.
    pub block_bytes: u64,
    /// Offset in the sink where the transfer ends, if that is known: a block may be shorter there.
    pub end: Option<u64>,
}

/// One system call, without descriptors, or a look at the middle buffer. Offsets are `None` where
/// the side has none.
///
/// Its result is the count that the call returned, an offset for seeks, or 0 for success alone.
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
        /// Bytes.
        len: u64,
    },
    /// `copy_file_range(2)`.
    CopyRange {
        /// Offset in the source.
        from: u64,
        /// Offset in the sink.
        to: u64,
        /// Bytes at the most.
        len: u64,
    },
    /// `sendfile(2)`. A sink that is a file is written at its own position.
    Sendfile {
        /// Offset in the source.
        from: Option<u64>,
        /// Bytes at the most.
        len: u64,
    },
    /// `splice(2)` straight from source to sink, one of which is a pipe.
    Splice {
        /// Offset in the source.
        from: Option<u64>,
        /// Offset in the sink.
        to: Option<u64>,
        /// Bytes at the most.
        len: u64,
    },
    /// From the source into the empty middle.
    Fill {
        /// Which middle.
        through: RelayBuffer,
        /// Offset in the source.
        from: Option<u64>,
        /// Bytes at the most.
        len: u64,
    },
    /// From the middle to the sink.
    Drain {
        /// Which middle.
        through: RelayBuffer,
        /// Offset in the sink.
        to: Option<u64>,
        /// Bytes: all that it holds, or those before zeros that are to become a hole.
        len: u64,
    },
    /// From the middle pipe into the middle buffer, because the sink takes no pipe.
    ReadOut {
        /// Bytes at the most.
        len: u64,
    },
    /// Takes the blocks of nothing but zeros that the middle buffer begins with out of it, and
    /// answers how many bytes they are. No system call.
    DropZeros(BufferedBytes),
    /// How many bytes of the middle buffer come before the first block of nothing but zeros. No
    /// system call.
    DataAhead(BufferedBytes),
    /// Reads one byte and forgets it: has the source really ended?
    Peek {
        /// Offset in the source.
        from: u64,
    },
    /// The mechanism's call without descriptors: is it there at all?
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
    /// `fallocate(sink, PUNCH_HOLE | KEEP_SIZE)`: gives back what was allocated in advance.
    Punch {
        /// Offset in the sink.
        to: u64,
        /// Bytes.
        len: u64,
    },
    /// `ftruncate(sink, len)`: a hole at the end has no bytes that would make the file longer.
    SetLength {
        /// The sink's new length in bytes.
        len: u64,
    },
    /// `pwrite(sink, "\0", at)`: makes the file as long as a hole at the end of a range asks for,
    /// and leaves alone what others have written behind it.
    LastByte {
        /// Offset in the sink.
        at: u64,
    },
    /// The length of a side, by `fstat(2)`.
    Length(Side),
}

impl Op {
    /// The call that moves payload, if it does.
    pub(crate) const fn call(self) -> Option<Call> {
        Some(match self {
            Self::Clone | Self::CloneRange { .. } => Call::Clone,
            Self::CopyRange { .. } => Call::CopyRange,
            Self::Sendfile { .. } => Call::Sendfile,
            Self::Splice { .. } => Call::Splice,
            Self::Fill {
                through: RelayBuffer::Pipe,
                ..
            } => Call::FillPipe,
            Self::Fill {
                through: RelayBuffer::Buffer,
                ..
            } => Call::FillBuffer,
            Self::Drain {
                through: RelayBuffer::Pipe,
                ..
            } => Call::DrainPipe,
            Self::Drain {
                through: RelayBuffer::Buffer,
                ..
            } => Call::DrainBuffer,
            Self::ReadOut { .. } => Call::ReadOut,
            _ => return None,
        })
    }

    /// The mechanism it belongs to, if it moves payload.
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

    /// Whether it only looks at what the buffer holds.
    pub(crate) const fn is_look(self) -> bool {
        matches!(self, Self::DropZeros(_) | Self::DataAhead(_))
    }

    /// Whether it takes bytes out of the source into a middle.
    pub const fn fills(self) -> bool {
        matches!(self, Self::Fill { .. })
    }

    /// Whether it brings bytes to the sink.
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::Sendfile { .. } | Self::Splice { .. } | Self::Drain { .. }
        )
    }

    /// Offset and length of what it reads from a source that has offsets.
    pub const fn reads(self) -> Option<(u64, u64)> {
        match self {
            Self::Sendfile {
                from: Some(from),
                len,
            }
            | Self::Splice {
                from: Some(from),
                len,
                ..
            }
            | Self::Fill {
                from: Some(from),
                len,
                ..
            } => Some((from, len)),
            _ => None,
        }
    }
}
