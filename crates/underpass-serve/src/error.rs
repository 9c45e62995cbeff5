//! Why a server cannot start or reload.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// A server cannot start or reload.
#[derive(Debug)]
pub enum Error {
    /// The root cannot be opened as a folder.
    Root {
        /// Its path.
        path: PathBuf,
        /// The error of the system call.
        errno: Errno,
    },
    /// `openat2` is not available: the kernel is older than 5.6, or a filter forbids it.
    NoBeneath {
        /// The error of the system call.
        errno: Errno,
    },
    /// The configuration is invalid: what is wrong and where, over several lines.
    Config(String),
    /// The file of a configuration cannot be read.
    ConfigFile {
        /// Its path.
        path: PathBuf,
        /// The error of the system call.
        error: std::io::Error,
    },
    /// Contradicting options of a site.
    Site {
        /// Its root.
        root: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Contradicting limits.
    Limits {
        /// Which, and what to change.
        what: &'static str,
    },
    /// A reload cannot change this; a new process can.
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
        /// The error of the system call.
        source: io::Error,
    },
    /// Cannot listen on the address for metrics.
    Status {
        /// Which one.
        listen: String,
        /// The error of the system call.
        source: underpass_net::Error,
    },
    /// Cannot start a thread.
    Thread {
        /// What was being done.
        doing: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// Cannot listen, or cannot start a worker.
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
                "cannot confine requests to the served folder: openat2: {errno}"
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
            Error::Fixed { what } => write!(f, "a reload cannot change {what}; restart the server"),
            Error::Limits { what } => write!(f, "contradicting limits: {what}"),
            Error::NoSite => f.write_str("no site to serve"),
            Error::NameTaken { name } => write!(f, "more than one site has the name {name}"),
            Error::Log { path, source } => {
                write!(
                    f,
                    "cannot write the access log {}: {source}",
                    path.display()
                )
            }
            Error::Status { listen, source } => {
                write!(f, "cannot serve metrics on {listen}: {source}")
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
