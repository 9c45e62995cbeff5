//! Tells trouble once per burst, not once per occurrence.

use std::cell::Cell;
use std::time::Instant;

use crate::limits::TROUBLE_QUIET;

/// Remembers when some trouble was last met. A thousand refused connections in a row are one
/// burst and one line in the log; the next burst is told again.
#[derive(Debug, Default)]
pub struct Trouble {
    last: Cell<Option<Instant>>,
}

/// Whether an occurrence opens a burst.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Burst {
    /// The first for a while: tell it.
    New,
    /// More of the same: it has been told.
    Same,
}

impl Trouble {
    /// Notes an occurrence at `now`.
    pub fn meet(&self, now: Instant) -> Burst {
        match self.last.replace(Some(now)) {
            Some(last) if now.saturating_duration_since(last) < TROUBLE_QUIET => Burst::Same,
            _ => Burst::New,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_once_and_the_next_one_again() {
        let trouble = Trouble::default();
        let start = Instant::now();
        assert_eq!(trouble.meet(start), Burst::New);
        assert_eq!(trouble.meet(start + TROUBLE_QUIET / 2), Burst::Same);
        assert_eq!(trouble.meet(start + TROUBLE_QUIET), Burst::Same);
        assert_eq!(trouble.meet(start + TROUBLE_QUIET * 2), Burst::New);
    }
}
