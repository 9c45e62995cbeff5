//! TLS between the load and the servers.
//!
//! ```text
//!  options ─► setup      a certificate for this run, and a client that trusts it alone
//!               │
//!               ▼        rustls, without waiting
//!             handshake ─► records      opened, or skipped by their length
//! ```
//!
//! Without the feature `tls` there is no setup, and everything else is the same.

#[cfg(feature = "tls")]
mod handshake;
pub(crate) mod options;
#[cfg(feature = "tls")]
mod records;
#[cfg(feature = "tls")]
mod sealing;
#[cfg(not(feature = "tls"))]
#[path = "absent.rs"]
mod setup;
#[cfg(feature = "tls")]
mod setup;

#[cfg(feature = "tls")]
pub(crate) use handshake::{HandshakeOpening, TlsHandshake};
#[cfg(feature = "tls")]
pub(crate) use records::RecordStream;
#[cfg(feature = "tls")]
pub(crate) use sealing::sealing_seconds_per_gib;
#[cfg(not(feature = "tls"))]
pub(crate) use setup::{HandshakeOpening, RecordStream, TlsHandshake, sealing_seconds_per_gib};
pub(crate) use setup::{TlsClient, TlsSetup};
