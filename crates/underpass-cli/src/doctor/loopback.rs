//! Local connections for trials: the trial has one end, a thread serves the other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

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

    /// Opens an end that accepts bytes, and collects them until it is closed.
    pub(super) fn taking(self, bytes_max: usize) -> io::Result<(OwnedFd, Collected)> {
        let (write, read) = self.open()?;
        let collect = move || {
            let mut bytes = Vec::new();
            let read = File::from(read)
                .take(bytes_max as u64 + 1)
                .read_to_end(&mut bytes);
            read.map(|_| bytes)
        };
        Ok((write, thread::Builder::new().spawn(collect)?))
    }
}

/// The bytes that arrived.
pub(super) type Collected = JoinHandle<io::Result<Vec<u8>>>;

/// Opens a TCP connection of this process to itself.
pub(super) fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let any = |ip| SocketAddr::new(ip, 0);
    let ways = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].map(any);
    let listener = TcpListener::bind(&ways[..])?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, from) = listener.accept()?;
    if from == ours.local_addr()? {
        Ok((ours, theirs))
    } else {
        let other = "another process connected first";
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, other))
    }
}
