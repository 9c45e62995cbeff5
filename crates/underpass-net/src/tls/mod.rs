//! TLS on the connections of a listener.
//!
//! ```text
//!  options ─► reading ─► certificates ─┐ replaced as a whole, connections stay
//!                                      ▼
//!  accepted, admitted ─► handshake ─► session ─► the protocol
//!       │ the first byte is not           │ records: Sealer, Opener
//!       │ a handshake's                   └ alerts, key updates, limits of keys
//!       └─► Protocol::serve_plain
//! ```
//!
//! rustls performs handshakes, and derives later keys. The session makes records: pending data is
//! read in batches into a buffer of the worker, sealed into another one, and each batch is sent by
//! one call. Sealed data is never sealed again. If kernel TLS is configured, the kernel gets the
//! sending key when a long range starts ([`offload`]).

pub(crate) mod acceptor;
mod certificates;
mod chain;
pub(crate) mod error;
pub(crate) mod handshake;
pub(crate) mod info;
mod message_rate;
pub(crate) mod offload;
mod reading;
pub(crate) mod records;
pub(crate) mod self_signed;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod shared;
mod tickets;
