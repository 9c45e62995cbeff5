//! Why a site cannot be served.

use std::fmt;
use std::io;
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
    /// The file of a configuration cannot be read.
    ConfigFile {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// Options of a site that contradict each other.
    Site {
        /// Its root.
        root: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Two limits contradict each other.
    Limits {
        /// Which, and what to change.
        what: &'static str,
    },
    /// A running server can't change this; the program that takes over from it can.
    Fixed {
        /// The key.
        what: &'static str,
    },
    /// There is no site to serve.
    NoSite,
    /// Two sites have the same name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// The access log cannot be opened.
    Log {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address for metrics could not be taken.
    Status {
        /// Which one.
        listen: String,
        /// Why not.
        source: underpass_net::Error,
    },
    /// A thread beside the workers could not be made.
    Thread {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
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
            Error::ConfigFile { path, error } => {
                write!(
                    f,
                    "cannot read the configuration {}: {error}",
                    path.display()
                )
            }
            Error::Site { root, what } => write!(f, "the site of {}: {what}", root.display()),
            Error::Fixed { what } => write!(f, "{what} is not changed by a reload"),
            Error::Limits { what } => write!(f, "the limits contradict each other: {what}"),
            Error::NoSite => f.write_str("there is no site to serve"),
            Error::NameTaken { name } => write!(f, "two sites have the name {name}"),
            Error::Log { path, source } => {
                write!(
                    f,
                    "cannot write the access log {}: {source}",
                    path.display()
                )
            }
            Error::Status { listen, source } => {
                write!(f, "no metrics and health on {listen}: {source}")
            }
            Error::Thread { doing, source } => write!(f, "cannot {doing}: {source}"),
            Error::Net(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Root { errno, .. } | Error::NoBeneath { errno } => Some(errno),
            Error::Log { source, .. } | Error::Thread { source, .. } => Some(source),
            Error::Status { source, .. } | Error::Net(source) => Some(source),
            Error::ConfigFile { error, .. } => Some(error),
            Error::Config(_)
            | Error::Site { .. }
            | Error::Limits { .. }
            | Error::NoSite
            | Error::Fixed { .. }
            | Error::NameTaken { .. } => None,
        }
    }
}

impl From<underpass_net::Error> for Error {
    fn from(error: underpass_net::Error) -> Error {
        Error::Net(error)
    }
}
