//! Logs rejected requests.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Logs one warning per interval: on a full disk or with wrong settings, clients retry forever. The
/// next warning counts the suppressed ones, which are logged at debug level.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    last: RefCell<Option<(Instant, String)>>,
    unreported: Cell<u64>,
}

const INTERVAL: Duration = Duration::from_secs(1);

/// The interval between two identical warnings.
const SAME_INTERVAL: Duration = Duration::from_secs(60);

impl RefusalLog {
    pub(crate) fn report(&self, what: impl Display) {
        if let Some(warning) = self.warning(what.to_string(), Instant::now()) {
            tracing::warn!("{warning}");
        }
    }

    fn warning(&self, what: String, now: Instant) -> Option<String> {
        let mut last = self.last.borrow_mut();
        let is_due = last.as_ref().is_none_or(|(then, same)| {
            let interval = match *same == what {
                true => SAME_INTERVAL,
                false => INTERVAL,
            };
            now.saturating_duration_since(*then) >= interval
        });
        if !is_due {
            self.unreported.set(self.unreported.get() + 1);
            tracing::debug!("{what}");
            return None;
        }
        let warning = match self.unreported.take() {
            0 => what.clone(),
            count => format!("{what}; and {count} others before"),
        };
        *last = Some((now, what));
        Some(warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_again_and_again_is_counted() {
        let log = RefusalLog::default();
        let began = Instant::now();
        let at = |ms, what: &str| log.warning(what.to_owned(), began + Duration::from_millis(ms));
        assert_eq!(at(0, "full").as_deref(), Some("full"));
        assert_eq!(at(999, "damaged"), None);
        assert_eq!(at(59_999, "full"), None);
        assert_eq!(
            at(60_000, "full").as_deref(),
            Some("full; and 2 others before")
        );
        assert_eq!(at(61_000, "damaged").as_deref(), Some("damaged"));
    }
}
