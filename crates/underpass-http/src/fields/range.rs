//! Byte ranges: RFC 9110, section 14. Selects the ranges to send from `Range` and a size.
//!
//! An invalid range is ignored, never guessed at; for a set that would cost more than the whole
//! file, the whole file is sent.

use crate::limits::UNSORTED_RANGES_MAX;

/// A part of a file. Never empty.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ByteRange {
    /// The offset of the first byte.
    pub first: u64,
    /// The number of bytes.
    pub length: u64,
}

/// The selection made by `Range`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RangeSelection {
    /// The whole file: `Range` is absent or invalid.
    Whole,
    /// One range.
    One(ByteRange),
    /// Two or more disjoint ranges, in the requested order.
    Several(Vec<ByteRange>),
}

impl ByteRange {
    /// Returns the range of all `size` bytes.
    pub fn whole(size: u64) -> ByteRange {
        ByteRange {
            first: 0,
            length: size,
        }
    }

    fn end(self) -> u64 {
        self.first + self.length
    }

    fn overlaps(self, other: ByteRange) -> bool {
        self.first < other.end() && other.first < self.end()
    }

    fn union(self, other: ByteRange) -> ByteRange {
        let first = self.first.min(other.first);
        ByteRange {
            first,
            length: self.end().max(other.end()) - first,
        }
    }
}

/// Applies the value of a `Range` field to a file of `size` bytes. More than `ranges_max` ranges
/// select the whole file. `None` means unsatisfiable: none of the ranges starts within the file.
pub fn select(value: &[u8], size: u64, ranges_max: usize) -> Option<RangeSelection> {
    let set = byte_set(value).filter(|_| size > 0);
    let asked = set.and_then(|set| spans(set, size, ranges_max));
    match asked {
        None => Some(RangeSelection::Whole),
        Some(asked) if asked.is_empty() => None,
        Some(asked) if is_excessive(&asked, size) => Some(RangeSelection::Whole),
        Some(asked) => Some(match *coalesced(asked) {
            [only] => RangeSelection::One(only),
            ref several => RangeSelection::Several(several.to_vec()),
        }),
    }
}

/// Returns the part after `bytes=`.
fn byte_set(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// Returns the satisfiable ranges of a set; `None` if a member is invalid, or if the set is empty
/// or too large.
fn spans(set: &[u8], size: u64, ranges_max: usize) -> Option<Vec<ByteRange>> {
    let members = set
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty());
    let mut spans = Vec::new();
    let mut count = 0;
    for member in members {
        count += 1;
        if count > ranges_max {
            return None;
        }
        spans.extend(span(member, size)?);
    }
    (count > 0).then_some(spans)
}

/// Parses one range: `None` if it is invalid, `Some(None)` if it starts past the end of the file.
fn span(member: &[u8], size: u64) -> Option<Option<ByteRange>> {
    let dash = member.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&member[..dash], &member[dash + 1..]);
    if first.is_empty() {
        let length = number(last)?.min(size);
        let suffix = ByteRange {
            first: size - length,
            length,
        };
        return Some((length > 0).then_some(suffix));
    }
    let first = number(first)?;
    let last = match last {
        [] => u64::MAX,
        _ => number(last)?,
    };
    if last < first {
        return None;
    }
    let length = last.min(size - 1).saturating_sub(first).saturating_add(1);
    Some((first < size).then_some(ByteRange { first, length }))
}

/// Parses digits; a number that is too large is clamped to the maximum.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0u64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

/// Whether serving the set would cost more than the whole file.
fn is_excessive(asked: &[ByteRange], size: u64) -> bool {
    let total = asked
        .iter()
        .fold(0u64, |total, span| total.saturating_add(span.length));
    let ascending = asked.is_sorted_by_key(|span| span.first);
    total > size || (asked.len() > UNSORTED_RANGES_MAX && !ascending)
}

