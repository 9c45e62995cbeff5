//! Writes response fields: names, numbers, dates and file names.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Appends a field, which starts with the line break that ends the previous line.
pub fn push_field(head: &mut Vec<u8>, name: &str, value: impl AsRef<[u8]>) {
    for part in [b"\r\n", name.as_bytes(), b": ", value.as_ref()] {
        head.extend_from_slice(part);
    }
}

/// Appends `number` in decimal.
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The length of a date in HTTP's preferred form.
pub const DATE_BYTES: usize = 29;

/// Formats dates, caching the last one.
#[derive(Debug, Default)]
pub struct Clock {
    written: Cell<(u64, [u8; DATE_BYTES])>,
}

impl Clock {
    /// Returns `now` as a date. A time before 1970 is shown as 1970.
    pub fn date(&self, now: SystemTime) -> [u8; DATE_BYTES] {
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

/// Formats a date.
pub fn date_bytes(date: HttpDate) -> [u8; DATE_BYTES] {
    let mut bytes = [b' '; DATE_BYTES];
    let written = date.to_string();
    bytes[..written.len()].copy_from_slice(written.as_bytes());
    bytes
}

/// The characters to encode in the extended form of RFC 8187: all but `attr-char`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Appends `Content-Disposition` (RFC 6266) for a download with this file name. Characters that
/// cannot be quoted, or that browsers interpret in two ways, are replaced by underscores in the
/// plain form; the extended form, which every browser prefers, has them all. In a name that is not
/// UTF-8, the invalid bytes are replaced.
pub fn push_attachment(head: &mut Vec<u8>, name: &[u8]) {
    let name = String::from_utf8_lossy(name);
    head.extend_from_slice(b"\r\nContent-Disposition: attachment; filename=\"");
    let plain = |letter: char| match letter {
        '"' | '\\' | '%' => b'_',
        ' '..='~' => letter as u8,
        _ => b'_',
    };
    head.extend(name.chars().map(plain));
    head.push(b'"');
    if name
        .chars()
        .any(|letter| plain(letter) as u32 != letter as u32)
    {
        head.extend_from_slice(b"; filename*=UTF-8''");
        for part in percent_encode(name.as_bytes(), ENCODED) {
            head.extend_from_slice(part.as_bytes());
        }
    }
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
        for clock in [clock, Clock::default()] {
            assert_eq!(&clock.date(before), b"Thu, 01 Jan 1970 00:00:00 GMT");
        }
    }

    fn written(name: &[u8]) -> String {
        let mut head = Vec::new();
        push_attachment(&mut head, name);
        let text = String::from_utf8(head).unwrap();
        text.strip_prefix("\r\nContent-Disposition: attachment; ")
            .unwrap()
            .to_owned()
    }

    #[test]
    fn names_beyond_ascii_are_encoded_and_none_breaks_out() {
        assert_eq!(written(b"a b.txt"), "filename=\"a b.txt\"");
        assert_eq!(
            written("Bücher.txt".as_bytes()),
            "filename=\"B_cher.txt\"; filename*=UTF-8''B%C3%BCcher.txt"
        );
        assert_eq!(
            written(b"a\"; x=\"\r\nb\\%41"),
            "filename=\"a_; x=___b__41\"; filename*=UTF-8''a%22%3B%20x%3D%22%0D%0Ab%5C%2541"
        );
        assert_eq!(
            written(b"\xff"),
            "filename=\"_\"; filename*=UTF-8''%EF%BF%BD"
        );
    }

    proptest::proptest! {
        #[test]
        fn a_field_is_one_line(name in proptest::collection::vec(0u8.., 0..32)) {
            let line = written(&name);
            proptest::prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            proptest::prop_assert_eq!(line.matches('"').count(), 2);
        }
    }
}
