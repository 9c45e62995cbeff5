//! The indexes of a segment, from offsets and timestamps to positions in its file.
//!
//! ```text
//!  .index       i32 offset above the base, i32 position of its batch      8 bytes
//!  .timeindex   i64 largest timestamp so far, i32 offset above the base  12 bytes
//! ```
//!
//! A batch gets an entry when some KiB were written since the last entry, so that a lookup reads
//! only a few headers after an entry. The indexes of the active segment are in memory
//! (`SegmentIndex`) and are written when it is full; later lookups read the files (`sealed`).
//! Missing entries are rebuilt from the log.

pub(crate) mod sealed;

use std::collections::VecDeque;

use crate::batch::BatchHeader;

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;

/// The number of latest batches whose positions are kept: consumers at the end of the log find the
/// next batch without reading the file.
const RECENT_BATCHES: usize = 128;

/// The indexes of one segment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SegmentIndex {
    base: i64,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
    recent: VecDeque<BatchPlace>,
    /// Bytes since the latest entry.
    bytes_since: u64,
    largest: Option<TimeEntry>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct OffsetEntry {
    offset: u32,
    position: u32,
}

impl OffsetEntry {
    fn of(entry: &[u8; OFFSET_ENTRY_BYTES]) -> OffsetEntry {
        OffsetEntry {
            offset: number(entry, 0),
            position: number(entry, 4),
        }
    }
}

/// The largest timestamp so far, and the last offset of its batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct TimeEntry {
    timestamp: i64,
    offset: u32,
}

impl TimeEntry {
    fn of(entry: &[u8; TIME_ENTRY_BYTES]) -> TimeEntry {
        let timestamp = u64::from(number(entry, 0)) << 32 | u64::from(number(entry, 4));
        TimeEntry {
            timestamp: timestamp.cast_signed(),
            offset: number(entry, 8),
        }
    }
}

/// The position and the offsets of a batch in a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BatchPlace {
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) position: u64,
    pub(crate) size: u64,
}

impl BatchPlace {
    pub(crate) fn of(header: &BatchHeader, position: u64) -> BatchPlace {
        BatchPlace {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            position,
            size: header.size as u64,
        }
    }
}

impl SegmentIndex {
    /// Makes the index of an empty segment.
    pub(crate) fn new(base: i64) -> SegmentIndex {
        SegmentIndex {
            base,
            ..SegmentIndex::default()
        }
    }

    /// Adds a batch written at `position`. `interval` is in bytes.
    pub(crate) fn add(&mut self, header: &BatchHeader, position: u64, interval: u64) {
        let relative = (header.last_offset() - self.base) as u32;
        let (timestamp, offset) = (header.max_timestamp, relative);
        let is_later = |largest: TimeEntry| timestamp > largest.timestamp;
        if header.count > 0 && self.largest.is_none_or(is_later) {
            self.largest = Some(TimeEntry { timestamp, offset });
        }
        // An entry cannot hold larger positions: later batches are searched from the last entry on.
        if self.bytes_since > interval && position <= u64::from(u32::MAX) {
            self.offsets.push(OffsetEntry {
                offset: relative,
                position: position as u32,
            });
            self.add_time();
            self.bytes_since = 0;
        }
        self.bytes_since += header.size as u64;
        if self.recent.len() == RECENT_BATCHES {
            self.recent.pop_front();
        }
        self.recent.push_back(BatchPlace::of(header, position));
    }

    fn add_time(&mut self) {
        let Some(largest) = self.largest else { return };
        let is_later = |last: &TimeEntry| largest.timestamp > last.timestamp;
        if self.times.last().is_none_or(is_later) {
            self.times.push(largest);
        }
    }

    /// Adds a last entry for the largest timestamp. The segment is full.
    pub(crate) fn seal(&mut self) {
        self.add_time();
        self.recent = VecDeque::new();
    }

    /// Returns the entry from which to search for the batch that has this relative offset, or for
    /// the next one: the last offset of the entry's batch, and its position.
    pub(crate) fn before_offset(&self, offset: i64) -> Option<(u32, u64)> {
        let behind = self
            .offsets
            .partition_point(|entry| i64::from(entry.offset) <= offset);
        let before = behind.checked_sub(1).map(|number| self.offsets[number])?;
        Some((before.offset, before.position.into()))
    }

    /// Returns the place of the latest batch, if one was added since the index was made.
    pub(crate) fn last(&self) -> Option<BatchPlace> {
        self.recent.back().copied()
    }

    /// Encodes the index without the places of the latest batches.
    pub(crate) fn checkpoint(&self) -> Vec<u8> {
        let (offsets, times) = self.files();
        let (timestamp, offset) = self
            .largest
            .map_or((i64::MIN, 0), |largest| (largest.timestamp, largest.offset));
        let mut content = self.bytes_since.to_be_bytes().to_vec();
        content.extend(timestamp.to_be_bytes());
        content.extend(offset.to_be_bytes());
        content.extend((self.offsets.len() as u32).to_be_bytes());
        content.extend(offsets);
        content.extend(times);
        content
    }

