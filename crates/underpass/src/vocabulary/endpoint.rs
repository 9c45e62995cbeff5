//! The two ends of a move: the kind of each, and the range owed. Plain data: `probe.rs` queries the
//! kernel.

use std::fmt;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;

/// The kind of a descriptor, for moving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum EndpointKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// A character device or a terminal.
    Char,
    /// A pipe or FIFO.
    Pipe,
    /// A TCP socket.
    Tcp,
    /// A TCP socket whose records the kernel encrypts (TCP_ULP "tls").
    TcpKernelTls,
    /// A TCP socket whose records this process encrypts and decrypts. Its driver declares this: the
    /// kernel knows nothing of it.
    TcpSealed,
    /// A Unix stream socket.
    Unix,
    /// Anything else: event descriptors, directories, and message-oriented sockets, never sources.
    Other,
}

impl EndpointKind {
    /// All kinds.
    pub const ALL: [EndpointKind; 9] = [
        Self::File,
        Self::Block,
        Self::Char,
        Self::Pipe,
        Self::Tcp,
        Self::TcpKernelTls,
        Self::TcpSealed,
        Self::Unix,
        Self::Other,
    ];

    /// Returns the words used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Block => "block device",
            Self::Char => "character device",
            Self::Pipe => "pipe",
            Self::Tcp => "TCP socket",
            Self::TcpKernelTls => "TCP socket with kernel TLS",
            Self::TcpSealed => "TCP socket with TLS in user space",
            Self::Unix => "Unix socket",
            Self::Other => "other",
        }
    }

    /// Returns whether it is a connected byte stream with a peer.
    pub const fn is_socket(self) -> bool {
        matches!(
            self,
            Self::Tcp | Self::TcpKernelTls | Self::TcpSealed | Self::Unix
        )
    }

    /// Returns whether calls can address its bytes by offset.
    pub(crate) const fn has_offsets(self) -> bool {
        matches!(self, Self::File | Self::Block)
    }
}

impl fmt::Display for EndpointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Side {
    /// The end that bytes come from.
    Source,
    /// The end that bytes go to.
    Sink,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Source => "source",
            Self::Sink => "sink",
        })
    }
}

/// The behaviour of a call when the descriptor has no data or no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waits {
    /// It blocks; `EAGAIN` then means that a socket timeout expired.
    Blocks,
    /// It returns `EAGAIN` (`O_NONBLOCK`).
    Polls,
}

/// The position of writes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// At the offset given by the call.
    AtOffset,
    /// At the end of the file, regardless of the offset (`O_APPEND`).
    Appends,
}

/// The facts about one end that planning needs, read once from the open descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The kind of descriptor.
    pub kind: EndpointKind,
    /// The behaviour of its calls when they cannot proceed.
    pub waits: Waits,
    /// The position of its writes.
    pub writes: Writes,
    /// `st_dev`. A key to remember refusals by, and a reason to try one mechanism before another,
    /// never one to leave it out: Btrfs subvolumes differ and still clone.
    pub device: u64,
    /// `st_ino`: with the device it shows that both ends are one file, whose ranges must not
    /// overlap. 0 if unknown.
    pub inode: u64,
    /// `st_size` in bytes; 0 for everything but files, and for files without a known size (procfs).
    pub size: u64,
    /// Bytes allocated on disk (`st_blocks` × 512), including those beyond the end.
    pub allocated: u64,
    /// `st_blksize` in bytes: cloned ranges are aligned to it.
    pub block_bytes: u64,
}

/// The result of `fstat(2)` for a regular file, as needed for moving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_size` in bytes.
    pub size: u64,
    /// Bytes allocated on disk (`st_blocks` × 512).
    pub allocated: u64,
    /// `st_blksize` in bytes.
    pub block_bytes: u64,
}

impl FileStat {
    /// Returns the facts of a regular file; `None` for anything else.
    pub fn of(metadata: &std::fs::Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            allocated: metadata.blocks() * 512,
            block_bytes: metadata.blksize(),
        })
    }
}

