//! The network ground of Underpass: everything between a listening port and a protocol.
//!
//! A server is some *workers*. Each is one thread with its own runtime and its own listener on a
//! shared port; a connection stays on the worker that accepted it, so nothing is shared and
//! nothing is locked on the way of a request.
//!
//! ```text
//!  Listeners ──► worker 0: accept ──► Stream ──► Protocol::converse    a generation
//!  (addresses)   worker 1: accept ──► Stream ──► Protocol::converse
//!       │           ▲                    ▲
//!       │           └──── Shutdown ──────┘   running → retiring → draining → now
//!       ├──► the next generation, on the same sockets         Running::reload
//!       └──► another process, which gets the sockets          Running::upgrade
//! ```
//!
//! A [`Protocol`] is what is spoken on the connections; this crate knows none. What a protocol
//! owes its peer goes into the stream's outbox as pieces and is moved by the `underpass` crate.

#![forbid(unsafe_code)]

mod accept;
mod address;
mod addresses;
mod bandwidth;
mod confine;
mod deadline;
mod descriptors;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod handover;
mod inherit;
mod input;
mod limits;
mod listen;
mod listeners;
mod network;
mod notify;
mod pace;
mod proxies;
pub mod proxy_protocol;
mod roster;
mod running;
mod shutdown;
mod signals;
pub mod size;
mod socket;
mod stream;
mod trouble;
mod unix;
mod upgrade;
mod user;
mod workers;

pub use address::{Address, BadListenAt, ListenAt, Peer};
pub use confine::{Confine, Confinement, confine};
pub use error::{Error, StreamError};
pub use gate::TurnedAway;
pub use inherit::{Inherited, Predecessor};
pub use limits::Limits;
pub use network::{Network, UnknownNetwork};
pub use notify::Notifier;
pub use proxies::{Forwarded, Proxies, ProxyProtocol};
pub use running::{Running, Setup, start};
pub use shutdown::{Phase, Shutdown};
pub use signals::{Ask, obey_signals};
pub use socket::{Registered, register};
pub use stream::{Filled, Patience, Stream};
pub use trouble::{Burst, Trouble};
pub use user::User;
pub use workers::{Protocol, cores};
