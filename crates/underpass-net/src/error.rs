//! Errors: of a server ([`Error`]) and of one connection ([`ConnectionError`]).

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::address::ListenAt;

/// An error that prevents a server from starting, reloading or handing over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process listens on the address.
    #[error("cannot listen on {address}: port {} is in use by another process", address.port())]
    AddressTaken {
        /// The requested address.
        address: SocketAddr,
    },
    /// This server listens on the port already, on an address that includes or overlaps it.
    #[error("cannot listen on {address}: this server itself listens on port {}", address.port())]
    AddressOurs {
        /// The requested address.
        address: SocketAddr,
    },
    /// No interface of this machine has the address.
    #[error("cannot listen on {address}: this machine has no such address")]
    AddressNotHere {
        /// The requested address.
        address: SocketAddr,
    },
    /// The port needs a privilege that the process does not have.
    #[error(
        "cannot listen on {address}: port {} needs a privilege that this process lacks",
        address.port()
    )]
    PortForbidden {
        /// The requested address.
        address: SocketAddr,
    },
    /// Another call failed while opening the listener.
    #[error("cannot listen on {address}: {call}: {source}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system call.
        call: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// Two limits contradict each other.
    #[error("the limits contradict each other: {what}")]
    Contradiction {
        /// The limits, and the change to make.
        what: &'static str,
    },
    /// Workers could not be confined as required.
    #[error("cannot confine the workers: {why}")]
    Confine {
        /// The reason.
        why: String,
    },
    /// The process could not switch to the requested user.
    #[error("cannot switch to user {name}: {why}")]
    User {
        /// The requested user.
        name: String,
        /// The reason.
        why: String,
    },
    /// Another process listens on the Unix socket.
    #[error("cannot listen on {}: another process listens there", path.display())]
    PathTaken {
        /// The socket's file.
        path: PathBuf,
    },
    /// The path of the Unix socket is a file that is not a socket. It is left alone.
    #[error("cannot listen on {}: the file exists and is not a socket", path.display())]
    NoSocketThere {
        /// The file.
        path: PathBuf,
    },
    /// Another call failed while opening the Unix listener.
    #[error("cannot listen on {}: {call}: {source}", path.display())]
    Path {
        /// The socket's file.
        path: PathBuf,
        /// The system call.
        call: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The service manager did not pass such a socket.
    #[error("cannot listen on {at}: {}", passed(names))]
    NotActivated {
        /// The requested address.
        at: ListenAt,
        /// The names of the sockets that it passed.
        names: Vec<String>,
    },
    /// The service manager passed sockets that no listener uses.
    #[error(
        "the service manager has passed sockets that nothing listens on: {}; listen on \
         `systemd` or `systemd:NAME`, too",
        names.join(", ")
    )]
    UnusedSockets {
        /// Their names.
        names: Vec<String>,
    },
    /// An inherited socket cannot be used.
    #[error("cannot use the inherited socket of {what}: {source}")]
    Inherited {
        /// The name of the socket.
        what: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// The same address is listed twice.
    #[error("cannot listen on {at} twice")]
    ListenTwice {
        /// The address.
        at: ListenAt,
    },
    /// No address for clients is listed.
    #[error("no address to listen on is given")]
    NowhereToListen,
    /// The server is stopping, or its successor has taken over.
    #[error("the server is stopping")]
    Stopping,
    /// Too many earlier generations are still sending responses.
    #[error("{count} earlier configurations are still sending responses")]
    Generations {
        /// The number of earlier generations.
        count: usize,
    },
    /// The successor did not become ready. This server continues.
    #[error("the new process did not take over: {why}")]
    Upgrade {
        /// The reason.
        why: String,
    },
    /// A worker's thread or runtime could not be created, or signals cannot be watched.
    #[error("cannot {doing}: {source}")]
    Worker {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Formats the names of the sockets that the service manager passed.
fn passed(names: &[String]) -> String {
    match names {
        [] => "no socket was passed to this process".to_owned(),
        _ => format!(
            "the sockets passed to this process are named {}",
            names.join(", ")
        ),
    }
}

impl Error {
    /// Returns whether the error means that this address could not be listened on.
    pub fn is_about(&self, at: &ListenAt) -> bool {
        match (self, at) {
            (
                Error::AddressTaken { address }
                | Error::AddressOurs { address }
                | Error::AddressNotHere { address }
                | Error::PortForbidden { address }
                | Error::Listen { address, .. },
                ListenAt::Tcp(asked),
            ) => address == asked,
            (
                Error::PathTaken { path }
                | Error::NoSocketThere { path }
                | Error::Path { path, .. },
                ListenAt::Unix { path: asked, .. },
            ) => path == asked,
            (Error::ListenTwice { at: twice }, at) => twice == at,
            _ => false,
        }
    }
}

/// An error of an operation on a connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The deadline passed.
    #[error("the deadline passed")]
    TimedOut,
    /// The peer is slower than `rate_min`.
    #[error("the peer is slower than rate-min")]
    TooSlow,
    /// The server stopped during the wait.
    #[error("the server stops")]
    Stopped,
    /// The connection waited for a request, and is closed to make room for another one.
    #[error("closed to make room for another connection")]
    Evicted,
    /// The peer is gone: it has reset or closed the connection, or is unreachable.
    #[error("the peer is gone")]
    PeerGone,
    /// The peer sent more than the protocol has room for.
    #[error("the peer sent more input than a connection has room for")]
    InputFull,
    /// The mover failed: the file shrank, could not be read, or the socket failed.
    #[error("{0}")]
    Move(underpass::Error),
    /// Reading from the socket failed for another reason.
    #[error("recv: {0}")]
    Read(io::Error),
    /// A connection could not be opened.
    #[error("connect: {0}")]
    Connect(io::Error),
}
