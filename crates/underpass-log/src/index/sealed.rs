//! The indexes of a full segment. Lookups read the files: no entries are kept in memory, and
//! frequently used ones are in the page cache.
//!
//! The files have no checksums. Recovery checks their sizes and last entries, and readers check
//! whether an entry points to the batch that it describes.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::files::disk::{self, DiskWait};
use crate::index::{OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry};

/// The number of entries read at a time once the range of the search is small enough.
const PAGE_ENTRIES: u64 = 256;

/// An index file with entries of `BYTES` bytes.
#[derive(Debug)]
pub(crate) struct IndexFile<const BYTES: usize> {
    file: File,
    entries: u64,
}

pub(crate) type OffsetFile = IndexFile<OFFSET_ENTRY_BYTES>;
pub(crate) type TimeFile = IndexFile<TIME_ENTRY_BYTES>;

impl<const BYTES: usize> IndexFile<BYTES> {
    /// Opens a file. Returns an error if it is not a regular file, ends within an entry, or has
    /// more than `entries_max` entries.
    pub(crate) fn open(path: &Path, entries_max: u64) -> io::Result<IndexFile<BYTES>> {
        let size = disk::regular_size(path)?;
        let entries = size / BYTES as u64;
        if !size.is_multiple_of(BYTES as u64) || entries > entries_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let file = File::open(path)?;
        Ok(IndexFile { file, entries })
    }

    /// Returns the last entry for which `is_before` holds, as it does for all earlier ones.
    ///
    /// # Errors
    /// `WouldBlock` if the read would wait for the disk; other I/O errors.
    fn last_before(
        &self,
        wait: DiskWait,
        is_before: impl Fn(&[u8; BYTES]) -> bool,
    ) -> io::Result<Option<[u8; BYTES]>> {
        let (mut first, mut end) = (0, self.entries);
        while end - first > PAGE_ENTRIES {
            let middle = first + (end - first) / 2;
            match is_before(&self.entry(middle, wait)?) {
                true => first = middle,
                false => end = middle,
            }
        }
        let mut page = [[0; BYTES]; PAGE_ENTRIES as usize];
        let page = &mut page[..(end - first) as usize];
        let position = first * BYTES as u64;
        disk::read_exact(&self.file, page.as_flattened_mut(), position, wait)?;
        let behind = page.partition_point(is_before);
        Ok(behind.checked_sub(1).map(|number| page[number]))
    }

    fn last(&self) -> io::Result<Option<[u8; BYTES]>> {
        let last = self.entries.checked_sub(1);
        let read = |number| self.entry(number, DiskWait::Allowed);
        last.map(read).transpose()
    }

    fn entry(&self, number: u64, wait: DiskWait) -> io::Result<[u8; BYTES]> {
        let mut entry = [0; BYTES];
        disk::read_exact(&self.file, &mut entry, number * BYTES as u64, wait)?;
        Ok(entry)
    }
}

impl OffsetFile {
    /// Returns the entry from which to search for the batch that has this relative offset, or for
    /// the next one: the last offset of the entry's batch, and its position.
    ///
    /// # Errors
    /// `WouldBlock` if the read would wait for the disk; other I/O errors.
    pub(crate) fn before(&self, offset: i64, wait: DiskWait) -> io::Result<Option<(u32, u64)>> {
        let entry = self.last_before(wait, |entry| {
            i64::from(OffsetEntry::of(entry).offset) <= offset
        })?;
        Ok(entry
            .map(|entry| OffsetEntry::of(&entry))
            .map(|entry| (entry.offset, entry.position.into())))
    }

    /// Returns the last entry: the relative last offset of a batch, and its position.
    ///
    /// # Errors
    /// `InvalidData` if the entry is outside a segment with this many bytes and offsets; other I/O
    /// errors.
    pub(crate) fn last_within(&self, size: u64, offsets: i64) -> io::Result<Option<(u32, u64)>> {
        let entry = self.last()?.map(|entry| OffsetEntry::of(&entry));
        let last = entry.map(|entry| (entry.offset, u64::from(entry.position)));
        // The first batch has no entry.
        let is_within =
            |(offset, position)| (1..size).contains(&position) && i64::from(offset) < offsets;
        match last.is_none_or(is_within) {
            true => Ok(last),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl TimeFile {
    /// Returns the last entry with an earlier timestamp, and its relative offset.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn before(&self, timestamp: i64) -> io::Result<Option<(i64, u32)>> {
        let entry = self.last_before(DiskWait::Allowed, |entry| {
            TimeEntry::of(entry).timestamp < timestamp
        })?;
        let entry = entry.map(|entry| TimeEntry::of(&entry));
        Ok(entry.map(|entry| (entry.timestamp, entry.offset)))
    }

    /// Returns the largest timestamp, and the relative last offset of its batch.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn largest(&self) -> io::Result<Option<(i64, u32)>> {
        let last = self.last()?.map(|entry| TimeEntry::of(&entry));
        Ok(last.map(|last| (last.timestamp, last.offset)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::index::tests::indexed;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn files_say_what_the_index_in_memory_says(
            batches in prop::collection::vec((1i32..50, 0usize..300, 0i64..100), 1..900),
        ) {
            let (mut index, places) = indexed(&batches, 0);
            index.seal();
            let folder = tempfile::tempdir().unwrap();
            let paths = ["index", "timeindex"].map(|name| folder.path().join(name));
            let (offsets, times) = index.files();
            fs::write(&paths[0], offsets).unwrap();
            fs::write(&paths[1], times).unwrap();
            let offsets = OffsetFile::open(&paths[0], 1000).unwrap();
            let times = TimeFile::open(&paths[1], 1000).unwrap();
            for place in &places {
                for offset in [place.base_offset, place.last_offset] {
                    let found = offsets.before(offset - 100, DiskWait::Forbidden).unwrap();
                    prop_assert_eq!(found, index.before_offset(offset - 100));
                }
            }
            for timestamp in 0..101 {
                let found = times.before(timestamp).unwrap();
                let before = found.map_or(100, |(_, offset)| 100 + i64::from(offset));
                prop_assert_eq!(before, index.before_time(timestamp));
            }
            let largest = times.largest().unwrap();
            let largest = largest.map(|(time, offset)| (time, 100 + i64::from(offset)));
            prop_assert_eq!(largest, index.largest_timestamp());
            let last = places.last().unwrap();
            let (end, size) = (last.last_offset - 99, last.position + last.size);
            prop_assert!(offsets.last_within(size, end).is_ok());
            prop_assert!(places.len() == 1 || offsets.last_within(last.position, end).is_err());
            prop_assert!(OffsetFile::open(&paths[0], places.len() as u64 - 1).is_ok());
            prop_assert!(places.len() < 3 || OffsetFile::open(&paths[0], 1).is_err());
        }
    }
}
