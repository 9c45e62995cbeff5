//! What a server is configured to be.

use underpass::Policy;

use crate::limits::ConnectionLimits;
use crate::listen::config::ListenerConfig;
use crate::worker::protocol::Protocol;

/// What a generation of workers is started with.
#[derive(Clone, Debug)]
pub struct ServerConfig<P: Protocol> {
    /// What is spoken on connections.
    pub protocol: P,
    /// Where to listen, and what is spoken there: one listener for clients at least.
    pub listeners: Vec<ListenerConfig<P::Service>>,
    /// Threads, at least one.
    pub workers: usize,
    /// What may be sent, and how.
    pub policy: Policy,
    /// The bounds.
    pub limits: ConnectionLimits,
}
