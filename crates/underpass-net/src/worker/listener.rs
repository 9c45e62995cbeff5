//! The listener of one worker.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::Interest;

use crate::address::PeerAddress;
use crate::connection::transport::Transport;
use crate::connection::worker_state::CLIENTS;
use crate::io::socket::{Registered, register};
use crate::listen::config::{ListenerAccess, ListenerConfig, ListenerIdentity};
use crate::listen::listeners::AssignedSocket;
use crate::tls::acceptor::TlsAcceptor;

/// A socket in a worker's event loop, and the service of its connections.
pub(crate) struct WorkerListener<S> {
    pub(crate) identity: Rc<ListenerIdentity>,
    pub(crate) service: S,
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    /// The group in which its connections are counted.
    pub(crate) group: usize,
    pub(crate) acceptor: Acceptor,
}

impl<S: Clone> WorkerListener<S> {
    /// Registers an assigned socket of `listeners` with the current runtime.
    pub(crate) fn open(
        assigned: AssignedSocket,
        listeners: &[ListenerConfig<S>],
    ) -> io::Result<WorkerListener<S>> {
        let is_apart = |listener: &&ListenerConfig<S>| listener.access != ListenerAccess::Clients;
        let group = match assigned.identity.access {
            ListenerAccess::Clients => CLIENTS,
            ListenerAccess::Operators { .. } => {
                let before = &listeners[..assigned.entry];
                1 + before.iter().filter(is_apart).count()
            }
        };
        Ok(WorkerListener {
            identity: Rc::new(assigned.identity),
            service: listeners[assigned.entry].service.clone(),
            tls: listeners[assigned.entry].tls.clone(),
            group,
            acceptor: Acceptor::open(assigned.socket)?,
        })
    }
}

impl<S> WorkerListener<S> {
    /// Returns whether connections are accepted while the server drains.
    pub(crate) fn stays_while_draining(&self) -> bool {
        matches!(self.identity.access, ListenerAccess::Operators { .. })
    }
}

/// Returns the maximum number of connections in each group of one of `workers`: `connections_max`
/// of clients, and its share of each other listener.
pub(crate) fn group_maxima<S>(
    listeners: &[ListenerConfig<S>],
    connections_max: usize,
    workers: usize,
) -> Vec<usize> {
    let operators = listeners
        .iter()
        .filter_map(|listener| match listener.access {
            ListenerAccess::Clients => None,
            ListenerAccess::Operators { connections_max } => {
                Some(connections_max.div_ceil(workers))
            }
        });
    [connections_max].into_iter().chain(operators).collect()
}

/// A listening socket in a worker's event loop.
pub(crate) struct Acceptor {
    socket: Registered,
    /// Whether the next event is likely a new connection: the last check found none, and no check
    /// has found one whose event is still to come.
    is_news: Cell<bool>,
    has_found: Cell<bool>,
}

impl Acceptor {
    /// Registers a non-blocking listening socket with the current runtime.
    pub(crate) fn open(socket: OwnedFd) -> io::Result<Acceptor> {
        Ok(Acceptor {
            socket: register(&Rc::new(socket), Interest::READABLE)?,
            is_news: Cell::new(true),
            has_found: Cell::new(false),
        })
    }

    /// Accepts the next connection. Polls before it accepts: `accept4` creates a socket first, so a
    /// call in vain costs ten times as much as a poll.
    pub(crate) fn poll_accept(
        &self,
        task: &mut Context<'_>,
    ) -> Poll<io::Result<(Transport, PeerAddress)>> {
        loop {
            let mut readable = ready!(self.socket.poll_read_ready(task))?;
            let looks = !self.is_news.take();
            if looks && !self.has_waiting()? {
                readable.clear_ready();
            } else if let Ok(accepted) = readable.try_io(|_| self.accept()) {
                self.has_found.set(looks);
                return Poll::Ready(accepted);
            }
            self.is_news.set(!self.has_found.take());
        }
    }

    /// Ready when a connection waits to be accepted.
    pub(crate) fn poll_waiting(&self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut readable = ready!(self.socket.poll_read_ready(task))?;
            match self.has_waiting()? {
                false => readable.clear_ready(),
                true => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Polls the socket: the event loop does not know that the last connection was accepted.
    fn has_waiting(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(self.socket.get_ref(), PollFlags::IN)];
        Ok(poll(&mut asked, Some(&Timespec::default()))? > 0)
    }

    /// Accepts the next connection; `WouldBlock` if none waits. Bypasses the event loop, which
    /// may not have reported the last ones yet.
    pub(crate) fn accept(&self) -> io::Result<(Transport, PeerAddress)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, address) = acceptfrom_with(self.socket.get_ref(), flags)?;
        let peer = match address.map(SocketAddr::try_from) {
            Some(Ok(address)) => PeerAddress::from(address),
            _ => PeerAddress::Unix,
        };
        Ok((Transport::plain(socket), peer))
    }
}
