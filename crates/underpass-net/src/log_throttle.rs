//! Limits log messages to one per burst of the same event.

use std::cell::Cell;
use std::time::Instant;

use crate::limits::LOG_QUIET;

/// Remembers when an event last occurred. A thousand refused connections in a row are one burst and
/// one line in the log; the next burst is logged again.
#[derive(Debug, Default)]
pub struct LogThrottle {
    last: Cell<Option<Instant>>,
}

/// Whether an occurrence starts a burst.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Occurrence {
    /// The first one for a while: log it.
    First,
    /// Part of a burst that has been logged.
    Repeated,
}

impl LogThrottle {
    /// Records an occurrence at `now`.
    pub fn record(&self, now: Instant) -> Occurrence {
        match self.last.replace(Some(now)) {
            Some(last) if now.saturating_duration_since(last) < LOG_QUIET => Occurrence::Repeated,
            _ => Occurrence::First,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_logged_once_and_the_next_one_again() {
        let throttle = LogThrottle::default();
        let start = Instant::now();
        assert_eq!(throttle.record(start), Occurrence::First);
        assert_eq!(throttle.record(start + LOG_QUIET / 2), Occurrence::Repeated);
        assert_eq!(throttle.record(start + LOG_QUIET), Occurrence::Repeated);
        assert_eq!(throttle.record(start + LOG_QUIET * 2), Occurrence::First);
    }
}
