//! Sockets that a service manager has opened (sd_listen_fds(3)).

use std::os::fd::OwnedFd;

/// A socket from the service manager. It stays open as long as the server lives, so that a reload
/// can use it again.
#[derive(Debug)]
pub(crate) struct ActivatedSocket {
    pub(crate) name: String,
    pub(crate) socket: OwnedFd,
}
