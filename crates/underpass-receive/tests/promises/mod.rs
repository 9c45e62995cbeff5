//! The promise about arbitrary records of uploads. This is not a public interface: it is part of
//! the crate in tests and with the feature `fuzz`.

#![allow(missing_docs, reason = "hidden; what it promises stands beside it")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::record::{RECORD_BYTES_MAX, UploadRecord};

/// A record is none, or is read back as it was written; it never lets more bytes be trusted than
/// the file has, nor fewer than were reported; and its expiry is a date. The first four bytes are
/// the size of the file.
pub fn upload_record(data: &[u8]) {
    let (size, text) = data.split_at(data.len().min(4));
    let size = size.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let Some(mut record) = UploadRecord::parse(text) else {
        return;
    };
    if let Ok(written) = record.text() {
        assert!(written.len() <= RECORD_BYTES_MAX);
        assert_eq!(UploadRecord::parse(&written).as_ref(), Some(&record));
        let cut = &written[..written.len() - 1];
        assert_eq!(UploadRecord::parse(cut), None, "a record that was cut");
    }
    for boot in [record.boot.clone(), "another".to_owned()] {
        let trusted = record.trusted(size, &boot);
        assert!(trusted.is_none_or(|trusted| trusted <= size));
        assert!(trusted.is_none_or(|trusted| trusted >= record.durable.min(size)));
    }
    let last_date = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let before = record.expires_at();
    assert!(before <= last_date);
    record.postpone(u64::MAX);
    assert!(record.expires_at() >= before && record.expires_at() <= last_date);
    assert!(!record.is_expired(SystemTime::now()));
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records(
            numbers in vec(prop_oneof![Just(0u64), Just(u64::MAX), any::<u64>()], 4),
            version in 0u32..3,
            stray in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let [length, expires, lifetime, durable] = numbers[..] else { return Ok(()) };
            let mut text = format!(
                r#"....{{"version":{version},"target":"a/b","length":{length},"replaces":true,
                "owner":null,"client":"c","details":{{"path":"a"}},"expires":{expires},
                "lifetime":{lifetime},"boot":"b","durable":{durable}}}"#
            )
            .into_bytes();
            if let Some((at, byte)) = stray {
                let at = at.index(text.len());
                text[at] = byte;
            }
            super::upload_record(&text);
        }
    }
}