impl Endpoint {
    /// Describes a regular file that the caller has just opened, neither for appending nor as
    /// nonblocking, and queried by `fstat(2)`.
    ///
    /// Size and allocation must be current: for a sink that was truncated since, `size` must be 0,
    /// or it is treated as one that has old bytes.
    pub const fn of_file(stat: FileStat) -> Self {
        Self {
            kind: EndpointKind::File,
            waits: Waits::Blocks,
            writes: Writes::AtOffset,
            device: stat.device,
            inode: stat.inode,
            size: stat.size,
            allocated: stat.allocated,
            block_bytes: stat.block_bytes,
        }
    }

    /// Returns whether a file may have holes: fewer bytes are allocated than it has, or more than
    /// it needs. Blocks allocated beyond the end (`FALLOC_FL_KEEP_SIZE`, fallocate(2)) make up for
    /// those that holes lack; if they do so exactly, the holes are missed.
    pub fn may_have_holes(&self) -> bool {
        let needed = self.size.checked_next_multiple_of(self.block_bytes);
        self.allocated < self.size || self.allocated > needed.unwrap_or(self.size)
    }

    /// Describes an endpoint known only by its kind, for planning without a descriptor: it is
    /// nonblocking, writes at offsets, and as a file it has 1 MiB without holes.
    pub const fn sample(kind: EndpointKind) -> Self {
        let size = if matches!(kind, EndpointKind::File) {
            1 << 20
        } else {
            0
        };
        Self {
            kind,
            waits: Waits::Polls,
            writes: Writes::AtOffset,
            device: 0,
            inode: 0,
            size,
            allocated: size,
            block_bytes: 4096,
        }
    }
}

/// The number of bytes a source promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// This many bytes; fewer are an error ([`crate::Fault::Truncated`]).
    Exactly(u64),
    /// Everything until the source ends.
    ToEnd,
}

/// The source of a move: a descriptor, its endpoint, and the range to move.
///
/// `F` is any holder of the descriptor; the machine itself never touches it, so its tests use `()`.
#[derive(Clone, Copy, Debug)]
pub struct Source<F> {
    /// The descriptor.
    pub fd: F,
    /// The facts about the descriptor.
    pub end: Endpoint,
    /// Offset of the first byte; meaningless for streams.
    pub from: u64,
    /// The length owed from there.
    pub owed: Owed,
}

impl Source<()> {
    /// Describes a whole source known only by its kind, for planning without a descriptor.
    pub const fn sample(kind: EndpointKind) -> Self {
        let end = Endpoint::sample(kind);
        let owed = match end.size {
            0 => Owed::ToEnd,
            size => Owed::Exactly(size),
        };
        Self {
            fd: (),
            end,
            from: 0,
            owed,
        }
    }
}

impl<F> Source<F> {
    /// Describes exactly `len` bytes of an end that was queried before. Of a file, only facts that
    /// can't change while it is open are used.
    pub(crate) fn range_of(fd: F, end: Endpoint, from: u64, len: u64) -> Result<Self, Errno> {
        within_offsets(from, len)?;
        Ok(Self {
            fd,
            end,
            from,
            owed: Owed::Exactly(len),
        })
    }
}

/// The sink of a move: a descriptor, its endpoint, and the offset of the first byte.
#[derive(Clone, Copy, Debug)]
pub struct Sink<F> {
    /// The descriptor.
    pub fd: F,
    /// The facts about the descriptor.
    pub end: Endpoint,
    /// Offset of the first byte; meaningless for streams and files opened with `O_APPEND`.
    pub to: u64,
}

impl Sink<()> {
    /// Describes a sink known only by its kind, a file being empty, for planning without a
    /// descriptor.
    pub const fn sample(kind: EndpointKind) -> Self {
        let mut end = Endpoint::sample(kind);
        (end.size, end.allocated) = (0, 0);
        Self { fd: (), end, to: 0 }
    }
}

