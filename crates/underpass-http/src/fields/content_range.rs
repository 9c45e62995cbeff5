//! `Content-Range`: RFC 9110, section 14.4.

use crate::fields::range::ByteRange;
use crate::fields::writer::push_decimal;
use crate::token::decimal;

/// The value of a `Content-Range` field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ContentRange {
    /// The part that is sent.
    Part {
        /// The range, which lies within the file.
        range: ByteRange,
        /// The size of the file, if it is known.
        size: Option<u64>,
    },
    /// No part of the file is sent, which has this size (416).
    Unsatisfied(u64),
}

impl ContentRange {
    /// Parses `bytes first-last/size`, `bytes first-last/*` or `bytes */size`. Returns `None` if
    /// the value is invalid: another unit, a range that ends before it starts or after the file.
    pub fn parse(value: &[u8]) -> Option<ContentRange> {
        let (unit, rest) = value.split_at_checked(b"bytes ".len())?;
        let rest = unit.eq_ignore_ascii_case(b"bytes ").then_some(rest)?;
        let (part, size) = split(rest, b'/')?;
        let size = match size {
            b"*" => None,
            digits => Some(decimal(digits)?),
        };
        if part == b"*" {
            return size.map(ContentRange::Unsatisfied);
        }
        let (first, last) = split(part, b'-')?;
        let (first, last) = (decimal(first)?, decimal(last)?);
        let length = last.checked_sub(first)?.checked_add(1)?;
        let range = ByteRange { first, length };
        let is_within = size.is_none_or(|size| last < size);
        is_within.then_some(ContentRange::Part { range, size })
    }

    /// Appends the value to a head.
    pub fn push_to(self, head: &mut Vec<u8>) {
        match self {
            ContentRange::Part {
                range,
                size: Some(size),
            } => push_content_range(head, range, size),
            ContentRange::Part { range, size: None } => {
                push_part(head, range);
                head.push(b'*');
            }
            ContentRange::Unsatisfied(size) => {
                head.extend_from_slice(b"bytes */");
                push_decimal(head, size);
            }
        }
    }
}

/// Appends the value for a range of a file of `size` bytes.
pub fn push_content_range(head: &mut Vec<u8>, range: ByteRange, size: u64) {
    push_part(head, range);
    push_decimal(head, size);
}

fn push_part(head: &mut Vec<u8>, range: ByteRange) {
    head.extend_from_slice(b"bytes ");
    push_decimal(head, range.first);
    head.push(b'-');
    push_decimal(head, range.first + (range.length - 1));
    head.push(b'/');
}

fn split(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == mark)?;
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(first: u64, length: u64, size: Option<u64>) -> Option<ContentRange> {
        let range = ByteRange { first, length };
        Some(ContentRange::Part { range, size })
    }

    #[test]
    fn parts_sizes_and_what_cannot_be_satisfied() {
        for (value, expected) in [
            ("bytes 0-9/1000", part(0, 10, Some(1000))),
            ("Bytes 999-999/1000", part(999, 1, Some(1000))),
            ("bytes 0-0/*", part(0, 1, None)),
            ("bytes 005-09/0010", part(5, 5, Some(10))),
            ("bytes 1-18446744073709551615/*", part(1, u64::MAX, None)),
            ("bytes */0", Some(ContentRange::Unsatisfied(0))),
            ("bytes */1000", Some(ContentRange::Unsatisfied(1000))),
        ] {
            assert_eq!(ContentRange::parse(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_invalid() {
        for value in [
            "",
            "bytes",
            "bytes ",
            "bytes=0-9/10",
            "items 0-9/10",
            "bytes  0-9/10",
            "bytes 0-9",
            "bytes 0-9/",
            "bytes 0-9/10 ",
            "bytes 0-9/10/10",
            "bytes 0-/10",
            "bytes -9/10",
            "bytes 9-0/10",
            "bytes 0-10/10",
            "bytes 10-10/10",
            "bytes 0-0/0",
            "bytes */*",
            "bytes +0-9/10",
            "bytes 0-9/-1",
            "bytes 0x0-9/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-18446744073709551616/*",
            "bytes 0-9/18446744073709551616",
        ] {
            assert_eq!(ContentRange::parse(value.as_bytes()), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(first in any::<u64>(), more in 0u64..1000, beyond in 0u64..9) {
            let last = first.saturating_add(more);
            prop_assume!(last < u64::MAX);
            let range = ByteRange { first, length: last - first + 1 };
            for written in [
                ContentRange::Part { range, size: last.checked_add(1 + beyond) },
                ContentRange::Part { range, size: None },
                ContentRange::Unsatisfied(first),
            ] {
                let mut value = Vec::new();
                written.push_to(&mut value);
                prop_assert_eq!(ContentRange::parse(&value), Some(written));
            }
        }

        #[test]
        fn no_value_panics(value in "(bytes )?[0-9*/ -]{0,24}") {
            let _ = ContentRange::parse(value.as_bytes());
        }
    }
}
