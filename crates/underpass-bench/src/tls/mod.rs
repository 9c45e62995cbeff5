//! TLS between the load and the servers: options, a certificate of the run, and rustls's client.

pub(crate) mod options;
mod sealing;
mod setup;
mod stream;

pub(crate) use sealing::sealing_seconds_per_gib;
pub(crate) use setup::{TlsClient, TlsSetup};
pub(crate) use stream::TlsStream;
