//! Notices that a peer has disappeared.
//!
//! TCP tries for a quarter of an hour. A deadline on progress is no substitute: a peer whose disk
//! is slow takes nothing for long, but answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{Shutdown, sockopt};
use underpass::tcp;

use crate::connection::Connection;
use crate::limits::{KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, UNANSWERED_MIN};

/// The socket of a connection, watched by another task while the connection is used.
#[derive(Debug)]
pub struct PeerWatch(OwnedFd);

impl Connection {
    /// Returns a watch of the peer. A peer that has nothing to acknowledge is probed from now on
    /// while it is silent (SO_KEEPALIVE, tcp(7)). It takes a descriptor, and the connection is
    /// closed only when both are dropped.
    ///
    /// # Errors
    /// Those of fcntl(2) and setsockopt(2).
    pub fn watch_peer(&self) -> io::Result<PeerWatch> {
        let socket = &self.state.transport;
        sockopt::set_tcp_keepidle(socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
        sockopt::set_socket_keepalive(socket, true)?;
        Ok(PeerWatch(fcntl_dupfd_cloexec(socket, 0)?))
    }
}

impl PeerWatch {
    /// Ends the connection in both directions: all waits on it end with an error.
    pub fn cut(&self) {
        // It may have ended meanwhile.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Returns whether several packets in a row were not answered, and nothing has arrived for
    /// `span`. A peer that has no room answers. Does not block.
    pub fn is_silent(&self, span: Duration) -> bool {
        tcp::silence(&self.0).is_ok_and(|silence| {
            silence.unanswered >= UNANSWERED_MIN && silence.heard_before >= span
        })
    }
}
