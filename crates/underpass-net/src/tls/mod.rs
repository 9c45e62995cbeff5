//! TLS on the connections of a listener.
//!
//! ```text
//!  options ─► reading ─► certificates ─┐ swapped whole while connections go on
//!                                      ▼
//!  accepted, admitted ─► handshake ─► session ─► the protocol
//!       │ the first byte is no            │ records: Sealer, Opener
//!       │ handshake's                     └ alerts, key updates, limits of keys
//!       └─► Protocol::serve_plain
//! ```
//!
//!
//! rustls shakes hands, and derives the next keys later. Records are made by the session: what a
//! connection owes is read in batches into a buffer of the worker, sealed into another one, and
//! leaves by one call for a batch. What has been sealed is never sealed again. Where kernel TLS is
//! asked for, the kernel gets the sending key when a long range begins ([`offload`]).

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
