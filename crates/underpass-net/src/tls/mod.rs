//! TLS on the connections of a listener.
//!
//! ```text
//!  options ─► reading ─► certificates ─┐ swapped whole while connections go on
//!                                      ▼
//!  accepted, admitted ─► handshake ─► TlsSocket ─► the protocol
//!       │ the first byte is no handshake's
//!       └─► Protocol::serve_plain
//! ```
//!
//! Without the feature `tls` there is no acceptor, and everything else is the same.
//!
//! rustls shakes hands and makes records. What a connection owes is read in batches into a buffer
//! of the worker, becomes records there, and leaves by one call for a batch.

#[cfg(not(feature = "tls"))]
#[path = "absent.rs"]
pub(crate) mod acceptor;
#[cfg(feature = "tls")]
pub(crate) mod acceptor;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod chain;
pub(crate) mod counts;
pub(crate) mod error;
#[cfg(feature = "tls")]
mod handshake;
pub(crate) mod info;
#[cfg(feature = "tls")]
mod reading;
#[cfg(feature = "tls")]
mod records;
#[cfg(feature = "tls")]
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod shared;
