//! The two kinds of connections and of listeners, TCP and Unix, as one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, Ready};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use underpass::drive::tokio::{Turn, forecast, turn};
use underpass::{Forecast, Host, Outbox, Policy};

use crate::address::Peer;

/// A connection.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Waits until there may be something of `interest`.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Socket::Tcp(socket) => socket.ready(interest).await,
            Socket::Unix(socket) => socket.ready(interest).await,
        }
    }

    /// Keeps nothing between polls: another future goes on where one was dropped.
    pub(crate) async fn read_buf(&mut self, room: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read_buf(room).await,
            Socket::Unix(socket) => socket.read_buf(room).await,
        }
    }

    pub(crate) async fn turn(
        &self,
        outbox: &mut Outbox,
        host: &Host,
        policy: &Policy,
        bytes_max: u64,
    ) -> Result<Turn, underpass::Error> {
        match self {
            Socket::Tcp(socket) => turn(outbox, socket, host, policy, bytes_max).await,
            Socket::Unix(socket) => turn(outbox, socket, host, policy, bytes_max).await,
        }
    }

    pub(crate) fn forecast(
        &self,
        outbox: &Outbox,
        host: &Host,
        policy: &Policy,
        longer: u64,
    ) -> Option<Forecast> {
        match self {
            Socket::Tcp(socket) => forecast(outbox, socket, host, policy, longer),
            Socket::Unix(socket) => forecast(outbox, socket, host, policy, longer),
        }
    }

    /// Ends our side; the peer reads the end of what it got.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown().await,
            Socket::Unix(socket) => socket.shutdown().await,
        }
    }

    /// Has closing reset the connection. A Unix socket has no reset: its peer reads an early end.
    pub(crate) fn set_reset(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => SockRef::from(socket).set_linger(Some(Duration::ZERO)),
            Socket::Unix(_) => Ok(()),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

/// A listener in a worker's event loop.
pub(crate) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    /// Takes a listening socket into the runtime that this is called in.
    pub(crate) fn open(socket: OwnedFd) -> io::Result<Door> {
        let domain = SockRef::from(&socket).domain()?;
        Ok(match domain == socket2::Domain::UNIX {
            true => Door::Unix(UnixListener::from_std(socket.into())?),
            false => Door::Tcp(TcpListener::from_std(socket.into())?),
        })
    }

    pub(crate) fn poll_accept(&self, task: &mut Context<'_>) -> Poll<io::Result<(Socket, Peer)>> {
        match self {
            Door::Tcp(door) => door
                .poll_accept(task)
                .map_ok(|(socket, peer)| (Socket::Tcp(socket), Peer::Tcp(peer))),
            Door::Unix(door) => door
                .poll_accept(task)
                .map_ok(|(socket, _)| (Socket::Unix(socket), Peer::Unix)),
        }
    }

    /// The listener outside of the event loop, to be emptied.
    pub(crate) fn into_queue(self) -> io::Result<Queue> {
        Ok(match self {
            Door::Tcp(door) => Queue::Tcp(door.into_std()?),
            Door::Unix(door) => Queue::Unix(door.into_std()?),
        })
    }
}

/// The connections that the kernel has completed and nobody has taken.
pub(crate) enum Queue {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Queue {
    /// The next one, `WouldBlock` when there is none. It asks the kernel itself: an event loop
    /// may not have heard of the last ones yet.
    pub(crate) fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Queue::Tcp(queue) => {
                let (socket, peer) = queue.accept()?;
                socket.set_nonblocking(true)?;
                Ok((Socket::Tcp(TcpStream::from_std(socket)?), Peer::Tcp(peer)))
            }
            Queue::Unix(queue) => {
                let (socket, _) = queue.accept()?;
                socket.set_nonblocking(true)?;
                Ok((Socket::Unix(UnixStream::from_std(socket)?), Peer::Unix))
            }
        }
    }
}
