//! Connections that this process opens.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    sockopt,
};
use tokio::io::Interest;
use underpass::Policy;

use crate::address::{Address, PeerAddress};
use crate::connection::Connection;
use crate::connection::transport::Transport;
use crate::connection::wait::{BoundedWait, PeerActivity, WhileDraining};
use crate::connection::worker_state::{ConnectionSet, WorkerState};
use crate::error::ConnectionError;
use crate::limits::{CONNECT_BACKOFF, ConnectionLimits};
use crate::listen::tcp::set_stream_options;
use crate::shutdown::Shutdown;

/// Opens connections of the same type as those that a server accepts. It belongs to one thread with
/// a current-thread Tokio runtime that has I/O and time enabled.
#[derive(Clone)]
pub struct Connector {
    worker: Rc<WorkerState>,
}

impl Connector {
    /// Creates a connector outside a server. Probes the kernel's features with a few calls.
    pub fn new(policy: Policy, limits: &ConnectionLimits) -> Connector {
        Connector {
            worker: Rc::new(WorkerState::new(
                limits.clone(),
                policy,
                ConnectionSet::new([usize::MAX], usize::MAX),
                Arc::default(),
                Shutdown::new(),
            )),
        }
    }

    /// Creates a connector of the worker that `connection` is on: the connections it opens end with
    /// the server, and are used in the task of that connection.
    pub fn of(connection: &Connection) -> Connector {
        Connector {
            worker: Rc::clone(connection.worker()),
        }
    }

    /// Connects within `timeout`. Cancel safe: dropping it ends the attempt.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`; `Connect` with the reason, such as `ConnectionRefused`.
    pub async fn connect(
        &self,
        to: &Address,
        timeout: Duration,
    ) -> Result<Connection, ConnectionError> {
        let mut wait = BoundedWait::new(timeout, PeerActivity::Received);
        let (connections, open) = (&self.worker.connections, self.open(to));
        let opened = wait
            .until(connections, WhileDraining::Continues, open)
            .await?;
        let transport = opened.map_err(ConnectionError::Connect)?;
        let peer = match to {
            Address::Tcp(address) => PeerAddress::Tcp(*address),
            Address::Unix(_) => PeerAddress::Unix,
        };
        Ok(Connection::new(
            transport,
            peer,
            Rc::clone(&self.worker),
            wait,
        ))
    }

    async fn open(&self, to: &Address) -> io::Result<Transport> {
        let (family, address) = match to {
            Address::Tcp(address) if address.is_ipv4() => (AddressFamily::INET, (*address).into()),
            Address::Tcp(address) => (AddressFamily::INET6, (*address).into()),
            Address::Unix(path) => {
                let address = SocketAddrUnix::new(path)?;
                (AddressFamily::UNIX, SocketAddrAny::from(address))
            }
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if let Address::Tcp(_) = to {
            set_stream_options(&socket, self.worker.limits.rate_max)?;
        }
        loop {
            match connect(&socket, &address) {
                Ok(()) => return Ok(Transport::plain(socket)),
                Err(Errno::INPROGRESS) => break,
                // unix(7): the listener's queue is full, and no event reports room in it.
                Err(Errno::AGAIN) => tokio::time::sleep(CONNECT_BACKOFF).await,
                Err(errno) => return Err(errno.into()),
            }
        }
        let socket = Transport::plain(socket);
        socket.readiness(Interest::WRITABLE).await?;
        sockopt::socket_error(&socket)??;
        Ok(socket)
    }
}
