//! The two ends of a move: an open descriptor, what kind of thing it is, and the range owed.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use crate::sys;

/// What a descriptor is, as far as moving bytes is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Kind {
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
    /// A Unix stream socket.
    Unix,
    /// Anything else: datagram sockets, directories, event descriptors.
    Other,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Self::File,
        Self::Block,
        Self::Char,
        Self::Pipe,
        Self::Tcp,
        Self::TcpKernelTls,
        Self::Unix,
        Self::Other,
    ];

    /// The words used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Block => "block device",
            Self::Char => "character device",
            Self::Pipe => "pipe",
            Self::Tcp => "TCP socket",
            Self::TcpKernelTls => "TCP socket with kernel TLS",
            Self::Unix => "Unix socket",
            Self::Other => "other",
        }
    }

    /// Whether it is a connected byte stream with a peer.
    pub const fn is_socket(self) -> bool {
        matches!(self, Self::Tcp | Self::TcpKernelTls | Self::Unix)
    }

    pub(crate) const fn offsets(self) -> Offsets {
        match self {
            Self::File | Self::Block => Offsets::Explicit,
            _ => Offsets::None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether bytes of this kind have a place that a call can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offsets {
    Explicit,
    None,
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Side {
    /// Where bytes come from.
    Source,
    /// Where bytes go.
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

/// What a call does when the descriptor has nothing to give or no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waits {
    /// It blocks; `EAGAIN` then means that a socket timeout ran out.
    Blocks,
    /// It says `EAGAIN` (`O_NONBLOCK`).
    Polls,
}

/// Where writes to a file land.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// At the offset the call names.
    AtOffset,
    /// At the end of the file, whatever the call names (`O_APPEND`).
    Appends,
}

/// What planning needs to know of one end: read once from the open descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What it is.
    pub kind: Kind,
    /// What its calls do when they can't go on.
    pub waits: Waits,
    /// Where its writes land.
    pub writes: Writes,
    /// `st_dev`. Only ever a key to remember refusals by, never a reason to try or not to try:
    /// Btrfs subvolumes differ and still clone.
    pub device: u64,
    /// `st_size` in bytes; 0 for everything but files, and for files that don't know (procfs).
    pub size: u64,
    /// Bytes allocated on disk (`st_blocks` × 512). Less than `size`: there are holes.
    pub allocated: u64,
    /// `st_blksize` in bytes: cloned ranges are aligned to it.
    pub block_bytes: u64,
}

impl Endpoint {
    /// Reads the facts of an open descriptor: `fstat(2)`, `F_GETFL`, and for sockets their domain,
    /// type and protocol. Never blocks.
    ///
    /// # Errors
    /// What `fstat(2)`, `fcntl(2)` or `getsockopt(2)` say of the descriptor.
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let fd = fd.as_fd();
        let stat = rustix::fs::fstat(fd)?;
        let flags = rustix::fs::fcntl_getfl(fd)?;
        let kind = kind_of(fd, FileType::from_raw_mode(stat.st_mode))?;
        let waits = if flags.contains(OFlags::NONBLOCK) {
            Waits::Polls
        } else {
            Waits::Blocks
        };
        let writes = match (kind, flags.contains(OFlags::APPEND)) {
            (Kind::File, true) => Writes::Appends,
            _ => Writes::AtOffset,
        };
        Ok(Self::known(kind, waits, writes, &stat))
    }

    /// A regular file that the caller has just opened, neither for appending nor for polling, and
    /// has looked at by `fstat(2)`: no system call. The type is that of `rustix`, whose
    /// [`Errno`] is in this crate's face too.
    ///
    /// The size and the allocation must be of now: for a sink that was emptied after it was looked
    /// at, set [`size`](Self::size) to 0, or it passes for one that has old bytes.
    ///
    /// # Panics
    /// Where `stat` is not of a regular file.
    pub fn of_file(stat: &Stat) -> Self {
        let file_type = FileType::from_raw_mode(stat.st_mode);
        assert!(
            file_type == FileType::RegularFile,
            "not a regular file but a {file_type:?}"
        );
        Self::known(Kind::File, Waits::Blocks, Writes::AtOffset, stat)
    }

    fn known(kind: Kind, waits: Waits, writes: Writes, stat: &Stat) -> Self {
        Self {
            kind,
            waits,
            writes,
            device: stat.st_dev,
            size: if kind == Kind::File {
                stat.st_size.max(0).cast_unsigned()
            } else {
                0
            },
            allocated: stat.st_blocks.max(0).cast_unsigned() * 512,
            block_bytes: u64::try_from(stat.st_blksize).unwrap_or(0),
        }
    }

    /// An endpoint that is known by its kind alone, as for planning without a descriptor: it polls,
    /// writes at offsets, and as a file it has 1 MiB without holes.
    pub const fn sample(kind: Kind) -> Self {
        let size = if matches!(kind, Kind::File) {
            1 << 20
        } else {
            0
        };
        Self {
            kind,
            waits: Waits::Polls,
            writes: Writes::AtOffset,
            device: 0,
            size,
            allocated: size,
            block_bytes: 4096,
        }
    }
}

