//! A listener as one worker has it.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::listen::config::ListenerAccess;
use crate::listen::identity::ListenerIdentity;
use crate::worker::acceptor::Acceptor;

/// A listener on its way to the thread of a worker.
pub(crate) struct PreparedListener<S> {
    pub(crate) identity: ListenerIdentity,
    pub(crate) service: S,
    /// The group of connections that its connections are counted in.
    pub(crate) group: usize,
    pub(crate) socket: OwnedFd,
}

/// A socket in a worker's event loop, and what its connections are served with.
pub(crate) struct WorkerListener<S> {
    pub(crate) identity: Rc<ListenerIdentity>,
    pub(crate) service: S,
    pub(crate) group: usize,
    pub(crate) acceptor: Acceptor,
}

impl<S> PreparedListener<S> {
    /// Takes the socket into the runtime that this is called in.
    pub(crate) fn open(self) -> io::Result<WorkerListener<S>> {
        Ok(WorkerListener {
            identity: Rc::new(self.identity),
            service: self.service,
            group: self.group,
            acceptor: Acceptor::open(self.socket)?,
        })
    }
}

impl<S> WorkerListener<S> {
    /// Whether connections are accepted while the server drains.
    pub(crate) fn stays_while_draining(&self) -> bool {
        matches!(self.identity.access, ListenerAccess::Operators { .. })
    }
}
