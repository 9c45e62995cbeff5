//! Why a site cannot be served.

use std::fmt;
use std::path::PathBuf;

use rustix::io::Errno;

/// A server could not be made ready.
#[derive(Debug)]
pub enum Error {
    /// The root cannot be opened as a folder.
    Root {
        /// What was asked for.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// `openat2` is not to be had: the kernel is older than 5.6, or a filter forbids it.
    NoBeneath {
        /// What the kernel said.
        errno: Errno,
    },
    /// The configuration cannot be read: what is wrong and where, over several lines.
    Config(String),
    /// Two limits contradict each other.
    Limits {
        /// Which, and what to change.
        what: &'static str,
    },
    /// There is no site to serve.
    NoSite,
    /// Two sites have the same name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// The port could not be taken, or a worker not be started.
    Net(underpass_net::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Root { path, errno } => {
                write!(f, "cannot serve {}: {errno}", path.display())
            }
            Error::NoBeneath { errno } => write!(
                f,
                "cannot keep requests beneath the served folder: openat2: {errno}"
            ),
            Error::Config(what) => f.write_str(what),
            Error::Limits { what } => write!(f, "the limits contradict each other: {what}"),
            Error::NoSite => f.write_str("there is no site to serve"),
            Error::NameTaken { name } => write!(f, "two sites have the name {name}"),
            Error::Net(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Root { errno, .. } | Error::NoBeneath { errno } => Some(errno),
            Error::Net(error) => Some(error),
            Error::Config(_) | Error::Limits { .. } | Error::NoSite | Error::NameTaken { .. } => {
                None
            }
        }
    }
}

impl From<underpass_net::Error> for Error {
    fn from(error: underpass_net::Error) -> Error {
        Error::Net(error)
    }
}
