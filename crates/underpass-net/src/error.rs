//! Errors: of a server ([`Error`]) and of one connection ([`ConnectionError`]).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::listen::address::ListenAt;

/// A server could not start, reload or hand over.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another process listens on the address.
    AddressTaken {
        /// The requested address.
        address: SocketAddr,
    },
    /// No interface of this machine has the address.
    AddressNotHere {
        /// The requested address.
        address: SocketAddr,
    },
    /// The port needs a privilege that the process does not have.
    PortForbidden {
        /// The requested address.
        address: SocketAddr,
    },
    /// Another call failed while opening the listener.
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system call.
        call: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// Two limits contradict each other.
    Contradiction {
        /// Which ones, and what to change.
        what: &'static str,
    },
    /// Workers could not be confined as required.
    Confine {
        /// The reason.
        why: String,
    },
    /// The process could not switch to the requested user.
    User {
        /// The requested user.
        name: String,
        /// The reason.
        why: String,
    },
    /// Another process listens on the Unix socket.
    PathTaken {
        /// The socket's file.
        path: PathBuf,
    },
    /// The path of the Unix socket is a file that is not a socket. It is left alone.
    NoSocketThere {
        /// The file.
        path: PathBuf,
    },
    /// Another call failed while opening the Unix listener.
    Path {
        /// The socket's file.
        path: PathBuf,
        /// The system call.
        call: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The service manager did not pass such a socket.
    NotActivated {
        /// The requested address.
        at: ListenAt,
        /// The names of the sockets that it passed.
        names: Vec<String>,
    },
    /// An inherited socket cannot be used.
    Inherited {
        /// Which one.
        what: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// The same address is listed twice.
    ListenTwice {
        /// The address.
        at: ListenAt,
    },
    /// No address for clients is listed.
    NowhereToListen,
    /// The server is stopping, or its successor has taken over.
    Stopping,
    /// Too many earlier generations are still sending responses.
    Generations {
        /// How many there are.
        count: usize,
    },
    /// The successor did not become ready. This server goes on.
    Upgrade {
        /// The reason.
        why: String,
    },
    /// A worker's thread or runtime could not be created, or signals cannot be watched.
    Worker {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AddressTaken { address } => write!(
                f,
                "cannot listen on {address}: port {} is in use by another process",
                address.port()
            ),
            Error::AddressNotHere { address } => write!(
                f,
                "cannot listen on {address}: this machine has no such address"
            ),
            Error::PortForbidden { address } => write!(
                f,
                "cannot listen on {address}: port {} needs a privilege that this process lacks",
                address.port()
            ),
            Error::Listen {
                address,
                call,
                source,
            } => write!(f, "cannot listen on {address}: {call}: {source}"),
            Error::PathTaken { path } => write!(
                f,
                "cannot listen on {}: another process listens there",
                path.display()
            ),
            Error::NoSocketThere { path } => write!(
                f,
                "cannot listen on {}: the file exists and is not a socket",
                path.display()
            ),
            Error::Path { path, call, source } => {
                write!(f, "cannot listen on {}: {call}: {source}", path.display())
            }
            Error::NotActivated { at, names } if names.is_empty() => {
                write!(
                    f,
                    "cannot listen on {at}: no socket was passed to this process"
                )
            }
            Error::NotActivated { at, names } => write!(
                f,
                "cannot listen on {at}: the sockets passed to this process are named {}",
                names.join(", ")
            ),
            Error::Inherited { what, source } => {
                write!(f, "cannot use the inherited socket of {what}: {source}")
            }
            Error::ListenTwice { at } => write!(f, "cannot listen on {at} twice"),
            Error::NowhereToListen => f.write_str("no address to listen on is given"),
            Error::Stopping => f.write_str("the server is stopping"),
            Error::Generations { count } => write!(
                f,
                "{count} earlier configurations are still sending responses"
            ),
            Error::Upgrade { why } => write!(f, "the new process did not take over: {why}"),
            Error::Contradiction { what } => write!(f, "the limits contradict each other: {what}"),
            Error::Confine { why } => write!(f, "cannot confine the workers: {why}"),
            Error::User { name, why } => write!(f, "cannot switch to user {name}: {why}"),
            Error::Worker { doing, source } => write!(f, "cannot {doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Listen { source, .. }
            | Error::Path { source, .. }
            | Error::Inherited { source, .. }
            | Error::Worker { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// Whether this address could not be listened on.
    pub fn is_about(&self, at: &ListenAt) -> bool {
        match (self, at) {
            (
                Error::AddressTaken { address }
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

/// An operation on a connection failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The deadline passed.
    TimedOut,
    /// The peer is slower than `rate_min`.
    TooSlow,
    /// The server stops; the wait has been given up.
    Stopped,
    /// The peer is gone: it has reset or closed the connection, or is unreachable.
    PeerGone,
    /// The peer sent more than the protocol has room for.
    InputFull,
    /// The mover failed: the file shrank, could not be read, or the socket failed.
    Move(underpass::Error),
    /// Reading from the socket failed for another reason.
    Read(io::Error),
    /// A connection could not be opened.
    Connect(io::Error),
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::TimedOut => f.write_str("the deadline passed"),
            ConnectionError::TooSlow => f.write_str("the peer is slower than rate-min"),
            ConnectionError::Stopped => f.write_str("the server stops"),
            ConnectionError::PeerGone => f.write_str("the peer is gone"),
            ConnectionError::InputFull => f.write_str("the peer sent more than input-bytes-max"),
            ConnectionError::Move(error) => error.fmt(f),
            ConnectionError::Read(error) => write!(f, "recv: {error}"),
            ConnectionError::Connect(error) => write!(f, "connect: {error}"),
        }
    }
}

impl std::error::Error for ConnectionError {}
