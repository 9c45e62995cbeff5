//! Says in the log what clients are refused.

use std::cell::Cell;
use std::fmt::Display;
use std::time::{Duration, Instant};

/// One warning per interval: a full disk, or a client with the wrong settings, has producers try
/// again and again. What is not warned of is counted in the next warning, and logged in full at the
/// level of debugging.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    last: Cell<Option<Instant>>,
    unreported: Cell<u64>,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl RefusalLog {
    pub(crate) fn report(&self, what: impl Display) {
        let last = self.last.get();
        if last.is_some_and(|last| last.elapsed() < INTERVAL) {
            self.unreported.set(self.unreported.get() + 1);
            tracing::debug!("{what}");
            return;
        }
        self.last.set(Some(Instant::now()));
        match self.unreported.take() {
            0 => tracing::warn!("{what}"),
            count => tracing::warn!("{what}; and {count} others before"),
        }
    }
}
