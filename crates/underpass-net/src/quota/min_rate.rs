//! Minimum rate: a peer that reads a byte a minute must not occupy a connection.
//!
//! The rate is measured in acknowledged bytes, since the socket's buffer accepts megabytes before a
//! slow peer shows. It is checked once per window, and not in the first one: responses sent within
//! a window cost nothing. Time for which the peer is not responsible does not count:
//!
//! - time in which everything sent is acknowledged: then the server waits for its disk;
//! - time in which the connection waits for its turn of a limited rate.

use std::time::{Duration, Instant};

use underpass::tcp::{Outstanding, Reached};

use crate::error::ConnectionError;

/// The monitor of one transfer.
#[derive(Debug)]
pub(crate) struct MinRateMonitor {
    min_rate: MinRate,
    began: Instant,
    /// The bytes acknowledged at the start of the window; unknown in the first one.
    acknowledged: Option<u64>,
}

/// The minimum rate, and the window of its average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinRate {
    pub(crate) bytes_per_second: u64,
    pub(crate) window: Duration,
}

impl MinRateMonitor {
    pub(crate) fn new(min_rate: MinRate, now: Instant) -> MinRateMonitor {
        MinRateMonitor {
            min_rate,
            began: now,
            acknowledged: None,
        }
    }

    /// Returns the time until the next check.
    pub(crate) fn until_due(&self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.began);
        self.min_rate.window.saturating_sub(passed)
    }

    /// Excludes `span`, in which the server sent nothing.
    pub(crate) fn exclude(&mut self, span: Duration) {
        self.began += span;
    }

    /// Judges the peer at the end of a window, and starts the next one.
    ///
    /// # Errors
    /// `TooSlow`.
    pub(crate) fn judge(&mut self, reached: Reached, now: Instant) -> Result<(), ConnectionError> {
        let span = now.saturating_duration_since(self.began);
        let before = self.acknowledged.replace(reached.acknowledged);
        self.began = now;
        let (Some(before), Outstanding::Something) = (before, reached.outstanding) else {
            return Ok(());
        };
        let taken = u128::from(reached.acknowledged.saturating_sub(before));
        let wanted = u128::from(self.min_rate.bytes_per_second) * span.as_millis() / 1000;
        match taken < wanted {
            true => Err(ConnectionError::TooSlow),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn monitor(now: Instant) -> MinRateMonitor {
        let min_rate = MinRate {
            bytes_per_second: 100,
            window: WINDOW,
        };
        MinRateMonitor::new(min_rate, now)
    }

    fn at(acknowledged: u64) -> Reached {
        Reached {
            acknowledged,
            outstanding: Outstanding::Something,
        }
    }

    #[test]
    fn the_first_window_only_finds_out_where_the_peer_is() {
        let start = Instant::now();
        assert!(monitor(start).judge(at(0), start + WINDOW).is_ok());
    }

    #[test]
    fn a_peer_at_the_border_goes_on_and_below_it_does_not() {
        for (taken, is_fast_enough) in [(1000, true), (999, false)] {
            let start = Instant::now();
            let mut monitor = monitor(start);
            let _first = monitor.judge(at(5000), start + WINDOW);
            let judged = monitor.judge(at(5000 + taken), start + WINDOW * 2);
            assert_eq!(judged.is_ok(), is_fast_enough);
        }
    }

    #[test]
    fn a_burst_counts_for_its_whole_window() {
        let start = Instant::now();
        let mut monitor = monitor(start);
        let mut reached = 0;
        for window in 1..100 {
            reached += 1000;
            let judged = monitor.judge(at(reached), start + WINDOW * window);
            assert!(judged.is_ok());
        }
    }

    #[test]
    fn a_peer_that_has_all_it_was_sent_is_not_to_blame() {
        let start = Instant::now();
        let mut monitor = monitor(start);
        let _first = monitor.judge(at(7), start + WINDOW);
        let idle = Reached {
            acknowledged: 7,
            outstanding: Outstanding::Nothing,
        };
        assert!(monitor.judge(idle, start + WINDOW * 2).is_ok());
    }

    #[test]
    fn time_that_is_left_out_does_not_count() {
        let start = Instant::now();
        let mut monitor = monitor(start);
        let _first = monitor.judge(at(0), start + WINDOW);
        monitor.exclude(WINDOW);
        assert_eq!(monitor.until_due(start + WINDOW * 2), WINDOW);
        let judged = monitor.judge(at(1000), start + WINDOW * 3);
        assert!(judged.is_ok());
    }
}
