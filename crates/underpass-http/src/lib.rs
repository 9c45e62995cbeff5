//! Messages of HTTP/1.1 (RFC 9110, RFC 9112), for servers and clients: bytes in, checked values
//! out, and back. No socket, no file, and no clock but what is passed in.
//!
//! ```text
//!   request   a head is found, read          response   (of clients)
//!      │
//!      ├─► body     framing; chunks
//!      ├─► fields   ranges, conditions, dates, digests, codings: read and written
//!      └─► path, status, version, scheme, token, limits
//! ```

#![forbid(unsafe_code)]

pub mod body;
pub mod calendar;
pub mod fields;
pub mod limits;
pub mod path;
pub mod request;
pub mod scheme;
pub mod status;
pub mod token;
pub mod version;
