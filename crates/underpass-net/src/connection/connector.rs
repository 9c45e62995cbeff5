//! Connections that this process opens.

use std::cell::{Cell, RefCell};
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
use underpass::{Kernel, Policy};

use crate::connection::Connection;
use crate::connection::deadline::Deadline;
use crate::connection::set::ConnectionSet;
use crate::connection::socket::PlainSocket;
use crate::connection::transport::Transport;
use crate::connection::wait::{BoundedWait, PeerActivity, WhileDraining};
use crate::connection::worker_state::WorkerState;
use crate::error::ConnectionError;
use crate::limits::{CONNECT_BACKOFF, ConnectionLimits};
use crate::listen::address::{Address, PeerAddress};
use crate::listen::tcp::set_stream_options;
use crate::log_throttle::LogThrottle;
use crate::shutdown::switch::Shutdown;

/// Opens connections of the same type as those that a server accepts. It belongs to one thread with
/// a current-thread runtime of Tokio's that has I/O and time enabled.
#[derive(Clone)]
pub struct Connector {
    worker: Rc<WorkerState>,
}

impl Connector {
    /// A connector for a program that is no server. Asks the kernel what it can do, in a few calls.
    pub fn new(policy: Policy, limits: &ConnectionLimits) -> Connector {
        Connector {
            worker: Rc::new(WorkerState {
                limits: limits.clone(),
                connections: Rc::new(ConnectionSet::new([usize::MAX])),
                kernel: Kernel::probe(),
                policy,
                sending: Cell::new(0),
                spare_input: RefCell::default(),
                shared: Arc::default(),
                shutdown: Shutdown::new(),
                rejections: LogThrottle::default(),
            }),
        }
    }

    /// A connector of the worker that `connection` is on: what it opens ends with the server, and
    /// is used in the task of that connection.
    pub fn of(connection: &Connection) -> Connector {
        Connector {
            worker: Rc::clone(&connection.worker),
        }
    }

    /// Connects within `timeout`. Cancel safe: nothing is left of an attempt that is dropped.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`; `Connect` with the reason, such as `ConnectionRefused`.
    pub async fn connect(
        &self,
        to: &Address,
        timeout: Duration,
    ) -> Result<Connection, ConnectionError> {
        let mut deadline = Deadline::new(timeout);
        let wait = BoundedWait {
            deadline: &mut deadline,
            connections: &self.worker.connections,
            while_draining: WhileDraining::Continues,
            activity: PeerActivity::Received,
        };
        let socket = wait.until(self.open(to)).await?;
        let transport = Transport::Plain(socket.map_err(ConnectionError::Connect)?);
        let peer = match to {
            Address::Tcp(address) => PeerAddress::Tcp(*address),
            Address::Unix(_) => PeerAddress::Unix,
        };
        let mut connection = Connection::new(transport, peer, Rc::clone(&self.worker));
        connection.activity = PeerActivity::Received;
        Ok(connection)
    }

    async fn open(&self, to: &Address) -> io::Result<PlainSocket> {
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
            set_stream_options(&socket, &self.worker.limits)?;
        }
        loop {
            match connect(&socket, &address) {
                Ok(()) => return Ok(PlainSocket::new(socket)),
                Err(Errno::INPROGRESS) => break,
                // unix(7): the queue of the listener is full, and nothing reports room in it.
                Err(Errno::AGAIN) => tokio::time::sleep(CONNECT_BACKOFF).await,
                Err(errno) => return Err(errno.into()),
            }
        }
        let socket = PlainSocket::new(socket);
        socket.readiness(Interest::WRITABLE).await?;
        sockopt::socket_error(&socket)??;
        Ok(socket)
    }
}
