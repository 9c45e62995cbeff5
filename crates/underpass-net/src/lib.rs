//! The network ground of Underpass: everything between a listening port and a protocol.
//!
//! A server is some *workers*. Each is one thread with its own runtime and its own listener on the
//! shared port; a connection stays on the worker that accepted it, so nothing is shared and
//! nothing is locked on the way of a request.
//!
//! ```text
//!  listen ──► worker 0: accept ──► Stream ──► Protocol::converse
//!  (port)     worker 1: accept ──► Stream ──► Protocol::converse
//!                ▲                    ▲
//!                └──── Shutdown ──────┘      running → draining → now
//! ```
//!
//! A [`Protocol`] is what is spoken on the connections; this crate knows none. What a protocol
//! owes its peer goes into the stream's outbox as pieces and is moved by the `underpass` crate.

#![forbid(unsafe_code)]

mod accept;
mod deadline;
mod descriptors;
mod error;
mod input;
mod limits;
mod listen;
mod roster;
mod shutdown;
mod signals;
mod stream;
mod trouble;
mod workers;

pub use error::{Error, StreamError};
pub use limits::Limits;
pub use shutdown::{Phase, Shutdown};
pub use signals::{obey_signals, reopen_on_signal};
pub use stream::{Filled, Patience, Stream};
pub use trouble::{Burst, Trouble};
pub use workers::{Protocol, Running, cores, start};