    /// Decodes the index of a segment of `size` bytes; `None` if it is inconsistent.
    pub(crate) fn of_checkpoint(base: i64, content: &[u8], size: u64) -> Option<SegmentIndex> {
        let (bytes_since, content) = content.split_first_chunk::<8>()?;
        let (largest, content) = content.split_first_chunk::<TIME_ENTRY_BYTES>()?;
        let (count, content) = content.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
        let (offsets, times) = content.split_at_checked(count.checked_mul(OFFSET_ENTRY_BYTES)?)?;
        let (offsets, _) = offsets.as_chunks::<OFFSET_ENTRY_BYTES>();
        let (times, rest) = times.as_chunks::<TIME_ENTRY_BYTES>();
        let index = SegmentIndex {
            base,
            offsets: offsets.iter().map(OffsetEntry::of).collect(),
            times: times.iter().map(TimeEntry::of).collect(),
            recent: VecDeque::new(),
            bytes_since: u64::from_be_bytes(*bytes_since).min(size),
            largest: Some(TimeEntry::of(largest)),
        };
        let rises = index
            .offsets
            .is_sorted_by(|one, other| one.offset < other.offset && one.position < other.position);
        let times_rise = index.times.is_sorted_by_key(|entry| entry.timestamp);
        let last = index.offsets.last().map_or(0, |last| last.position);
        (rest.is_empty() && rises && times_rise && u64::from(last) <= size).then_some(index)
    }

    /// Returns the batch with this offset, or the next one, if it is among the latest.
    pub(crate) fn recent(&self, offset: i64) -> Option<BatchPlace> {
        let is_covered = self.recent.front()?.base_offset <= offset;
        let number = self
            .recent
            .partition_point(|batch| batch.last_offset < offset);
        self.recent.get(number).copied().filter(|_| is_covered)
    }

    /// Returns the offset from which to search for the first batch that reaches a timestamp.
    pub(crate) fn before_time(&self, timestamp: i64) -> i64 {
        let behind = self
            .times
            .partition_point(|entry| entry.timestamp < timestamp);
        let before = behind.checked_sub(1).map(|number| self.times[number]);
        self.base + before.map_or(0, |entry| i64::from(entry.offset))
    }

    /// Returns the largest timestamp and the last offset of its batch.
    pub(crate) fn largest_timestamp(&self) -> Option<(i64, i64)> {
        let largest = self.largest?;
        Some((largest.timestamp, self.base + i64::from(largest.offset)))
    }

    /// Whether one more entry after `pending` others would make a file larger than `bytes`.
    pub(crate) fn is_full(&self, bytes: u64, pending: usize) -> bool {
        let offsets = (self.offsets.len() + pending + 1) * OFFSET_ENTRY_BYTES;
        let times = (self.times.len() + pending + 2) * TIME_ENTRY_BYTES;
        offsets.max(times) as u64 > bytes
    }

    /// Returns the content of the two index files.
    pub(crate) fn files(&self) -> (Vec<u8>, Vec<u8>) {
        let offsets = self.offsets.iter();
        let offsets = offsets.flat_map(|entry| [entry.offset, entry.position]);
        let offsets = offsets.flat_map(u32::to_be_bytes).collect();
        let mut times = Vec::with_capacity(self.times.len() * TIME_ENTRY_BYTES);
        for entry in &self.times {
            times.extend_from_slice(&entry.timestamp.to_be_bytes());
            times.extend_from_slice(&entry.offset.to_be_bytes());
        }
        (offsets, times)
    }
}

fn number(entry: &[u8], at: usize) -> u32 {
    let bytes = &entry[at..at + 4];
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::{self, tests::batch};

    /// An index of consecutive batches of these sizes and timestamps.
    pub(crate) fn indexed(
        batches: &[(i32, usize, i64)],
        interval: u64,
    ) -> (SegmentIndex, Vec<BatchPlace>) {
        let (mut index, mut places) = (SegmentIndex::new(100), Vec::new());
        let (mut offset, mut position) = (100, 0);
        for (count, bytes, timestamp) in batches {
            let mut bytes = batch(*count, *bytes, *timestamp);
            batch::tests::put_place(&mut bytes, offset, 0);
            let header = BatchHeader::parse(&bytes).unwrap();
            index.add(&header, position, interval);
            places.push(BatchPlace::of(&header, position));
            offset = header.next_offset();
            position += header.size as u64;
        }
        (index, places)
    }

    proptest! {
        #[test]
        fn a_lookup_begins_at_or_before_its_batch(
            batches in prop::collection::vec((1i32..50, 0usize..3000, 0i64..100), 1..200),
            interval in 0u64..5000,
        ) {
            let (mut index, places) = indexed(&batches, interval);
            index.seal();
            for place in &places {
                for offset in [place.base_offset, place.last_offset] {
                    let from = index.before_offset(offset - 100);
                    let from = from.map_or(0, |(_, position)| position);
                    prop_assert!(from <= place.position);
                    let skipped = place.position - from;
                    let largest = batches.iter().map(|(_, bytes, _)| bytes + 61).max();
                    prop_assert!(skipped <= interval + 2 * largest.unwrap_or(0) as u64);
                }
            }
            for timestamp in 0..100 {
                let first = places.iter().zip(&batches).find(|(_, batch)| batch.2 >= timestamp);
                if let Some((place, _)) = first {
                    prop_assert!(index.before_time(timestamp) <= place.last_offset);
                }
            }
            let again = SegmentIndex::of_checkpoint(100, &index.checkpoint(), u64::MAX).unwrap();
            prop_assert_eq!(&again, &index);
            let largest = batches.iter().map(|batch| batch.2).max();
            prop_assert_eq!(index.largest_timestamp().map(|(time, _)| time), largest);
        }
    }

    #[test]
    fn the_latest_batches_are_found_without_the_file() {
        let batches = vec![(10, 100, 0); 300];
        let (index, places) = indexed(&batches, 4096);
        for place in &places[300 - RECENT_BATCHES..] {
            assert_eq!(index.recent(place.base_offset), Some(*place));
            assert_eq!(index.recent(place.last_offset), Some(*place));
        }
        assert_eq!(index.recent(places[10].base_offset), None);
        assert_eq!(index.recent(places[299].last_offset + 1), None);
    }
}
