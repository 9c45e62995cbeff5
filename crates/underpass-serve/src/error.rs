//! The reasons why a server cannot start or reload.

use std::io;
use std::path::PathBuf;
use std::thread;

use rustix::io::Errno;

/// An error that prevents a start or a reload.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root cannot be opened as a folder.
    #[error("cannot serve {}: {errno}", path.display())]
    Root {
        /// The path of the root.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        errno: Errno,
    },
    /// `openat2` is unavailable: the kernel is older than 5.6, or a filter forbids it.
    #[error("cannot confine requests to the served folder: openat2: {errno}")]
    NoBeneath {
        /// The error of the system call.
        #[source]
        errno: Errno,
    },
    /// The configuration is invalid: the mistakes and their places, on several lines.
    #[error("{0}")]
    Config(String),
    /// The configuration file cannot be read.
    #[error("cannot read the configuration {}: {error}", path.display())]
    ConfigFile {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        error: io::Error,
    },
    /// Options of a site contradict each other.
    #[error("the site of {}: {what}", root.display())]
    Site {
        /// The root of the site.
        root: PathBuf,
        /// The contradiction.
        what: String,
    },
    /// Limits contradict each other.
    #[error("contradicting limits: {what}")]
    Limits {
        /// The limits, and what to change.
        what: &'static str,
    },
    /// A reload cannot change this; a new process can.
    #[error("a reload cannot change {what}; restart the server")]
    Fixed {
        /// The option's key.
        what: &'static str,
    },
    /// No site is configured.
    #[error("no site to serve")]
    NoSite,
    /// More than one site has the same name.
    #[error("more than one site has the name {name}")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The access log cannot be opened.
    #[error("cannot write the access log {}: {source}", path.display())]
    Log {
        /// The path of the log.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The listener for metrics cannot be opened.
    #[error("cannot serve metrics on {listen}: {source}")]
    Status {
        /// The address.
        listen: String,
        /// The error of the system call.
        source: underpass_net::Error,
    },
    /// HTTPS cannot be set up.
    #[error("cannot serve HTTPS: {0}")]
    Tls(#[from] underpass_net::TlsError),
    /// A reload failed after its first step: renewed certificates are in use, everything else is
    /// unchanged.
    #[error("{0}; only the certificates were renewed, and are in use")]
    OnlyCertificates(#[source] Box<Error>),
    /// A file with users, tokens, keys or certificates cannot be used.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The mistake, its line if any, and what to do.
        what: String,
    },
    /// Several errors.
    #[error("{}", .0.iter().map(Error::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Error>),
    /// A file with secrets is in a served folder.
    #[error("{what} {} is in the served folder {}", file.display(), root.display())]
    SecretServed {
        /// The content of the file.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The served folder.
        root: PathBuf,
    },
    /// A thread cannot be started.
    #[error("cannot {doing}: {source}")]
    Thread {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// A listener or a worker cannot be started.
    #[error("{0}")]
    Net(#[from] underpass_net::Error),
}

/// Starts a detached thread.
pub(crate) fn start_thread(
    name: &str,
    doing: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started
        .map(drop)
        .map_err(|source| Error::Thread { doing, source })
}
