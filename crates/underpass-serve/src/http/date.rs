//! The date of answers, written out once a second.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// The length of a date in HTTP's preferred form.
pub(crate) const DATE_BYTES: usize = 29;

/// Remembers the last date it wrote.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    written: Cell<(u64, [u8; DATE_BYTES])>,
}

impl Clock {
    /// `now` as a date. A clock before 1970 shows 1970.
    pub(crate) fn date(&self, now: SystemTime) -> [u8; DATE_BYTES] {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (second, date) = self.written.get();
        if second == since && second != 0 {
            return date;
        }
        let date = date_bytes(HttpDate::from(UNIX_EPOCH.max(now)));
        self.written.set((since, date));
        date
    }
}

/// Writes a date out.
pub(crate) fn date_bytes(date: HttpDate) -> [u8; DATE_BYTES] {
    let mut bytes = [b' '; DATE_BYTES];
    let written = date.to_string();
    bytes[..written.len()].copy_from_slice(written.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_date_follows_the_second() {
        let clock = Clock::default();
        let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(784_111_777_000 + millis);
        assert_eq!(&clock.date(at(0)), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&clock.date(at(999)), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&clock.date(at(1000)), b"Sun, 06 Nov 1994 08:49:38 GMT");
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(&clock.date(before), b"Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
