//! TLS between the load and the servers.
//!
//! ```text
//!  options ─► setup      a certificate for this run, and a client that trusts it alone
//!               │
//!               ▼        rustls, without waiting
//!             handshake ─► records      opened, or skipped by their length
//! ```
//!

mod handshake;
pub(crate) mod options;
mod records;
mod sealing;
mod setup;

pub(crate) use handshake::{HandshakeOpening, TlsHandshake};
pub(crate) use records::RecordStream;
pub(crate) use sealing::sealing_seconds_per_gib;
pub(crate) use setup::{TlsClient, TlsSetup};
