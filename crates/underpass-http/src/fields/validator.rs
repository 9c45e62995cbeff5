//! Validators of one state of a file: a strong entity-tag and, once it is safe, a date. A body that
//! is compressed while it is sent has a weak tag: its bytes depend on the version of the
//! compressor.
//!
//! The tag consists of the modification time with its nanoseconds, the size and the inode: a file
//! replaced by rename has another inode, one changed in place another time. HTTP dates count whole
//! seconds, so a file that changed within the last seconds has no date: another change could leave
//! it the same.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

use crate::fields::coding::Coding;
use crate::fields::writer::{DATE_BYTES, date_bytes};
use crate::limits::DATE_SETTLES_AFTER;

/// The validators of one state of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Validators {
    /// The entity-tag.
    pub tag: EntityTag,
    /// The date, if it is safe.
    pub modified: Option<LastModified>,
}

/// An entity-tag in field syntax: `W/` if weak, and quotes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EntityTag(Box<str>);

/// Whether equal tags mean equal bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TagStrength {
    /// They do.
    Strong,
    /// They mean the same content only.
    Weak,
}

/// A date in HTTP's resolution: whole seconds since 1970. Never in the future.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LastModified(u64);

/// A timestamp in the file system's resolution.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// The rest, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Validators {
    /// Returns the validators of a file in this state at the time `now`. `inode` is `None` if hosts
    /// with different inodes serve the same files.
    pub fn new(
        changed: FileTime,
        size: u64,
        inode: Option<u64>,
        coding: Option<Coding>,
        now: SystemTime,
    ) -> Validators {
        Validators {
            tag: EntityTag::new(changed, size, inode, coding),
            modified: LastModified::settled(changed, now),
        }
    }

    /// Returns the validators of the same state, compressed while it is sent.
    pub fn compressed(&self, coding: Coding) -> Validators {
        Validators {
            tag: self.tag.compressed(coding),
            modified: self.modified,
        }
    }

    /// Appends the validators to a head.
    pub fn push_to(&self, head: &mut Vec<u8>) {
        head.extend_from_slice(b"\r\nETag: ");
        head.extend_from_slice(self.tag.as_bytes());
        if let Some(modified) = self.modified {
            head.extend_from_slice(b"\r\nLast-Modified: ");
            head.extend_from_slice(&modified.date_bytes());
        }
    }
}

impl EntityTag {
    fn new(changed: FileTime, size: u64, inode: Option<u64>, coding: Option<Coding>) -> EntityTag {
        let (seconds, nanoseconds) = (changed.seconds.cast_unsigned(), changed.nanoseconds);
        let inode = inode.map(|inode| format!("-{inode:x}"));
        EntityTag(
            format!(
                "\"{seconds:x}-{nanoseconds:x}-{size:x}{}{}\"",
                inode.unwrap_or_default(),
                coding.map_or("", Coding::suffix)
            )
            .into(),
        )
    }

    /// Returns the weak tag of this file compressed while it is sent. The tag of a stored copy
    /// never contains a plus.
    fn compressed(&self, coding: Coding) -> EntityTag {
        let unquoted = self.0.strip_suffix('"').unwrap_or(&self.0);
        EntityTag(format!("W/{unquoted}+{}\"", coding.name()).into())
    }

    /// Returns the strength of the tag.
    pub fn strength(&self) -> TagStrength {
        match self.0.starts_with('W') {
            true => TagStrength::Weak,
            false => TagStrength::Strong,
        }
    }

    /// Returns the quoted part, including the quotes.
    pub fn opaque(&self) -> &[u8] {
        let bytes = self.as_bytes();
        bytes.strip_prefix(b"W/").unwrap_or(bytes)
    }

    /// Returns the field syntax, including the quotes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl LastModified {
    /// Returns the date if no later change can have the same one.
    fn settled(changed: FileTime, now: SystemTime) -> Option<LastModified> {
        let since = Duration::new(u64::try_from(changed.seconds).ok()?, changed.nanoseconds);
        let age = now.duration_since(UNIX_EPOCH.checked_add(since)?).ok()?;
        (age >= DATE_SETTLES_AFTER).then_some(LastModified(since.as_secs()))
    }

    /// Parses a date in any of HTTP's three forms. Like in other servers, the day of the week is
    /// ignored.
    pub fn parse(value: &[u8]) -> Option<LastModified> {
        const DAYS: &str = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday";
        let text = std::str::from_utf8(value).ok()?;
        let other_day = || {
            let (day, rest) = text.split_at(text.find([',', ' '])?);
            let letters = if day.len() == 3 { 3 } else { usize::MAX };
            let days = DAYS.split(' ').map(|day| &day[..letters.min(day.len())]);
            days.clone().find(|known| *known == day)?;
            let mut dates = days.map(|day| httpdate::parse_http_date(&format!("{day}{rest}")));
            dates.find_map(Result::ok)
        };
        let date = httpdate::parse_http_date(text).ok().or_else(other_day)?;
        let since = date.duration_since(UNIX_EPOCH).ok()?;
        Some(LastModified(since.as_secs()))
    }