impl<F> Sink<F> {
    /// Uses the beginning of an end that was just queried: does the same as [`new`](Self::new)
    /// without a system call.
    pub const fn of(fd: F, end: Endpoint) -> Self {
        Self { fd, end, to: 0 }
    }

    /// Returns whether a skipped range becomes a hole: in a regular file that has no bytes there
    /// yet. Elsewhere old bytes would remain.
    pub(crate) fn takes_holes(&self) -> bool {
        let end = &self.end;
        end.kind == EndpointKind::File && end.size <= self.to && end.writes == Writes::AtOffset
    }
}

/// Checks that a file can have this range.
pub(crate) fn within_offsets(from: u64, len: u64) -> Result<(), Errno> {
    match from.checked_add(len) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Errno::OVERFLOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_and_few_have_offsets_or_peers() {
        let names: std::collections::BTreeSet<_> = EndpointKind::ALL.map(EndpointKind::name).into();
        assert_eq!(names.len(), EndpointKind::ALL.len());
        assert!(names.contains("pipe"), "{names:?}");
        let those = |of: fn(EndpointKind) -> bool| EndpointKind::ALL.map(of);
        let yes = |kinds: &[EndpointKind]| EndpointKind::ALL.map(|kind| kinds.contains(&kind));
        use EndpointKind::{Block, File, Tcp, TcpKernelTls, TcpSealed, Unix};
        assert_eq!(those(EndpointKind::has_offsets), yes(&[File, Block]));
        assert_eq!(
            those(EndpointKind::is_socket),
            yes(&[Tcp, TcpKernelTls, TcpSealed, Unix])
        );
        assert_eq!(
            format!("{:>6}|{:>7}", EndpointKind::Pipe, Side::Source),
            "  pipe| source"
        );
        assert_eq!(Side::Sink.to_string(), "sink");
    }

    #[test]
    fn holes_are_taken_where_a_file_has_nothing_yet() {
        let mut sink = Sink::sample(EndpointKind::File);
        (sink.end.size, sink.to) = (10, 10);
        assert!(sink.takes_holes());
        sink.to = 9;
        assert!(!sink.takes_holes(), "old bytes would remain");
        (sink.to, sink.end.writes) = (10, Writes::Appends);
        assert!(!sink.takes_holes(), "nobody names the place");
        assert!(!Sink::sample(EndpointKind::Block).takes_holes());
    }

    #[test]
    fn what_is_allocated_shows_that_there_may_be_holes() {
        let mut file = Endpoint::sample(EndpointKind::File);
        for (size, allocated, expected) in [
            (0, 0, false),
            (1, 4096, false),
            (4096, 4096, false),
            (1, 0, true),
            (8192, 4096, true),
            // Blocks beyond the end.
            (1, 8192, true),
            (0, 4096, true),
        ] {
            (file.size, file.allocated) = (size, allocated);
            assert_eq!(file.may_have_holes(), expected, "{size} {allocated}");
        }
        (file.block_bytes, file.size, file.allocated) = (0, 1, 1);
        assert!(
            !file.may_have_holes(),
            "of an unknown block nothing is known"
        );
    }

    #[test]
    fn ranges_end_where_files_do() {
        const LAST: u64 = i64::MAX as u64;
        for (from, len) in [(0, 0), (LAST, 0), (LAST - 5, 5), (0, LAST)] {
            assert_eq!(within_offsets(from, len), Ok(()), "{len} from {from}");
        }
        for (from, len) in [(LAST, 1), (LAST + 1, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(
                within_offsets(from, len),
                Err(Errno::OVERFLOW),
                "{len} from {from}"
            );
        }
    }

    #[test]
    fn samples_are_whole_files_and_empty_ones() {
        let source = Source::sample(EndpointKind::File);
        assert_eq!((source.from, source.owed), (0, Owed::Exactly(1 << 20)));
        assert_eq!(source.end.allocated, 1 << 20);
        assert_eq!(Source::sample(EndpointKind::Tcp).owed, Owed::ToEnd);
        assert_eq!(Sink::sample(EndpointKind::File).end.size, 0);
    }
}
