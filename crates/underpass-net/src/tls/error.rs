//! Errors of TLS: in a listener's configuration, a handshake, or a session.

use std::io;
use std::path::PathBuf;

use rustls::AlertDescription;
use thiserror::Error;

/// An error of certificates or keys. Contains no secrets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// This build has no TLS.
    #[error("this build has no TLS")]
    Absent,
    /// No certificate is configured.
    #[error("TLS needs a certificate and its key, and none is configured")]
    NoCertificate,
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// No folder is configured for a generated certificate.
    #[error("there is no folder for the certificate; set XDG_STATE_HOME or HOME")]
    NoStateFolder,
    /// Both an existing and a generated certificate are configured.
    #[error("a self-signed certificate is made only where no certificate is named")]
    SelfSignedBeside,
    /// The content of a file is not as expected.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The key is that of another certificate.
    #[error("the key in {} is not that of the certificate in {}", key.display(), cert.display())]
    Mismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Kernel TLS is required and cannot be used.
    #[error("tls.offload is \"require\", and kernel TLS cannot be used: {why}")]
    Offload {
        /// The missing feature, or the failure.
        why: String,
    },
    /// A cipher suite is not known.
    #[error("unknown cipher suite {name:?}; expected one of {known}")]
    CipherSuite {
        /// The name.
        name: String,
        /// The names of all known suites.
        known: String,
    },
    /// The cryptographic library refuses the settings.
    #[error("TLS cannot be set up: {why}")]
    Setup {
        /// The library's message.
        why: String,
    },
}

/// The reason that a connection was closed before the protocol saw it. Labels for metrics are in
/// [`HandshakeError::NAMES`].
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum HandshakeError {
    /// The handshake was not complete in time.
    #[error("the handshake was not complete in time")]
    Late,
    /// The peer ended the connection.
    #[error("the peer ended the connection during the handshake")]
    PeerGone,
    /// The peer reported an error.
    #[error("the peer reported {0}")]
    Alert(String),
    /// The peer broke the protocol, or shares no version, cipher suite or signature with us.
    #[error("{0}")]
    Failed(String),
    /// The connection was closed to make room for others, or because the server stops.
    #[error("the connection was closed to make room, or because the server stops")]
    Closed,
    /// The server's public key is not the expected one.
    #[error("the server's key is not the expected one")]
    WrongKey,
}

impl HandshakeError {
    /// Labels for metrics, in the order of [`HandshakeError::number`].
    pub const NAMES: [&str; 5] = ["late", "peer_gone", "alert", "failed", "closed"];

    /// The index in [`HandshakeError::NAMES`].
    pub fn number(&self) -> usize {
        match self {
            HandshakeError::Late => 0,
            HandshakeError::PeerGone => 1,
            HandshakeError::Alert(_) => 2,
            HandshakeError::Failed(_) | HandshakeError::WrongKey => 3,
            HandshakeError::Closed => 4,
        }
    }
}

/// The reason that a session ends early.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SessionFault {
    /// The peer violated the protocol; this alert is sent to it.
    Peer(AlertDescription),
    /// The peer sent this alert.
    Told(AlertDescription),
}

impl From<SessionFault> for io::Error {
    fn from(fault: SessionFault) -> io::Error {
        match fault {
            SessionFault::Peer(alert) => {
                io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {alert:?}"))
            }
            SessionFault::Told(alert) => io::Error::new(
                io::ErrorKind::ConnectionReset,
                format!("TLS: the peer reported {alert:?}"),
            ),
        }
    }
}
