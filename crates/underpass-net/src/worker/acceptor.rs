//! A listening socket in the event loop of a worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::Interest;

use crate::connection::socket::{PlainSocket, Registered, register};
use crate::listen::address::PeerAddress;

/// A listening socket in a worker's event loop.
pub(crate) struct Acceptor(Registered);

impl Acceptor {
    /// Takes a listening socket, which does not block, into the runtime that this is called in.
    pub(crate) fn open(socket: OwnedFd) -> io::Result<Acceptor> {
        register(&Rc::new(socket), Interest::READABLE).map(Acceptor)
    }

    pub(crate) fn poll_accept(
        &self,
        task: &mut Context<'_>,
    ) -> Poll<io::Result<(PlainSocket, PeerAddress)>> {
        loop {
            let mut readable = ready!(self.0.poll_read_ready(task))?;
            if let Ok(accepted) = readable.try_io(|socket| accept(socket.get_ref())) {
                return Poll::Ready(accepted);
            }
        }
    }

    /// The next connection, `WouldBlock` when there is none. Asks the kernel itself: an event loop
    /// may not have heard of the last ones yet.
    pub(crate) fn accept(&self) -> io::Result<(PlainSocket, PeerAddress)> {
        accept(self.0.get_ref())
    }
}

fn accept(listener: &OwnedFd) -> io::Result<(PlainSocket, PeerAddress)> {
    let (socket, address) =
        acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => PeerAddress::Tcp(address),
        _ => PeerAddress::Unix,
    };
    Ok((PlainSocket::new(socket), peer))
}
