//! Sockets that a service manager has opened (sd_listen_fds(3)).

use std::os::fd::OwnedFd;

/// A socket of the service manager's. It is kept for as long as the server lives, so that a reload
/// can take it up again.
#[derive(Debug)]
pub(crate) struct ActivatedSocket {
    pub(crate) name: String,
    pub(crate) socket: OwnedFd,
}
