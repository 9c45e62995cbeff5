//! Validators of one state of a file: a strong entity-tag and, once it is safe, a date. A body that
//! is compressed while it is sent has a weak tag: another version of a compressor makes other
//! bytes.
//!
//! The tag is made of the modification time with its nanoseconds, the size and the inode: a file
//! replaced by rename has another inode, one changed in place another time. HTTP's dates count
//! whole seconds, so a file that changed within the last seconds gets none: it could change once
//! more without the date showing it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;
use rustix::fs::Stat;
use serde::Deserialize;

use crate::http::coding::Coding;
use crate::http::fields::{DATE_BYTES, date_bytes};
use crate::limits::DATE_SETTLES_AFTER;

/// What entity-tags are computed from.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum EtagRecipe {
    /// Modification time, size and inode: nothing that changed is missed.
    #[default]
    MtimeSizeInode,
    /// Modification time and size: copies of a file on several hosts have the same, if they were
    /// copied with their times. A file that is replaced by one of equal size and time is taken for
    /// the old one.
    MtimeSize,
}

/// The validators of one state of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Validators {
    pub(crate) tag: EntityTag,
    pub(crate) modified: Option<LastModified>,
}

/// An entity-tag as it stands in a field: `W/` where it is weak, and quotes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct EntityTag(Box<str>);

/// Whether equal tags mean equal bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TagStrength {
    Strong,
    Weak,
}

/// A date as HTTP counts: whole seconds since 1970. Never in the future.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct LastModified(u64);

/// When a file was modified, as the file system counts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct FileTime {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// Which file it is, and what shows that it changed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct FileStamp {
    /// Device and inode.
    pub(crate) identity: (u64, u64),
    pub(crate) size: u64,
    /// When the content was modified.
    pub(crate) modified: FileTime,
    /// The change time, which cannot be set.
    pub(crate) changed: FileTime,
}

impl FileTime {
    /// When the content was modified.
    pub(crate) fn of(stat: &Stat) -> FileTime {
        FileTime {
            seconds: stat.st_mtime,
            nanoseconds: stat.st_mtime_nsec as u32,
        }
    }
}

impl FileStamp {
    pub(crate) fn of(stat: &Stat) -> FileStamp {
        FileStamp {
            identity: (stat.st_dev, stat.st_ino),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: FileTime::of(stat),
            changed: FileTime {
                seconds: stat.st_ctime,
                nanoseconds: stat.st_ctime_nsec as u32,
            },
        }
    }
}

impl Validators {
    /// The validators, at the time `now`, of a file in this state.
    /// Hosts that share none of their inodes leave them out.
    pub(crate) fn new(
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

    /// The validators of the same state, compressed while it is sent.
    pub(crate) fn compressed(&self, coding: Coding) -> Validators {
        Validators {
            tag: self.tag.compressed(coding),
            modified: self.modified,
        }
    }

    /// Appends them to a head.
    pub(crate) fn push_to(&self, head: &mut Vec<u8>) {
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

    /// The weak tag of the file whose tag this is, compressed while it is sent. No copy that lies
    /// beside a file has a plus in its tag.
    fn compressed(&self, coding: Coding) -> EntityTag {
        let unquoted = self.0.strip_suffix('"').unwrap_or(&self.0);
        EntityTag(format!("W/{unquoted}+{}\"", coding.name()).into())
    }

    pub(crate) fn strength(&self) -> TagStrength {
        match self.0.starts_with('W') {
            true => TagStrength::Weak,
            false => TagStrength::Strong,
        }
    }

    /// What is between the quotes, and they.
    pub(crate) fn opaque(&self) -> &[u8] {
        let bytes = self.as_bytes();
        bytes.strip_prefix(b"W/").unwrap_or(bytes)
    }

    /// As it stands in a field, quotes included.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl LastModified {
    /// The date, if no later change can have the same.
    fn settled(changed: FileTime, now: SystemTime) -> Option<LastModified> {
        let since = Duration::new(u64::try_from(changed.seconds).ok()?, changed.nanoseconds);
        let age = now.duration_since(UNIX_EPOCH.checked_add(since)?).ok()?;
        (age >= DATE_SETTLES_AFTER).then_some(LastModified(since.as_secs()))
    }

    /// Reads a date of any of HTTP's three forms. The day of the week is ignored in the preferred
    /// form, as by other servers.
    pub(crate) fn parse(value: &[u8]) -> Option<LastModified> {
        const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let text = std::str::from_utf8(value).ok()?;
        let on_another_day = || {
            let (day, date) = text.split_once(", ")?;
            let mut dates = WEEKDAYS.iter().map(|day| format!("{day}, {date}"));
            WEEKDAYS.contains(&day).then_some(())?;
            dates.find_map(|text| httpdate::parse_http_date(&text).ok())
        };
        let date = httpdate::parse_http_date(text)
            .ok()
            .or_else(on_another_day)?;
        let since = date.duration_since(UNIX_EPOCH).ok()?;
        Some(LastModified(since.as_secs()))
    }

    /// In HTTP's preferred form.
    pub(crate) fn date_bytes(self) -> [u8; DATE_BYTES] {
        date_bytes(HttpDate::from(UNIX_EPOCH + Duration::from_secs(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_with_the_wrong_weekday_is_that_date() {
        let parsed = |text: &str| LastModified::parse(text.as_bytes()).map(|date| date.0);
        let right = parsed("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(right, Some(784_111_777));
        assert_eq!(parsed("Wed, 06 Nov 1994 08:49:37 GMT"), right);
        for wrong in [
            "Xyz, 06 Nov 1994 08:49:37 GMT",
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
