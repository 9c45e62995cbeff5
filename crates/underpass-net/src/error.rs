//! What goes wrong: while starting ([`Error`]), and on one connection ([`ConnectionError`]).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::listen::address::ListenAt;

/// A server could not start, or not go on in another way.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else listens on the address.
    AddressTaken {
        /// What was asked for.
        address: SocketAddr,
    },
    /// No interface of this machine has the address.
    AddressNotHere {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The kernel keeps the port for those with more rights.
    PortForbidden {
        /// What was asked for.
        address: SocketAddr,
    },
    /// A call on the way to listening failed otherwise.
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// The system call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Two limits contradict each other.
    Contradiction {
        /// Which, and what to change.
        what: &'static str,
    },
    /// Workers could not be confined as was required.
    Confine {
        /// Why not.
        why: String,
    },
    /// The process could not become the user it should run as.
    User {
        /// Who was asked for.
        name: String,
        /// Why not.
        why: String,
    },
    /// Another process listens on the Unix socket.
    PathTaken {
        /// The socket's file.
        path: PathBuf,
    },
    /// There is a file where the Unix socket should be, and it is no socket. It is left alone.
    NoSocketThere {
        /// The file.
        path: PathBuf,
    },
    /// A call on the way to listening on a Unix socket failed otherwise.
    Path {
        /// The socket's file.
        path: PathBuf,
        /// The system call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The service manager has passed no such socket.
    NotActivated {
        /// What was asked for.
        at: ListenAt,
        /// The names of those that it passed.
        names: Vec<String>,
    },
    /// A socket that was taken over cannot be used.
    Inherited {
        /// Which one.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The same place is named twice.
    ListenTwice {
        /// The place.
        at: ListenAt,
    },
    /// No place is named.
    NowhereToListen,
    /// The server stops, or its successor has taken over: too late for anything else.
    Stopping,
    /// Too many earlier generations still have answers under way.
    Generations {
        /// How many there are.
        count: usize,
    },
    /// The successor did not come up. This server goes on.
    Upgrade {
        /// What happened.
        why: String,
    },
    /// A worker's thread or runtime could not be made, or the signals not be watched.
    Worker {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AddressTaken { address } => write!(
                f,
                "cannot listen on {address}: port {} is taken by another process",
                address.port()
            ),
            Error::AddressNotHere { address } => write!(
                f,
                "cannot listen on {address}: this machine has no such address"
            ),
            Error::PortForbidden { address } => write!(
                f,
                "cannot listen on {address}: port {} needs more rights than this process has",
                address.port()
            ),
            Error::Listen {
                address,
                call,
                source,
            } => write!(f, "cannot listen on {address}: {call}: {source}"),
            Error::PathTaken { path } => write!(
                f,
                "cannot listen on {}: another process does",
                path.display()
            ),
            Error::NoSocketThere { path } => write!(
                f,
                "cannot listen on {}: there is a file that is no socket",
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
                write!(f, "cannot take over the socket of {what}: {source}")
            }
            Error::ListenTwice { at } => write!(f, "cannot listen on {at} twice"),
            Error::NowhereToListen => f.write_str("there is no address to listen on"),
            Error::Stopping => f.write_str("the server is about to stop"),
            Error::Generations { count } => write!(
                f,
                "{count} earlier configurations still have answers under way"
            ),
            Error::Upgrade { why } => write!(f, "the new process did not take over: {why}"),
            Error::Contradiction { what } => write!(f, "the limits contradict each other: {what}"),
            Error::Confine { why } => write!(f, "cannot confine the workers: {why}"),
            Error::User { name, why } => write!(f, "cannot become the user {name}: {why}"),
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

/// A connection cannot go on as asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The deadline passed.
    TimedOut,
    /// The peer took less than it has to (`rate_min`).
    TooSlow,
    /// The server stops; what was awaited is not worth waiting for any more.
    Stopped,
    /// The peer is gone: reset, closed, unreachable. Nobody's fault here.
    PeerGone,
    /// The peer sent more than the protocol has room for.
    InputFull,
    /// The mover failed: the file shrank, could not be read, or the socket failed.
    Move(underpass::Error),
    /// Reading from the socket failed in a way that is not the peer leaving.
    Read(io::Error),
    /// A connection could not be opened.
    Connect(io::Error),
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::TimedOut => f.write_str("the deadline passed"),
            ConnectionError::TooSlow => f.write_str("the peer takes less than it has to"),
            ConnectionError::Stopped => f.write_str("the server stops"),
            ConnectionError::PeerGone => f.write_str("the peer is gone"),
            ConnectionError::InputFull => f.write_str("the peer sent more than there is room for"),
            ConnectionError::Move(error) => error.fmt(f),
            ConnectionError::Read(error) => write!(f, "recv: {error}"),
            ConnectionError::Connect(error) => write!(f, "connect: {error}"),
        }
    }
}

impl std::error::Error for ConnectionError {}
