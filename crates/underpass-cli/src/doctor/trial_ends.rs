//! The ends of trials: files, and local connections of which a thread serves the other end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;

use super::sample::{self, SampleFile};
use crate::loopback::tcp_pair;

/// The source of the bytes of a trial.
#[derive(Clone, Debug)]
pub(super) enum TrialSource {
    File(SampleFile),
    Stream(StreamKind, Arc<[u8]>),
}

/// The destination of the bytes of a trial.
#[derive(Clone, Debug)]
pub(super) enum TrialSink {
    /// A private file in this directory.
    Directory(Arc<OwnedFd>),
    Stream(StreamKind),
}

/// The kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StreamKind {
    /// A TCP connection over the loopback interface.
    Tcp,
    /// A pair of Unix sockets.
    Unix,
    /// A pipe.
    Pipe,
}

impl StreamKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Unix => "Unix",
            Self::Pipe => "pipe",
        }
    }

    /// Opens a connection: the end to write to, and the end to read from.
    fn open(self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(match self {
            Self::Tcp => {
                let (one, other) = tcp_pair()?;
                (one.into(), other.into())
            }
            Self::Unix => {
                let (one, other) = UnixStream::pair()?;
                (one.into(), other.into())
            }
            Self::Pipe => {
                let (read, write) = io::pipe()?;
                (write.into(), read.into())
            }
        })
    }

    /// Opens an end from which these bytes can be read, and then end of file.
    pub(super) fn giving(self, bytes: Arc<[u8]>) -> io::Result<OwnedFd> {
        let (write, read) = self.open()?;
        // If the reader closes early, EPIPE or ECONNRESET ends the thread.
        thread::Builder::new().spawn(move || File::from(write).write_all(&bytes))?;
        Ok(read)
    }
}

impl TrialSource {
    pub(super) fn bytes(&self) -> &Arc<[u8]> {
        match self {
            Self::File(original) => &original.bytes,
            Self::Stream(_, bytes) => bytes,
        }
    }
}

impl TrialSink {
    /// Opens an end that accepts bytes. What reads them back returns all, up to one more than
    /// expected, once the end is closed.
    pub(super) fn open(&self, expected: usize) -> io::Result<(OwnedFd, ReadBack)> {
        match self {
            Self::Directory(directory) => {
                let file = sample::private_file(directory.as_fd())?;
                let end = file.try_clone()?.into();
                let read_back = move || Ok(sample::read_all(file.as_fd(), expected)?);
                Ok((end, Box::new(read_back)))
            }
            Self::Stream(stream) => {
                let (end, read) = stream.open()?;
                let collector = thread::Builder::new().spawn(move || {
                    let mut bytes = Vec::new();
                    let mut read = File::from(read).take(expected as u64 + 1);
                    read.read_to_end(&mut bytes).map(|_| bytes)
                })?;
                let read_back = move || collector.join().unwrap_or(Err(Errno::IO.into()));
                Ok((end, Box::new(read_back)))
            }
        }
    }
}

/// Returns the bytes that arrived.
pub(super) type ReadBack = Box<dyn FnOnce() -> io::Result<Vec<u8>>>;
