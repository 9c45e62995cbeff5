//! The configuration of a server.

use underpass::Policy;

use crate::limits::ConnectionLimits;
use crate::listen::config::ListenerConfig;
use crate::worker::protocol::Protocol;

/// The configuration of a generation of workers.
#[derive(Clone, Debug)]
pub struct ServerConfig<P: Protocol> {
    /// The protocol of the connections.
    pub protocol: P,
    /// The listeners with their services, at least one of them for clients.
    pub listeners: Vec<ListenerConfig<P::Service>>,
    /// Threads, at least one.
    pub workers: usize,
    /// The constraints on sending.
    pub policy: Policy,
    /// The limits of connections.
    pub limits: ConnectionLimits,
}
