//! A listener as one worker has it.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use crate::listen::config::ListenerAccess;
use crate::listen::identity::ListenerIdentity;
use crate::listen::unix::SocketFile;
use crate::worker::acceptor::Acceptor;

/// A listener on its way to the thread of a worker.
pub(crate) struct PreparedListener<S> {
    pub(crate) identity: ListenerIdentity,
    pub(crate) service: S,
    /// The group of connections that its connections are counted in.
    pub(crate) group: usize,
    pub(crate) socket: OwnedFd,
    pub(crate) file: Option<Arc<SocketFile>>,
}

/// A socket in a worker's event loop, and what its connections are served with.
pub(crate) struct WorkerListener<S> {
    pub(crate) identity: Rc<ListenerIdentity>,
    pub(crate) service: S,
    pub(crate) group: usize,
    pub(crate) acceptor: Acceptor,
    /// The socket's file stays as long as somebody accepts there.
    _file: Option<Arc<SocketFile>>,
}

impl<S> PreparedListener<S> {
    /// Takes the socket into the runtime that this is called in.
    pub(crate) fn open(self) -> io::Result<WorkerListener<S>> {
        Ok(WorkerListener {
            identity: Rc::new(self.identity),
            service: self.service,
            group: self.group,
            acceptor: Acceptor::open(self.socket)?,
            _file: self.file,
        })
    }
}

impl<S> WorkerListener<S> {
    /// Whether connections are accepted while the server drains.
    pub(crate) fn stays_while_draining(&self) -> bool {
        matches!(self.identity.access, ListenerAccess::Operators { .. })
    }
}
