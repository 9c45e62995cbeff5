//! Why a server cannot start or reload.

use std::io;
use std::path::PathBuf;
use std::thread;

use rustix::io::Errno;

/// A server cannot start or reload.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root cannot be opened as a folder.
    #[error("cannot serve {}: {errno}", path.display())]
    Root {
        /// Its path.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        errno: Errno,
    },
    /// `openat2` is not available: the kernel is older than 5.6, or a filter forbids it.
    #[error("cannot confine requests to the served folder: openat2: {errno}")]
    NoBeneath {
        /// The error of the system call.
        #[source]
        errno: Errno,
    },
    /// The configuration is invalid: what is wrong and where, over several lines.
    #[error("{0}")]
    Config(String),
    /// The file of a configuration cannot be read.
    #[error("cannot read the configuration {}: {error}", path.display())]
    ConfigFile {
        /// Its path.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        error: io::Error,
    },
    /// Contradicting options of a site.
    #[error("the site of {}: {what}", root.display())]
    Site {
        /// Its root.
        root: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Contradicting limits.
    #[error("contradicting limits: {what}")]
    Limits {
        /// Which, and what to change.
        what: &'static str,
    },
    /// A reload cannot change this; a new process can.
    #[error("a reload cannot change {what}; restart the server")]
    Fixed {
        /// The key.
        what: &'static str,
    },
    /// There is no site to serve.
    #[error("no site to serve")]
    NoSite,
    /// Two sites have the same name.
    #[error("more than one site has the name {name}")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The access log cannot be opened.
    #[error("cannot write the access log {}: {source}", path.display())]
    Log {
        /// Which file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Cannot listen on the address for metrics.
    #[error("cannot serve metrics on {listen}: {source}")]
    Status {
        /// Which one.
        listen: String,
        /// The error of the system call.
        source: underpass_net::Error,
    },
    /// HTTPS cannot be spoken.
    #[error("cannot serve HTTPS: {0}")]
    Tls(#[from] underpass_net::TlsError),
    /// A reload has failed behind its first step: new certificates are in use, all else is as
    /// before.
    #[error("{0}; only the certificates were renewed, and are in use")]
    OnlyCertificates(#[source] Box<Error>),
    /// A file of users, tokens, keys or certificates cannot be used, or is of no use.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, where, and what to do.
        what: String,
    },
    /// Several of them.
    #[error("{}", .0.iter().map(Error::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Error>),
    /// A file with secrets lies in a served folder.
    #[error("{what} {} is in the served folder {}", file.display(), root.display())]
    SecretServed {
        /// What the file holds.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The folder.
        root: PathBuf,
    },
    /// Cannot start a thread.
    #[error("cannot {doing}: {source}")]
    Thread {
        /// What was being done.
        doing: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// Cannot listen, or cannot start a worker.
    #[error("{0}")]
    Net(#[from] underpass_net::Error),
}

/// Starts a thread, which nobody waits for.
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
