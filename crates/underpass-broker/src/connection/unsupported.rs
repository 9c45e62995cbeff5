//! Logs requests that this broker does not support, because clients rarely show the reason.

use std::collections::HashSet;
use std::sync::Mutex;

use underpass_net::{LogThrottle, PeerAddress};

use crate::lock::lock;

/// Logs one warning per client and kind of request, because clients retry. A client is an address
/// without its port, and a client ID.
#[derive(Debug, Default)]
pub(crate) struct UnsupportedLog(Mutex<HashSet<String>>);

/// The number of remembered warnings. Later ones are rate limited.
const REMEMBERED_MAX: usize = 1000;

/// The number of characters of a client ID that are logged.
const CLIENT_ID_MAX: usize = 64;

impl UnsupportedLog {
    /// Warns that a client asked for `what`, unless that was logged before.
    pub(crate) fn report(
        &self,
        (peer, client_id): (PeerAddress, &str),
        what: &str,
        others: &LogThrottle,
    ) {
        let address = peer
            .ip()
            .map_or_else(|| peer.to_string(), |ip| ip.to_string());
        let client_id: String = client_id.chars().take(CLIENT_ID_MAX).collect();
        let key = format!("{address} {client_id:?} {what}");
        let warning = format!("{peer}, client {client_id:?}: {what}");
        let mut logged = lock(&self.0);
        if logged.contains(&key) {
            tracing::debug!("{warning}");
        } else if logged.len() < REMEMBERED_MAX {
            tracing::warn!("{warning}; this is logged once per client");
            logged.insert(key);
        } else {
            others.warn(warning);
        }
    }
}
