//! Which listener a connection came by.

use crate::listen::address::{Address, ListenAt};
use crate::listen::config::ListenerAccess;

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
