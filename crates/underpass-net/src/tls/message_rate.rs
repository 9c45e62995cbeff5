//! Bounds records without data from a peer: key updates, alerts and empty records.

use std::time::Instant;

use crate::limits::{TLS_MESSAGES_BURST, TLS_MESSAGES_MAX, TLS_MESSAGES_PER_SECOND};

/// The records without data that a peer may send: a burst, then a number per second. Data sent to
/// it permits more: some clients answer every record with a KeyUpdate once they have read much,
/// until they see ours (JDK-8329548).
pub(crate) struct MessageRate {
    left: u32,
    since: Option<Instant>,
}

impl Default for MessageRate {
    fn default() -> MessageRate {
        MessageRate {
            left: TLS_MESSAGES_BURST,
            since: None,
        }
    }
}

impl MessageRate {
    /// Returns whether another one is within the bounds, and counts it.
    pub(crate) fn admit(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let earned = (now - since).as_millis() * u128::from(TLS_MESSAGES_PER_SECOND) / 1000;
        if earned > 0 {
            self.since = Some(now);
            self.earn(
                u32::try_from(earned).unwrap_or(u32::MAX),
                TLS_MESSAGES_BURST,
            );
        }
        let is_admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_admitted
    }

    /// Permits another one, since the peer is sent a record.
    pub(crate) fn entitle(&mut self) {
        self.earn(1, TLS_MESSAGES_MAX);
    }

    fn earn(&mut self, count: u32, most: u32) {
        self.left = self.left.max(self.left.saturating_add(count).min(most));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_so_many_a_second() {
        let (mut rate, start) = (MessageRate::default(), Instant::now());
        let mut admitted = |at: Duration| {
            let mut all = (0..10_000).map(|_| rate.admit(start + at));
            all.position(|is_admitted| !is_admitted).unwrap()
        };
        assert_eq!(admitted(Duration::ZERO), TLS_MESSAGES_BURST as usize);
        assert_eq!(admitted(Duration::from_millis(99)), 0);
        assert_eq!(
            admitted(Duration::from_secs(1)),
            TLS_MESSAGES_PER_SECOND as usize
        );
        assert_eq!(
            admitted(Duration::from_secs(1_000)),
            TLS_MESSAGES_BURST as usize
        );
    }

    #[test]
    fn who_is_sent_much_may_say_as_much() {
        let (mut rate, now) = (MessageRate::default(), Instant::now());
        (0..100).for_each(|_| rate.entitle());
        assert!((0..100 + TLS_MESSAGES_BURST).all(|_| rate.admit(now)));
        assert!(!rate.admit(now));
        (0..10_000).for_each(|_| rate.entitle());
        assert!((0..TLS_MESSAGES_MAX).all(|_| rate.admit(now)));
        assert!(!rate.admit(now));
    }
}