fn kind_of(fd: BorrowedFd<'_>, file_type: FileType) -> Result<Kind, Errno> {
    Ok(match file_type {
        FileType::RegularFile => Kind::File,
        FileType::BlockDevice => Kind::Block,
        FileType::CharacterDevice => Kind::Char,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => socket_kind(fd)?,
        _ => Kind::Other,
    })
}

fn socket_kind(fd: BorrowedFd<'_>) -> Result<Kind, Errno> {
    if rustix::net::sockopt::socket_type(fd)? != SocketType::STREAM {
        return Ok(Kind::Other);
    }
    Ok(match rustix::net::sockopt::socket_domain(fd)? {
        AddressFamily::UNIX => Kind::Unix,
        AddressFamily::INET | AddressFamily::INET6 => {
            if sys::tcp_ulp_is_tls(fd) {
                Kind::TcpKernelTls
            } else {
                Kind::Tcp
            }
        }
        _ => Kind::Other,
    })
}

/// How much a source owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// This many bytes; fewer are an error ([`crate::Fault::Truncated`]).
    Exactly(u64),
    /// All until the source says that it ended.
    ToEnd,
}

/// Where bytes come from: a descriptor, what it is, and the range it owes.
///
/// `F` is whatever holds the descriptor; the machine itself never touches it, so its tests use
/// `()`.
#[derive(Clone, Copy, Debug)]
pub struct Source<F> {
    /// The descriptor.
    pub fd: F,
    /// What it is.
    pub end: Endpoint,
    /// Offset of the first byte; meaningless for streams.
    pub from: u64,
    /// How much is owed from there.
    pub owed: Owed,
}