    /// Formats the date in HTTP's preferred form.
    pub fn date_bytes(self) -> [u8; DATE_BYTES] {
        date_bytes(HttpDate::from(UNIX_EPOCH + Duration::from_secs(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_with_the_wrong_weekday_is_that_date() {
        let parsed = |text: &str| LastModified::parse(text.as_bytes()).map(|date| date.0);
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Wed, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Wednesday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Wed Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parsed(date), Some(784_111_777), "{date}");
        }
        for wrong in [
            "",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Wed, 31 Feb 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37 GMT",
            "Sun, 31",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    fn at(seconds: i64, nanoseconds: u32) -> FileTime {
        FileTime {
            seconds,
            nanoseconds,
        }
    }

    fn seconds(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn any_difference_shows_in_the_tag() {
        let tag = |changed, size, inode| EntityTag::new(changed, size, Some(inode), None);
        let base = tag(at(1, 2), 3, 4);
        assert_eq!(base.as_bytes(), b"\"1-2-3-4\"");
        assert_ne!(base, tag(at(2, 2), 3, 4));
        assert_ne!(base, tag(at(1, 3), 3, 4));
        assert_ne!(base, tag(at(1, 2), 4, 4));
        assert_ne!(base, tag(at(1, 2), 3, 5));
        let largest = tag(at(-1, u32::MAX), u64::MAX, u64::MAX);
        assert!(largest.as_bytes().ends_with(b"-ffffffffffffffff\""));
    }

    #[test]
    fn what_is_compressed_has_a_weak_tag_of_its_own() {
        let plain = EntityTag::new(at(-1, u32::MAX), u64::MAX, Some(u64::MAX), None);
        let tags = Coding::ALL.map(|coding| plain.compressed(coding));
        for (tag, coding) in tags.iter().zip(Coding::ALL) {
            assert_eq!(tag.strength(), TagStrength::Weak);
            let reported = String::from_utf8(tag.as_bytes().to_vec()).unwrap();
            assert!(
                reported.starts_with("W/\"")
                    && reported.ends_with(&format!("+{}\"", coding.name()))
            );
            assert_eq!(tag.opaque(), &reported.as_bytes()[2..]);
        }
        assert_eq!(plain.strength(), TagStrength::Strong);
        assert_eq!(plain.opaque(), plain.as_bytes());
    }

    #[test]
    fn a_date_has_to_settle_and_is_never_in_the_future() {
        let date = |changed, now| LastModified::settled(changed, seconds(now));
        assert_eq!(date(at(100, 0), 102), Some(LastModified(100)));
        assert_eq!(date(at(100, 1), 102), None);
        assert_eq!(date(at(100, 0), 50), None);
        assert_eq!(date(at(-100, 0), 50), None);
        assert_eq!(date(at(i64::MAX, 0), 50), None);
    }

    #[test]
    fn three_forms_of_a_date_are_read() {
        let read = |value: &str| LastModified::parse(value.as_bytes());
        let date = Some(LastModified(784_111_777));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), date);
        assert_eq!(read("Sunday, 06-Nov-94 08:49:37 GMT"), date);
        assert_eq!(read("Sun Nov  6 08:49:37 1994"), date);
        for garbage in [
            "",
            "0",
            "yesterday",
            "Sun, 06 Nov 1994 08:49:37 GMT+1",
            "Sun, 32 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(read(garbage), None, "{garbage}");
        }
        assert_eq!(
            &LastModified(784_111_777).date_bytes(),
            b"Sun, 06 Nov 1994 08:49:37 GMT"
        );
    }

    proptest::proptest! {
        #[test]
        fn every_date_comes_back(since in 0u64..253_402_300_800) {
            let date = LastModified(since).date_bytes();
            proptest::prop_assert_eq!(LastModified::parse(&date), Some(LastModified(since)));
        }

        #[test]
        fn no_date_panics(
            day in "[A-Za-z]{0,9},?[ -]?[0-9]{0,2}[ -][A-Za-z]{0,4}[ -][0-9]{0,4}",
            time in "[0-9:]{0,9} ?[A-Z]{0,3}",
        ) {
            let _ = LastModified::parse(format!("{day} {time}").as_bytes());
        }
    }
}
