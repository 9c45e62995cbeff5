//! The configuration and the identity of a listener.

use std::sync::Arc;

use crate::address::{Address, ListenAt};
use crate::tls::acceptor::TlsAcceptor;

/// A socket to listen on, and its service. The address identifies the socket: a reload that names
/// the same address keeps the socket with its queue, even if other fields change.
#[derive(Clone, Debug)]
pub struct ListenerConfig<S> {
    /// The address to listen on.
    pub at: ListenAt,
    /// The service of its connections, from the server's protocol.
    pub service: S,
    /// The kind of peers that connect.
    pub access: ListenerAccess,
    /// The TLS acceptor; `None` for plain connections.
    pub tls: Option<Arc<TlsAcceptor>>,
}

/// The kind of peers that connect to a listener, which decides the limits that apply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListenerAccess {
    /// Clients: all limits and the PROXY protocol apply.
    Clients,
    /// The operators of the server. Their connections are counted separately, so that they are
    /// accepted while clients wait; no PROXY header is expected, and no client limits or rates
    /// apply. While the server drains, connections are still accepted.
    Operators {
        /// The maximum number of open connections, over all workers.
        connections_max: usize,
    },
}

impl<S> ListenerConfig<S> {
    /// Creates a listener for clients.
    pub fn new(at: ListenAt, service: S) -> ListenerConfig<S> {
        ListenerConfig {
            at,
            service,
            access: ListenerAccess::Clients,
            tls: None,
        }
    }
}

/// The identity of a listener, as its connections see it.
#[derive(Clone, Debug)]
pub struct ListenerIdentity {
    pub(crate) at: ListenAt,
    pub(crate) address: Address,
    pub(crate) access: ListenerAccess,
}

impl ListenerIdentity {
    /// Returns the configured address, which names the listener in the configuration.
    pub fn at(&self) -> &ListenAt {
        &self.at
    }

    /// Returns the actual address, with the port that the kernel chose for port 0.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the kind of peers that connect.
    pub fn access(&self) -> ListenerAccess {
        self.access
    }
}