/// Merges overlapping ranges. A merged range takes the position of its first part.
fn coalesced(asked: Vec<ByteRange>) -> Vec<ByteRange> {
    let mut disjoint: Vec<ByteRange> = Vec::with_capacity(asked.len());
    for mut span in asked {
        let mut place = disjoint.len();
        while let Some(index) = disjoint.iter().rposition(|known| known.overlaps(span)) {
            span = span.union(disjoint.remove(index));
            place = index;
        }
        disjoint.insert(place.min(disjoint.len()), span);
    }
    disjoint
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const RANGES_MAX: usize = 128;

    fn select(value: &[u8], size: u64) -> Option<RangeSelection> {
        super::select(value, size, RANGES_MAX)
    }

    fn of_1000(value: &str) -> Vec<(u64, u64)> {
        let pair = |span: &ByteRange| (span.first, span.end() - 1);
        match select(value.as_bytes(), 1000) {
            Some(RangeSelection::Whole) => vec![(0, 0), (0, 0)],
            None => vec![],
            Some(RangeSelection::One(span)) => vec![pair(&span)],
            Some(RangeSelection::Several(spans)) => spans.iter().map(pair).collect(),
        }
    }

    const WHOLE: [(u64, u64); 2] = [(0, 0), (0, 0)];

    #[test]
    fn single_ranges() {
        for (value, expected) in [
            ("bytes=0-9", (0, 9)),
            ("bytes=990-2000", (990, 999)),
            ("bytes=999-", (999, 999)),
            ("bytes=-5", (995, 999)),
            ("bytes=-2000", (0, 999)),
            ("bytes=0-99999999999999999999999", (0, 999)),
            ("BYTES=0-9", (0, 9)),
            ("bytes=,,0-9", (0, 9)),
            ("bytes= 0-9 ,", (0, 9)),
        ] {
            assert_eq!(of_1000(value), [expected], "{value}");
        }
    }

    #[test]
    fn what_lies_behind_the_end_is_unsatisfiable() {
        for value in [
            "bytes=-0",
            "bytes=1000-",
            "bytes=99999999999999999999999-",
            "bytes=1000-,-0",
        ] {
            assert_eq!(of_1000(value), [], "{value}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_ignored() {
        for value in [
            "bytes=5-2",
            "bytes=abc",
            "bytes=",
            "bytes=,",
            "bytes = 0-9",
            "items=0-9",
            "bytes=0-9,5-2",
            "bytes=0-9,x",
            "bytes=0-9, bytes=0-9",
            "bytes=-",
            "bytes=--5",
            "bytes=0-9-",
            "bytes=+0-9",
            "bytes=0 - 9",
            "",
        ] {
            assert_eq!(of_1000(value), WHOLE, "{value}");
        }
        assert_eq!(select(b"bytes=0-9", 0), Some(RangeSelection::Whole));
    }

    #[test]
    fn several_ranges() {
        for (value, expected) in [
            ("bytes=0-0,-1", &[(0, 0), (999, 999)][..]),
            ("bytes=0-9,20-29", &[(0, 9), (20, 29)]),
            ("bytes=20-29,0-9", &[(20, 29), (0, 9)]),
            ("bytes=0-9,10-19", &[(0, 9), (10, 19)]),
            ("bytes=10-19,0-9", &[(10, 19), (0, 9)]),
            ("bytes=0-9,5-14", &[(0, 14)]),
            ("bytes=0-9,0-9,0-9", &[(0, 9)]),
            ("bytes=0-9, 2000-", &[(0, 9)]),
            ("bytes=0-9,20-29,5-24", &[(0, 29)]),
            ("bytes=50-59,0-9,20-29,5-24", &[(50, 59), (0, 29)]),
        ] {
            assert_eq!(of_1000(value), expected, "{value}");
        }
    }

    #[test]
    fn excess_is_answered_with_the_whole() {
        assert_eq!(of_1000("bytes=0-,0-"), WHOLE);
        let set = |count: usize| {
            let members: Vec<_> = (0..count).map(|i| format!("{}-{}", i * 2, i * 2)).collect();
            members
        };
        let ascending = |count| format!("bytes={}", set(count).join(","));
        assert_eq!(of_1000(&ascending(RANGES_MAX)).len(), RANGES_MAX);
        assert_eq!(of_1000(&ascending(RANGES_MAX + 1)), WHOLE);
        let descending = |count| {
            let mut members = set(count);
            members.reverse();
            format!("bytes={}", members.join(","))
        };
        let allowed = of_1000(&descending(UNSORTED_RANGES_MAX));
        assert_eq!(allowed.len(), UNSORTED_RANGES_MAX);
        assert_eq!(of_1000(&descending(UNSORTED_RANGES_MAX + 1)), WHOLE);
    }

    proptest! {
        #[test]
        fn what_is_selected_is_what_was_asked_for(
            size in 1u64..200,
            asked in vec((0u64..220, 0u64..40), 1..10),
        ) {
            let members: Vec<_> =
                asked.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
            let wanted = |byte: u64| {
                asked.iter().any(|(first, more)| (*first..=first + more).contains(&byte))
            };
            let spans = match select(format!("bytes={}", members.join(",")).as_bytes(), size) {
                Some(RangeSelection::One(span)) => vec![span],
                Some(RangeSelection::Several(spans)) => spans,
                None => {
                    prop_assert!((0..size).all(|byte| !wanted(byte)));
                    return Ok(());
                }
                Some(RangeSelection::Whole) => return Ok(()),
            };
            for byte in 0..size {
                let has = |span: &&ByteRange| (span.first..span.end()).contains(&byte);
                prop_assert_eq!(spans.iter().filter(has).count(), usize::from(wanted(byte)));
            }
            prop_assert!(spans.iter().all(|span| span.length > 0 && span.end() <= size));
        }

        #[test]
        fn no_value_panics(value in vec(any::<u8>(), 0..40), size in any::<u64>()) {
            let _ = select(&value, size);
            let _ = select(&[b"bytes=", &value[..]].concat(), size);
        }
    }
}
