//! The least that a peer has to take: who reads a byte a minute must not keep a connection.
//!
//! What counts is what the peer has acknowledged, since the socket's buffer takes megabytes from us
//! before anything shows. It is looked at once in a window, and only after the first one: answers
//! that are sent within a window cost nothing. Not the peer's fault, and not counted:
//!
//! - time in which everything sent is acknowledged: then our disk is what is waited for;
//! - time in which the connection waits for its share of a bandwidth.

use std::time::{Duration, Instant};

use underpass::tcp::{Outstanding, Reached};

/// Watches one answer.
#[derive(Debug)]
pub(crate) struct Pace {
    least: Least,
    began: Instant,
    /// What was acknowledged when the window began; nobody has asked in the first one.
    acknowledged: Option<u64>,
}

/// What has to be acknowledged, and over how long that is averaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    pub(crate) bytes_per_second: u64,
    pub(crate) window: Duration,
}

/// What a look at a peer came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Judgement {
    GoesOn,
    TooSlow,
}

impl Pace {
    pub(crate) fn new(least: Least, now: Instant) -> Pace {
        Pace {
            least,
            began: now,
            acknowledged: None,
        }
    }

    /// How long until the next look.
    pub(crate) fn until_due(&self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.began);
        self.least.window.saturating_sub(passed)
    }

    /// Leaves out `span`, in which nothing was to be sent.
    pub(crate) fn leave_out(&mut self, span: Duration) {
        self.began += span;
    }

    /// Looks at the peer at the end of a window, and begins the next one.
    pub(crate) fn judge(&mut self, reached: Reached, now: Instant) -> Judgement {
        let span = now.saturating_duration_since(self.began);
        let before = self.acknowledged.replace(reached.acknowledged);
        self.began = now;
        let (Some(before), Outstanding::Something) = (before, reached.outstanding) else {
            return Judgement::GoesOn;
        };
        let taken = u128::from(reached.acknowledged.saturating_sub(before));
        let wanted = u128::from(self.least.bytes_per_second) * span.as_millis() / 1000;
        match taken < wanted {
            true => Judgement::TooSlow,
            false => Judgement::GoesOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn pace(now: Instant) -> Pace {
        let least = Least {
            bytes_per_second: 100,
            window: WINDOW,
        };
        Pace::new(least, now)
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
        assert_eq!(pace(start).judge(at(0), start + WINDOW), Judgement::GoesOn);
    }

    #[test]
    fn a_peer_at_the_border_goes_on_and_below_it_does_not() {
        for (taken, expected) in [(1000, Judgement::GoesOn), (999, Judgement::TooSlow)] {
            let start = Instant::now();
            let mut pace = pace(start);
            let _first = pace.judge(at(5000), start + WINDOW);
            assert_eq!(pace.judge(at(5000 + taken), start + WINDOW * 2), expected);
        }
    }

    #[test]
    fn a_burst_counts_for_its_whole_window() {
        let start = Instant::now();
        let mut pace = pace(start);
        let mut reached = 0;
        for window in 1..100 {
            reached += 1000;
            let judged = pace.judge(at(reached), start + WINDOW * window);
            assert_eq!(judged, Judgement::GoesOn);
        }
    }

    #[test]
    fn a_peer_that_has_all_it_was_sent_is_not_to_blame() {
        let start = Instant::now();
        let mut pace = pace(start);
        let _first = pace.judge(at(7), start + WINDOW);
        let idle = Reached {
            acknowledged: 7,
            outstanding: Outstanding::Nothing,
        };
        assert_eq!(pace.judge(idle, start + WINDOW * 2), Judgement::GoesOn);
    }

    #[test]
    fn time_that_is_left_out_does_not_count() {
        let start = Instant::now();
        let mut pace = pace(start);
        let _first = pace.judge(at(0), start + WINDOW);
        pace.leave_out(WINDOW);
        assert_eq!(pace.until_due(start + WINDOW * 2), WINDOW);
        let judged = pace.judge(at(1000), start + WINDOW * 3);
        assert_eq!(judged, Judgement::GoesOn);
    }
}
