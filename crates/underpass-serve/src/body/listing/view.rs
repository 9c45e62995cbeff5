//! The parameters, the sort order and the totals of a listing.

use std::cmp::Ordering;

use underpass_http::path::SitePath;

use crate::body::query::{ListingFormat, Query, SortDirection, SortKey, SortOrder};
use crate::rules::Offer;
use crate::site::folder::{FolderEntry, FolderEntryKind};

/// The parameters of a listing.
#[derive(Clone, Debug)]
pub(crate) struct ListingView {
    pub(crate) path: SitePath,
    /// The number of names in the path of the signed folder, above which no link leads.
    pub(crate) top: usize,
    pub(crate) format: ListingFormat,
    /// The order, the search, and the signature, which is added to links in the page.
    pub(crate) query: Query,
    pub(crate) archives: Offer,
    /// What the reader may change in the folder, if anything.
    pub(crate) changes: Option<FolderChanges>,
}

/// What the reader of a page may do in the folder besides adding files to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FolderChanges {
    /// Whether files may replace others.
    pub(crate) overwrite: Offer,
    /// Whether files and folders may be removed and renamed.
    pub(crate) delete: Offer,
}

/// Whether the rows are in the requested order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sorting {
    Sorted,
    Unsorted,
}

/// The totals of the listed entries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ListingTotals {
    pub(crate) folders: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl ListingTotals {
    pub(crate) fn count(&mut self, entry: &FolderEntry) {
        match entry.kind {
            FolderEntryKind::Folder => self.folders += 1,
            FolderEntryKind::File { size } => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(size);
            }
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.folders + self.files
    }
}

/// Whether a character is invisible or changes how others are displayed: control characters, marks
/// and overrides of the writing direction, line separators.
pub(crate) fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Sorts folders first, and numbers in names by their value.
impl SortOrder {
    pub(crate) fn sort(self, entries: &mut [FolderEntry]) {
        entries.sort_unstable_by(|one, other| self.compare(one, other));
    }

    /// Compares entries. No two are equal, since their names differ.
    fn compare(self, one: &FolderEntry, other: &FolderEntry) -> Ordering {
        let is_file = |entry: &FolderEntry| entry.kind != FolderEntryKind::Folder;
        let by_name = || natural(&one.name, &other.name);
        let by_key = match self.key {
            SortKey::Name => by_name(),
            SortKey::Size => one.size().cmp(&other.size()),
            SortKey::Date => one.changed.cmp(&other.changed),
        };
        let by_key = match self.direction {
            SortDirection::Ascending => by_key,
            SortDirection::Descending => by_key.reverse(),
        };
        let folders_first = is_file(one).cmp(&is_file(other));
        folders_first.then(by_key).then_with(by_name)
    }
}

/// Compares in natural order: `a2` before `a10`, ignoring the case of ASCII letters; if equal, by
/// bytes.
fn natural(one: &[u8], other: &[u8]) -> Ordering {
    let (mut left, mut right) = (one, other);
    while let ([first, ..], [second, ..]) = (left, right) {
        let ordering = if first.is_ascii_digit() && second.is_ascii_digit() {
            let (number, rest) = split_number(left);
            left = rest;
            let (other_number, rest) = split_number(right);
            right = rest;
            let by_length = number.len().cmp(&other_number.len());
            by_length.then_with(|| number.cmp(other_number))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            let (first, second) = (first.to_ascii_lowercase(), second.to_ascii_lowercase());
            first.cmp(&second)
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// Splits off the leading digits, without leading zeros.
fn split_number(name: &[u8]) -> (&[u8], &[u8]) {
    let end = name.iter().position(|byte| !byte.is_ascii_digit());
    let (digits, rest) = name.split_at(end.unwrap_or(name.len()));
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use underpass_http::fields::validator::FileTime;

    use super::*;

    fn entry(name: &str, kind: FolderEntryKind, seconds: i64) -> FolderEntry {
        FolderEntry {
            name: name.into(),
            kind,
            changed: FileTime {
                seconds,
                nanoseconds: 0,
            },
        }
    }

    fn sorted(key: SortKey, direction: SortDirection) -> String {
        let file = |name, size, seconds| entry(name, FolderEntryKind::File { size }, seconds);
        let mut entries = [
            file("a10", 5, 1),
            file("a2", 5, 3),
            entry("z", FolderEntryKind::Folder, 9),
            file("B", 7, 2),
            entry("y", FolderEntryKind::Folder, 0),
        ];
        SortOrder { key, direction }.sort(&mut entries);
        let names = entries.map(|entry| String::from_utf8(entry.name).unwrap());
        names.join(" ")
    }

    #[test]
    fn folders_come_first_and_numbers_count() {
        use {SortDirection::*, SortKey::*};
        assert_eq!(sorted(Name, Ascending), "y z a2 a10 B");
        assert_eq!(sorted(Name, Descending), "z y B a10 a2");
        assert_eq!(sorted(Size, Ascending), "y z a2 a10 B");
        assert_eq!(sorted(Size, Descending), "y z B a2 a10");
        assert_eq!(sorted(Date, Ascending), "y z a10 B a2");
        assert_eq!(sorted(Date, Descending), "z y a2 B a10");
    }

    #[test]
    fn numbers_of_any_length_have_their_value() {
        for (less, more) in [
            ("a9", "a10"),
            ("a009", "a10"),
            ("1.9", "1.10"),
            ("99999999999999999999998", "99999999999999999999999"),
            ("a", "a1"),
            ("a", "B"),
            ("A", "a"),
            ("01", "1"),
            ("x1y", "x1z"),
        ] {
            let ordering = natural(less.as_bytes(), more.as_bytes());
            assert_eq!(ordering, Ordering::Less, "{less} {more}");
        }
    }

    proptest! {
        #[test]
        fn it_is_an_order(names in vec(vec(prop::sample::select(&b"012aAb.-"[..]), 0..6), 3)) {
            let [a, b, c] = [&names[0], &names[1], &names[2]];
            prop_assert_eq!(natural(a, b), natural(b, a).reverse());
            prop_assert_eq!(natural(a, b).is_eq(), a == b);
            if natural(a, b).is_le() && natural(b, c).is_le() {
                prop_assert!(natural(a, c).is_le());
            }
        }
    }
}
