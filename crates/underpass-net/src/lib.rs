//! The layer between a listening port and a protocol: listeners, workers, connections.
//!
//! A server runs *workers*, each of which is one thread with its own runtime and its own listener
//! on a shared port. A connection stays on the worker that accepted it, so nothing is shared or
//! locked on the path of a request.
//!
//! ```text
//!  listeners ─► worker 0: accept ─► admission ─► Connection ─► Protocol::serve_connection
//!  (at,      ─► worker 1: accept ─► admission ─► Connection ─► Protocol::serve_connection
//!   service)      ▲                                 ▲
//!      │          └──────────── Shutdown ───────────┘   running → retiring → draining → now
//!      ├──► the next generation of workers, on the same sockets    Server::reload
//!      └──► another process, which gets the sockets                Server::upgrade
//! ```
//!
//! A [`Protocol`] is spoken on the connections; this crate implements none. Each listener has one
//! of its services, and a reload can replace it while the socket stays. A protocol puts responses
//! into the connection's outbox as pieces, which the `underpass` crate moves.
//!
//! Folders import downwards only: server, handover, worker, admission, connection, shutdown,
//! listen, tls, quota, io, limits, error, address.

#![forbid(unsafe_code)]

/// Implements `ALL` and `name` of an enum: its variants in order, and their labels in logs and
/// metrics.
macro_rules! labels {
    ($name:ident { $($variant:ident = $label:literal,)* }) => {
        impl $name {
            /// All variants.
            pub const ALL: [$name; [$($label),*].len()] = [$($name::$variant),*];

            /// Returns the label in logs and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $label,)*
                }
            }
        }
    };
}

mod address;
mod admission;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
mod handover;
mod io;
mod limits;
mod listen;
mod process;
mod quota;
mod server;
mod shutdown;
pub mod size;
mod tls;
mod worker;

pub use address::machine::machine_addresses;
pub use address::network::{Network, UnknownNetwork};
pub use address::proxies::{Forwarded, Proxies, ProxyProtocol};
pub use address::{Address, BadListenAt, ListenAt, PeerAddress};
pub use admission::Rejected;
pub use admission::proxy_protocol;
pub use connection::connector::Connector;
pub use connection::input::FrameBuffer;
pub use connection::receive::InboundRate;
pub use connection::silence::PeerWatch;
pub use connection::wait::{WakeHandle, WhileDraining};
pub use connection::worker_state::{DescriptorReservation, DescriptorRoom};
pub use connection::{Arrival, Connection, ReadOutcome};
pub use error::{ConnectionError, Error};
pub use handover::inherit::{HandedFile, Inherited, Predecessor};
pub use handover::upgrade::command_of_this_process;
pub use io::socket::{Registered, register};
pub use limits::{ConnectionLimits, INPUT_BYTES_MAX};
pub use listen::config::{ListenerAccess, ListenerConfig, ListenerIdentity};
pub use process::confine::{Confine, Confinement, Reach, confine, confine_as};
pub use process::notify::Notifier;
pub use process::resources::{cores, forbid_core_dumps};
pub use process::signals::{EarlySignals, SignalAction, watch_signals};
pub use process::user::User;
pub use quota::client_table::ClientKey;
pub use quota::log_throttle::LogThrottle;
pub use server::{Server, start};
pub use shutdown::{Shutdown, ShutdownPhase};
pub use tls::acceptor::TlsAcceptor;
pub use tls::error::{HandshakeError, TlsError};
pub use tls::handshake::client::{ServerKey, TlsConnector};
pub use tls::info::{
    CertificateFacts, ChainFault, HandshakeKind, OffloadOutcome, Refreshed, SealedBy, TlsInfo,
};
pub use tls::offload::{encryption_speed, self_test as kernel_tls_self_test};
pub use tls::self_signed::self_signed_in;
pub use tls::settings::{CertificateFiles, OffloadMode, TlsOptions, TlsVersion};
pub use tls::shared::{AlertCounts, AlertDirection, TlsShared};
pub use worker::config::ServerConfig;
pub use worker::protocol::Protocol;
