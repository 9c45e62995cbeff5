//! Formats timestamps of files as UTC dates (RFC 3339). Dates outside the years 0 to 9999 are
//! clamped.

use crate::fields::validator::FileTime;

const DAY: i64 = 86_400;
/// 0000-01-01T00:00:00Z and 9999-12-31T23:59:59Z, counted from 1970.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

/// Formats a time as RFC 3339 in UTC, with nanoseconds if they are not zero.
pub fn rfc3339(time: FileTime) -> String {
    let (date, [hour, minute, second]) = date_and_time(time);
    match time.nanoseconds.min(999_999_999) {
        0 => format!("{date}T{hour:02}:{minute:02}:{second:02}Z"),
        nanoseconds => format!("{date}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z"),
    }
}

/// Formats a time for people: `2026-11-21 17:18`.
pub fn minutes(time: FileTime) -> String {
    let (date, [hour, minute, _]) = date_and_time(time);
    format!("{date} {hour:02}:{minute:02}")
}

/// Returns the date, and hour, minute and second. Years are counted from March, so that the leap
/// day is the last day of a year, and in eras of 400 years, after which the calendar repeats.
fn date_and_time(time: FileTime) -> (String, [i64; 3]) {
    const ERA: i64 = 146_097;
    let seconds = time.seconds.clamp(FIRST, LAST);
    // The number of days between 0000-03-01 and 1970-01-01.
    let days = seconds.div_euclid(DAY) + 719_468;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let leaps = day / 1_460 - day / 36_524 + day / 146_096;
    let year_of_era = (day - leaps) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let second = seconds.rem_euclid(DAY);
    let time = [second / 3600, second / 60 % 60, second % 60];
    (format!("{year:04}-{month:02}-{day_of_month:02}"), time)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> String {
        rfc3339(FileTime {
            seconds,
            nanoseconds,
        })
    }

    #[test]
    fn known_moments() {
        assert_eq!(at(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(at(784_111_777, 1), "1994-11-06T08:49:37.000000001Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00Z");
        assert_eq!(at(-1, 0), "1969-12-31T23:59:59Z");
        assert_eq!(at(i64::MAX, 0), "9999-12-31T23:59:59Z");
        assert_eq!(at(i64::MIN, 0), "0000-01-01T00:00:00Z");
        let moment = FileTime {
            seconds: 784_111_777,
            nanoseconds: 0,
        };
        assert_eq!(minutes(moment), "1994-11-06 08:49");
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
