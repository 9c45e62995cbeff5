//! Queries the kernel about open descriptors.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{AddressFamily, SocketType};

use crate::outbox::FileRange;
use crate::shared_file::SharedFile;
use crate::sys::{self, SocketOption};
use crate::vocabulary::endpoint::{
    Endpoint, EndpointKind, Owed, Sink, Source, Waits, Writes, within_offsets,
};

impl Endpoint {
    /// Reads the facts of an open descriptor: `fstat(2)`, `F_GETFL`, and for sockets their domain,
    /// type and protocol. Never blocks.
    ///
    /// # Errors
    /// The error of `fstat(2)`, `fcntl(2)` or `getsockopt(2)`.
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
            (EndpointKind::File, true) => Writes::Appends,
            _ => Writes::AtOffset,
        };
        Ok(Self {
            kind,
            waits,
            writes,
            device: stat.st_dev,
            inode: stat.st_ino,
            size: if kind == EndpointKind::File {
                stat.st_size.max(0).cast_unsigned()
            } else {
                0
            },
            allocated: stat.st_blocks.max(0).cast_unsigned() * 512,
            block_bytes: u64::try_from(stat.st_blksize).unwrap_or(0),
        })
    }
}

impl<F: AsFd> Source<F> {
    /// All of a file from its beginning (up to its current length), or a stream to its end.
    ///
    /// A regular file of size 0, or of a size without allocated blocks, is read to its end: the
    /// size of files in `/proc` and `/sys` says nothing about their content. Any other file that
    /// grows is moved up to its current size.
    ///
    /// # Errors
    /// As [`Endpoint::of`]; `EPROTOTYPE` for a message-oriented socket (datagrams): the part of a
    /// message that a call does not take is lost.
    pub fn whole(fd: F) -> Result<Self, Errno> {
        let end = source_end(&fd)?;
        Ok(Self::of(fd, end))
    }

    /// Does the same as [`whole`](Self::whole) for a descriptor that was just queried. One system
    /// call if `end` is a file whose size has no allocated blocks, none otherwise.
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
    /// As [`whole`](Self::whole); `EOVERFLOW` if the range ends beyond 2⁶³ − 1, as no file can.
    pub fn range(fd: F, from: u64, len: u64) -> Result<Self, Errno> {
        let end = source_end(&fd)?;
        Self::range_of(fd, end, from, len)
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
}

impl FileRange {
    /// Returns the range as the source of a transfer. Makes system calls the first time only.
    ///
    /// # Errors
    /// As [`Source::range`]; `ESPIPE` for anything but a regular file or block device: it has no
    /// ranges, and reading it may block indefinitely.
    pub fn source(&self) -> Result<Source<&SharedFile>, Errno> {
        let end = self.file.end_or(|file| Endpoint::of(file))?;
        if !end.kind.has_offsets() {
            return Err(Errno::SPIPE);
        }
        Source::range_of(&*self.file, end, self.offset, self.len)
    }
}

/// Queries a descriptor for a source: a stream or a file.
pub(crate) fn source_end(fd: impl AsFd) -> Result<Endpoint, Errno> {
    let end = Endpoint::of(&fd)?;
    let is_message = |of: SocketType| of != SocketType::STREAM;
    match end.kind == EndpointKind::Other && socket_type(fd).is_ok_and(is_message) {
        true => Err(Errno::PROTOTYPE),
        false => Ok(end),
    }
}

fn kind_of(fd: BorrowedFd<'_>, file_type: FileType) -> Result<EndpointKind, Errno> {
    Ok(match file_type {
        FileType::RegularFile => EndpointKind::File,
        FileType::BlockDevice => EndpointKind::Block,
        FileType::CharacterDevice => EndpointKind::Char,
        FileType::Fifo => EndpointKind::Pipe,
        FileType::Socket => socket_kind(fd)?,
        _ => EndpointKind::Other,
    })
}

fn socket_kind(fd: BorrowedFd<'_>) -> Result<EndpointKind, Errno> {
    if socket_type(fd)? != SocketType::STREAM {
        return Ok(EndpointKind::Other);
    }
    Ok(match rustix::net::sockopt::socket_domain(fd)? {
        AddressFamily::UNIX => EndpointKind::Unix,
        AddressFamily::INET | AddressFamily::INET6 => {
            let mut name = [0; 16];
            let known = sys::option(fd, SocketOption::UpperProtocol, &mut name);
            if known.is_ok() && name.starts_with(b"tls\0") {
                EndpointKind::TcpKernelTls
            } else {
                EndpointKind::Tcp
            }
        }
        _ => EndpointKind::Other,
    })
}

/// QUIRK(size-without-blocks): files in sysfs report 4096, regardless of their content. They have
/// no blocks and yet claim data at their beginning, unlike a file that is one hole.
fn is_mere_claim(fd: impl AsFd, end: &Endpoint) -> bool {
    end.allocated == 0 && rustix::fs::seek(fd, SeekFrom::Data(0)).is_ok_and(|data| data < end.size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::endpoint::FileStat;

    #[test]
    fn a_file_that_was_looked_at_is_the_same_without_asking() {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &[7; 100_000]).expect("room");
        file.sync_all().expect("allocated");
        let stat = FileStat::of(&file.metadata().expect("metadata")).expect("a regular file");
        let end = Endpoint::of_file(stat);
        assert_eq!(end, Endpoint::of(&file).expect("an endpoint"));
        let (asked, reported) = (
            Source::whole(&file).expect("a source"),
            Source::of(&file, end),
        );
        assert_eq!(
            (reported.end, reported.from, reported.owed),
            (asked.end, asked.from, asked.owed)
        );
        let (asked, reported) = (Sink::new(&file).expect("a sink"), Sink::of(&file, end));
        assert_eq!((reported.end, reported.to), (asked.end, asked.to));
    }

    #[test]
    fn a_folder_is_no_file() {
        let folder = std::fs::metadata("/").expect("metadata");
        assert_eq!(FileStat::of(&folder), None);
    }
}
