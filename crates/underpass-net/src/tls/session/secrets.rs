//! The secrets of a session.

use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;

/// The secrets of a session, which derive its next keys.
pub(crate) enum KernelSecrets {
    Server(Box<KernelConnection<ServerConnectionData>>),
    Client(Box<KernelConnection<ClientConnectionData>>),
}

/// The number of the next record, and the key for it.
type NextKey = Result<(u64, ConnectionTrafficSecrets), rustls::Error>;

impl KernelSecrets {
    pub(super) fn update_sending(&mut self) -> NextKey {
        match self {
            KernelSecrets::Server(secrets) => secrets.update_tx_secret(),
            KernelSecrets::Client(secrets) => secrets.update_tx_secret(),
        }
    }

    pub(super) fn update_receiving(&mut self) -> NextKey {
        match self {
            KernelSecrets::Server(secrets) => secrets.update_rx_secret(),
            KernelSecrets::Client(secrets) => secrets.update_rx_secret(),
        }
    }
}
