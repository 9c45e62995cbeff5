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
//! Without the feature `tls` there is no acceptor, and everything else is the same.
//!
//! rustls shakes hands, and derives the next keys later. Records are made by the session: what a
//! connection owes is read in batches into a buffer of the worker, sealed into another one, and
//! leaves by one call for a batch. What has been sealed is never sealed again. Where kernel TLS is
//! asked for, the kernel gets the sending key when a long range begins ([`offload`]).

#[cfg(not(feature = "tls"))]
#[path = "absent.rs"]
pub(crate) mod acceptor;
#[cfg(feature = "tls")]
pub(crate) mod acceptor;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod chain;
pub(crate) mod error;
#[cfg(feature = "tls")]
pub(crate) mod handshake;
pub(crate) mod info;
#[cfg(feature = "tls")]
mod message_rate;
#[cfg(feature = "tls")]
pub(crate) mod offload;
#[cfg(feature = "tls")]
mod reading;
#[cfg(feature = "tls")]
pub(crate) mod records;
#[cfg(feature = "tls")]
pub(crate) mod self_signed;
#[cfg(feature = "tls")]
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod shared;
#[cfg(feature = "tls")]
mod tickets;
