//! What a listener is configured to be, and which one a connection came by.

use std::sync::Arc;

use crate::listen::address::{Address, ListenAt};
use crate::tls::acceptor::TlsAcceptor;

/// A socket to listen on, and what is spoken on it. The address identifies the socket: a reload
/// that names the same address keeps the socket with its queue, whatever stands beside the address.
#[derive(Clone, Debug)]
pub struct ListenerConfig<S> {
    /// Where to listen.
    pub at: ListenAt,
    /// What its connections are served with: one of the services of the server's protocol.
    pub service: S,
    /// Who connects there.
    pub access: ListenerAccess,
    /// How TLS is spoken there, if it is.
    pub tls: Option<Arc<TlsAcceptor>>,
}

/// Who connects to a listener, and so which limits hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListenerAccess {
    /// Clients: all limits and the PROXY protocol hold.
    Clients,
    /// Those who run the server. Their connections are counted apart, so that they are accepted
    /// where clients wait; no PROXY header is expected, and no limit of clients or rates holds.
    /// While the server drains, connections are still accepted.
    Operators {
        /// Connections at once, over all workers.
        connections_max: usize,
    },
}

impl<S> ListenerConfig<S> {
    /// A listener for clients.
    pub fn new(at: ListenAt, service: S) -> ListenerConfig<S> {
        ListenerConfig {
            at,
            service,
            access: ListenerAccess::Clients,
            tls: None,
        }
    }
}

/// A listener, as its connections know it.
#[derive(Clone, Debug)]
pub struct ListenerIdentity {
    pub(crate) at: ListenAt,
    pub(crate) address: Address,
    pub(crate) access: ListenerAccess,
}

impl ListenerIdentity {
    /// The address as it is configured: its name in the configuration.
    pub fn at(&self) -> &ListenAt {
        &self.at
    }

    /// The address that is listened on, with the port that the kernel chose if it was asked to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Who connects there.
    pub fn access(&self) -> ListenerAccess {
        self.access
    }
}
