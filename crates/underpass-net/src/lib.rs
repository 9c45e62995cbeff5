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
mod addresses;
mod bandwidth;
mod confine;
mod deadline;
mod descriptors;
mod error;
mod gate;
mod input;
mod limits;
mod listen;
mod network;
mod pace;
mod proxies;
pub mod proxy_protocol;
mod roster;
mod shutdown;
mod signals;
mod stream;
mod trouble;
mod user;
mod workers;

pub use confine::{Confine, Confinement, confine};
pub use error::{Error, StreamError};
pub use limits::Limits;
pub use network::{Network, UnknownNetwork};
pub use proxies::{Forwarded, Proxies, ProxyProtocol};
pub use shutdown::{Phase, Shutdown};
pub use signals::obey_signals;
pub use stream::{Filled, Patience, Stream};
pub use trouble::{Burst, Trouble};
pub use user::User;
pub use workers::{Protocol, Running, cores, start};
