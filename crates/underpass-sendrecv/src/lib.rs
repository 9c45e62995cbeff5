//! Sends files and trees from one machine to another.
//!
//! ```text
//!  send ──────────────── ticket ───────────────► recv        either side waits, the other connects
//!   │                                              │
//!  offer: items, walk, tar stream                 area: partial files, trees (underpass-receive)
//!   │                                              │
//!  HTTP/1.1: PUT to a waiting receiver, GET from a waiting sender (underpass-http)
//!   │                                              │
//!  TLS 1.3 with a pinned key, or plain: sendfile ─► splice (underpass-net)
//! ```
//!
//! The protocol is a profile of HTTP/1.1, so that curl and tar can be at the other end.

#![forbid(unsafe_code)]

mod body;
mod code;
mod completed;
mod connect;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
mod list;
mod listen;
mod offer;
mod profile;
mod progress;
mod secret;
mod stdin;
mod target;
mod ticket;
mod tree;

#[cfg(test)]
extern crate self as underpass_sendrecv;
#[cfg(test)]
#[path = "../tests/transfers/mod.rs"]
mod transfers;

pub use code::{AddressedCode, Invitation, InvitationError, TransferCode};
pub use connect::{ConnectOptions, pull, pull_to_stdout, push, redeem};
pub use error::{Error, shown};
pub use listen::{Encryption, KeptTicket, ListenOptions, TransferRole, WaitingSide};
pub use offer::tree::Attributes;
pub use offer::{Item, ItemKind};
pub use progress::{TransferEvent, TransferProgress};
pub use secret::{SECRET_BYTES, Secret};
pub use target::{Existing, ReceiveOptions};
pub use ticket::{ADDRESSES_MAX, Security, Ticket, TicketError};
pub use underpass_receive::HiddenNames;
