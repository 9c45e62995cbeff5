//! What the acceptors of a server share.

use crate::tls::counts::AlertCounts;

/// What the acceptors of a server share, also one after another: it outlives reloads.
#[derive(Debug, Default)]
pub struct TlsShared {
    /// Alerts sent and received.
    pub alerts: AlertCounts,
}
