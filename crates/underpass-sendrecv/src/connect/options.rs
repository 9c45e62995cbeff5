//! How the connecting side reaches the waiting one.

use std::net::SocketAddr;
use std::time::Duration;

use underpass_net::ConnectionLimits;

use crate::ticket::Ticket;

/// How a waiting side is reached.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The ticket of the waiting side.
    pub ticket: Ticket,
    /// Addresses to try instead of the ticket's.
    pub to: Vec<SocketAddr>,
    /// The limits of the connection.
    pub limits: ConnectionLimits,
    /// The time for which attempts to restore a lost connection are made.
    pub retry_timeout: Duration,
}
