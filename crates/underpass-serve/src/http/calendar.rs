//! Dates as RFC 3339 writes them, in UTC, from what file systems count.

use std::fmt;

use crate::http::validator::FileTime;

/// A moment as a calendar has it. Years beyond 9999 and before 0 are clamped to four
/// digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Moment {
    days: i64,
    second: i64,
    nanosecond: u32,
}

const DAY: i64 = 86_400;
/// 0000-01-01T00:00:00Z and 9999-12-31T23:59:59Z, counted from 1970.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

impl Moment {
    pub(crate) fn of(time: FileTime) -> Moment {
        let seconds = time.seconds.clamp(FIRST, LAST);
        Moment {
            days: seconds.div_euclid(DAY),
            second: seconds.rem_euclid(DAY),
            nanosecond: time.nanoseconds.min(999_999_999),
        }
    }

    /// For people: `2026-11-21 17:18`.
    pub(crate) fn minutes(self) -> String {
        let (year, month, day) = self.date();
        let (hour, minute) = (self.second / 3600, self.second / 60 % 60);
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
    }

    /// Year, month and day. Years are counted from March, so that the leap day is a year's last
    /// one, and in eras of 400 years, after which the calendar repeats.
    fn date(self) -> (i64, i64, i64) {
        const ERA: i64 = 146_097;
        // 0000-03-01 lies so many days before 1970-01-01.
        let days = self.days + 719_468;
        let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let leaps = day / 1_460 - day / 36_524 + day / 146_096;
        let year_of_era = (day - leaps) / 365;
        let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month, day_of_month)
    }
}

/// RFC 3339 in UTC, with nanoseconds where there are any.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        match self.nanosecond {
            0 => f.write_str("Z"),
            nanoseconds => write!(f, ".{nanoseconds:09}Z"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> String {
        Moment::of(FileTime {
            seconds,
            nanoseconds,
        })
        .to_string()
    }

    #[test]
    fn known_moments() {
        assert_eq!(at(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(at(784_111_777, 1), "1994-11-06T08:49:37.000000001Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00Z");
        assert_eq!(at(-1, 0), "1969-12-31T23:59:59Z");
        assert_eq!(at(i64::MAX, 0), "9999-12-31T23:59:59Z");
        assert_eq!(at(i64::MIN, 0), "0000-01-01T00:00:00Z");
        let moment = Moment::of(FileTime {
            seconds: 784_111_777,
            nanoseconds: 0,
        });
        assert_eq!(moment.minutes(), "1994-11-06 08:49");
    }

    proptest::proptest! {
        #[test]
        fn the_same_day_as_http_has(seconds in 0u64..253_402_300_800) {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            let moment = at(seconds as i64, 0);
            let (year, day, time) = (&date[12..16], &date[5..7], &date[17..25]);
            proptest::prop_assert_eq!(&moment[..4], year);
            proptest::prop_assert_eq!(&moment[8..10], day);
            proptest::prop_assert_eq!(&moment[11..19], time);
            let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun",
                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
            let month: usize = moment[5..7].parse().unwrap();
            proptest::prop_assert_eq!(months[month - 1], &date[8..11]);
        }
    }
}