impl Source<()> {
    /// A source that is known by its kind alone, whole: for planning without a descriptor.
    pub const fn sample(kind: Kind) -> Self {
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

impl<F: AsFd> Source<F> {
    /// All of a file from its beginning (as long as it is now), or a stream until it ends.
    ///
    /// A regular file of size 0, or of a size that stands on no block, is read until it ends:
    /// files in `/proc` and `/sys` say nothing of their content by it. Any other file that grows
    /// meanwhile is moved up to the size it had here.
    ///
    /// # Errors
    /// As [`Endpoint::of`].
    pub fn whole(fd: F) -> Result<Self, Errno> {
        let end = Endpoint::of(&fd)?;
        Ok(Self::of(fd, end))
    }

    /// The same as [`whole`](Self::whole) of a descriptor that was looked at just before. One
    /// system call where `end` is a file of a size that stands on no block, none otherwise.
    pub fn of(fd: F, end: Endpoint) -> Self {
        let owed = if end.size > 0 && !is_mere_claim(&fd, &end) {
            Owed::Exactly(end.size)
        } else {
            Owed::ToEnd
        };
        Self {
            fd,
            end,
            from: 0,
            owed,
        }
    }

    /// Exactly `len` bytes: of a file or block device from `from` on, of a stream the next ones.
    ///
    /// # Errors
    /// As [`Endpoint::of`]; `EOVERFLOW` where the range ends beyond 2⁶³ − 1, as no file can.
    pub fn range(fd: F, from: u64, len: u64) -> Result<Self, Errno> {
        let end = Endpoint::of(&fd)?;
        Self::range_of(fd, end, from, len)
    }

    /// The same of something that was looked at before. Of a file nothing is believed but what
    /// can't change while it is open.
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

/// Where bytes go: a descriptor, what it is, and where the first byte lands.
#[derive(Clone, Copy, Debug)]
pub struct Sink<F> {
    /// The descriptor.
    pub fd: F,
    /// What it is.
    pub end: Endpoint,
    /// Offset of the first byte; meaningless for streams and files opened with `O_APPEND`.
    pub to: u64,
}

impl Sink<()> {
    /// A sink that is known by its kind alone, a file being empty: for planning without a
    /// descriptor.
    pub const fn sample(kind: Kind) -> Self {
        let mut end = Endpoint::sample(kind);
        (end.size, end.allocated) = (0, 0);
        Self { fd: (), end, to: 0 }
    }
}

impl<F: AsFd> Sink<F> {
    /// The beginning of a file, or a stream.
    ///
    /// # Errors
    /// As [`Endpoint::of`].
    pub fn new(fd: F) -> Result<Self, Errno> {
        Self::at(fd, 0)
    }

    /// A file or block device from offset `to` on.
    ///
    /// # Errors
    /// As [`Endpoint::of`]; `EOVERFLOW` for an offset beyond 2⁶³ − 1.
    pub fn at(fd: F, to: u64) -> Result<Self, Errno> {
        within_offsets(to, 0)?;
        let end = Endpoint::of(&fd)?;
        Ok(Self { fd, end, to })
    }

    /// The same as [`new`](Self::new) of a descriptor that was looked at just before. No system
    /// call.
    pub fn of(fd: F, end: Endpoint) -> Self {
        Self { fd, end, to: 0 }
    }
}

impl<F> Sink<F> {
    /// Whether what is skipped is a hole: in a regular file that has nothing yet where the bytes
    /// go. Elsewhere old bytes would shine through.
    pub(crate) fn takes_holes(&self) -> bool {
        let end = &self.end;
        end.kind == Kind::File && end.size <= self.to && end.writes == Writes::AtOffset
    }
}

/// QUIRK(size-without-blocks): files in sysfs say 4096, whatever they contain. They have no blocks
/// and yet claim data at their beginning, where a file that is all hole has none.
fn is_mere_claim(fd: impl AsFd, end: &Endpoint) -> bool {
    end.allocated == 0 && rustix::fs::seek(fd, SeekFrom::Data(0)).is_ok_and(|data| data < end.size)
}

fn within_offsets(from: u64, len: u64) -> Result<(), Errno> {
    match from.checked_add(len) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Errno::OVERFLOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_looked_at_is_the_same_without_asking() {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &[7; 100_000]).expect("room");
        file.sync_all().expect("allocated");
        let end = Endpoint::of_file(&rustix::fs::fstat(&file).expect("metadata"));
        assert_eq!(end, Endpoint::of(&file).expect("an endpoint"));
        let (asked, told) = (
            Source::whole(&file).expect("a source"),
            Source::of(&file, end),
        );
        assert_eq!(
            (told.end, told.from, told.owed),
            (asked.end, asked.from, asked.owed)
        );
        let (asked, told) = (Sink::new(&file).expect("a sink"), Sink::of(&file, end));
        assert_eq!((told.end, told.to), (asked.end, asked.to));
    }

    #[test]
    #[should_panic(expected = "not a regular file")]
    fn a_pipe_is_no_file() {
        let (read, _write) = rustix::pipe::pipe().expect("a pipe");
        Endpoint::of_file(&rustix::fs::fstat(read).expect("metadata"));
    }
}
