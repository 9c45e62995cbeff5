//! SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding.

mod credential;
mod exchange;
mod mechanism;

pub(crate) use credential::{ITERATIONS, ScramCredential};
pub(crate) use exchange::{ScramExchange, client_first};
pub(crate) use mechanism::ScramMechanism;
