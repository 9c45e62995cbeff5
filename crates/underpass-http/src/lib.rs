//! Messages of HTTP/1.1 (RFC 9110, RFC 9112), for servers and clients: bytes in, checked values
//! out, and back. No socket, no file, and no clock but what is passed in.
//!
//! ```text
//!   request    heads: read by servers, written by clients
//!   response   heads and framing: read by clients; servers write theirs from `status`, `fields`
//!      │
//!      ├─► body     framing of requests; chunks, read and written
//!      ├─► fields   ranges, conditions, dates, digests, codings: read and written
//!      └─► path, status, version, scheme, persistence, token, limits
//! ```

#![forbid(unsafe_code)]

pub mod body;
pub mod calendar;
pub mod error;
pub mod fields;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
pub mod limits;
mod line;
pub mod path;
pub mod persistence;
pub mod request;
pub mod response;
pub mod scheme;
pub mod status;
pub mod token;
pub mod version;
