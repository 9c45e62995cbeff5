//! State that all acceptors of a server share; it outlives reloads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::tls::tickets::TicketKeys;

/// State that all acceptors of a server share: counts, and the keys of session tickets.
#[derive(Debug, Default)]
pub struct TlsShared {
    /// Alerts sent and received.
    pub alerts: AlertCounts,
    /// Connections that the peer ended without close_notify.
    pub unannounced_ends: AtomicU64,
    pub(crate) tickets: Arc<TicketKeys>,
}

impl TlsShared {
    /// Creates a new ticket key if it is due, and erases old ones. Call it periodically; without
    /// calls, handshakes create keys as needed.
    pub fn rotate(&self) {
        self.tickets.rotate(SystemTime::now());
    }

    /// Has `send` pass the ticket keys to the successor, in a text that starts with `what`.
    pub(crate) fn handover(
        &self,
        what: &str,
        send: impl FnOnce(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        send(&self.tickets.to_secret_text(what))
    }

    /// Creates shared state from a predecessor's text, without its prefix.
    pub(crate) fn of_predecessor(text: String, what: &str) -> TlsShared {
        let shared = TlsShared::default();
        shared
            .tickets
            .take_over(zeroize::Zeroizing::new(text).trim_start_matches(what));
        shared
    }
}

/// Alerts by their number, with their IANA names.
const ALERTS: [(u8, &str); 29] = [
    (0, "close_notify"),
    (10, "unexpected_message"),
    (20, "bad_record_mac"),
    (21, "decryption_failed"),
    (22, "record_overflow"),
    (30, "decompression_failure"),
    (40, "handshake_failure"),
    (42, "bad_certificate"),
    (43, "unsupported_certificate"),
    (44, "certificate_revoked"),
    (45, "certificate_expired"),
    (46, "certificate_unknown"),
    (47, "illegal_parameter"),
    (48, "unknown_ca"),
    (49, "access_denied"),
    (50, "decode_error"),
    (51, "decrypt_error"),
    (70, "protocol_version"),
    (71, "insufficient_security"),
    (80, "internal_error"),
    (86, "inappropriate_fallback"),
    (90, "user_canceled"),
    (100, "no_renegotiation"),
    (109, "missing_extension"),
    (110, "unsupported_extension"),
    (112, "unrecognized_name"),
    (115, "unknown_psk_identity"),
    (116, "certificate_required"),
    (120, "no_application_protocol"),
];

/// The name of all others: peers must not create names.
const OTHER: &str = "other";

/// The direction of an alert.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AlertDirection {
    /// Sent to a peer.
    Sent,
    /// Received from a peer.
    Received,
}

labels! { AlertDirection { Sent = "sent", Received = "received", } }

/// Counts of alerts sent and received, by description.
#[derive(Debug, Default)]
pub struct AlertCounts([[AtomicU64; ALERTS.len() + 1]; 2]);

impl AlertCounts {
    pub(crate) fn record(&self, direction: AlertDirection, number: u8) {
        let known = ALERTS.iter().position(|(known, _)| *known == number);
        let counts = &self.0[direction as usize];
        counts[known.unwrap_or(ALERTS.len())].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the name of every description (RFC 8446, section 6), `other` for unnamed ones, with
    /// its count.
    pub fn of(&self, direction: AlertDirection) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ALERTS.iter().map(|(_, name)| *name).chain([OTHER]);
        let counts = self.0[direction as usize].iter();
        names.zip(counts.map(|count| count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_name_and_unknown_ones_share_theirs() {
        let counts = AlertCounts::default();
        (0..=255).for_each(|number| counts.record(AlertDirection::Sent, number));
        let sent: Vec<_> = counts.of(AlertDirection::Sent).collect();
        assert!(sent[..ALERTS.len()].iter().all(|(_, count)| *count == 1));
        assert_eq!(sent.last(), Some(&("other", 256 - ALERTS.len() as u64)));
        assert!(
            counts
                .of(AlertDirection::Received)
                .all(|(_, count)| count == 0)
        );
    }
}
