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

mod admission;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod handover;
mod limits;
mod listen;
mod log_throttle;
mod process;
mod quota;
mod server;
mod shutdown;
pub mod size;
mod worker;

pub use admission::Rejected;
pub use admission::network::{Network, UnknownNetwork};
pub use admission::proxies::{Forwarded, Proxies, ProxyProtocol};
pub use admission::proxy_protocol;
pub use connection::connector::Connector;
pub use connection::frame::FrameBuffer;
pub use connection::socket::{Registered, register};
pub use connection::wait::WhileDraining;
pub use connection::wake::WakeHandle;
pub use connection::{Connection, LastRead, ReadOutcome};
pub use error::{ConnectionError, Error};
pub use handover::inherit::{Inherited, Predecessor};
pub use limits::ConnectionLimits;
pub use listen::address::{Address, BadListenAt, ListenAt, PeerAddress};
pub use listen::config::{ListenerAccess, ListenerConfig};
pub use listen::identity::ListenerIdentity;
pub use log_throttle::{LogThrottle, Occurrence};
pub use process::confine::{Confine, Confinement, confine};
pub use process::cores::cores;
pub use process::notify::Notifier;
pub use process::signals::{SignalAction, watch_signals};
pub use process::user::User;
pub use server::config::ServerConfig;
pub use server::{Server, start};
pub use shutdown::phase::ShutdownPhase;
pub use shutdown::switch::Shutdown;
pub use worker::protocol::Protocol;
