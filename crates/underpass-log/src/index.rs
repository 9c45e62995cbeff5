//! The indexes of a segment: where offsets and times are in its file.
//!
//! ```text
//!  .index       i32 offset above the base, i32 position of its batch      8 bytes
//!  .timeindex   i64 largest timestamp so far, i32 offset above the base  12 bytes
//! ```
//!
//! An entry is added when some KiB were written since the one before, so that a lookup reads a few
//! headers behind an entry. Indexes are held in memory and written behind; what is missing in a
//! file is found again from the log.

use std::collections::VecDeque;

use crate::batch::BatchHeader;

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;

/// Batches at the end of which the places are known: consumers that have read everything find the
/// next batch without looking into the file.
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

/// The largest timestamp so far, and the last offset of its batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct TimeEntry {
    timestamp: i64,
    offset: u32,
}

/// Where a batch is.
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
    /// Of an empty segment.
    pub(crate) fn new(base: i64) -> SegmentIndex {
        SegmentIndex {
            base,
            ..SegmentIndex::default()
        }
    }

    /// Reads the files of a segment whose log has `size` bytes; nothing if they contradict
    /// themselves or the size.
    pub(crate) fn of_files(base: i64, offsets: &[u8], times: &[u8], size: u64) -> Option<Self> {
        let is_whole = offsets.len().is_multiple_of(OFFSET_ENTRY_BYTES)
            && times.len().is_multiple_of(TIME_ENTRY_BYTES);
        let offsets: Vec<_> = offsets
            .chunks_exact(OFFSET_ENTRY_BYTES)
            .map(|entry| OffsetEntry {
                offset: number(&entry[..4]),
                position: number(&entry[4..]),
            })
            .collect();
        let times: Vec<_> = times
            .chunks_exact(TIME_ENTRY_BYTES)
            .map(|entry| TimeEntry {
                timestamp: (u64::from(number(&entry[..4])) << 32 | u64::from(number(&entry[4..8])))
                    .cast_signed(),
                offset: number(&entry[8..]),
            })
            .collect();
        let rise = offsets
            .windows(2)
            .all(|two| two[0].offset < two[1].offset && two[0].position < two[1].position);
        let times_rise = times
            .windows(2)
            .all(|two| two[0].timestamp <= two[1].timestamp && two[0].offset <= two[1].offset);
        let fits = offsets
            .last()
            .is_none_or(|last| u64::from(last.position) < size);
        (is_whole && rise && times_rise && fits).then(|| SegmentIndex {
            base,
            offsets,
            largest: times.last().copied(),
            times,
            recent: VecDeque::new(),
            bytes_since: 0,
        })
    }

    /// Adds a batch that was written at `position`. `interval` in bytes.
    pub(crate) fn add(&mut self, header: &BatchHeader, position: u64, interval: u64) {
        let relative = (header.last_offset() - self.base) as u32;
        let (timestamp, offset) = (header.max_timestamp, relative);
        if self
            .largest
            .is_none_or(|largest| timestamp > largest.timestamp)
        {
            self.largest = Some(TimeEntry { timestamp, offset });
        }
        if self.bytes_since > interval {
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

    /// Nothing is added any more: the largest timestamp gets its entry.
    pub(crate) fn seal(&mut self) {
        self.add_time();
        self.recent = VecDeque::new();
    }

    /// The position to look for a batch from that has this offset, or the first one behind it.
    pub(crate) fn before_offset(&self, offset: i64) -> u64 {
        let relative = offset - self.base;
        let behind = self
            .offsets
            .partition_point(|entry| i64::from(entry.offset) <= relative);
        let before = behind.checked_sub(1).map(|number| self.offsets[number]);
        before.map_or(0, |entry| u64::from(entry.position))
    }

    /// The batch with this offset, or the first one behind it, if it is among the latest ones.
    pub(crate) fn recent(&self, offset: i64) -> Option<BatchPlace> {
        let is_covered = self.recent.front()?.base_offset <= offset;
        let number = self
            .recent
            .partition_point(|batch| batch.last_offset < offset);
        self.recent.get(number).copied().filter(|_| is_covered)
    }

    /// The offset from which on a batch has to be looked for that reaches a timestamp.
    pub(crate) fn before_time(&self, timestamp: i64) -> i64 {
        let behind = self
            .times
            .partition_point(|entry| entry.timestamp < timestamp);
        let before = behind.checked_sub(1).map(|number| self.times[number]);
        self.base + before.map_or(0, |entry| i64::from(entry.offset))
    }

    /// The largest timestamp, and the last offset of its batch.
    pub(crate) fn largest_timestamp(&self) -> Option<(i64, i64)> {
        let largest = self.largest?;
        Some((largest.timestamp, self.base + i64::from(largest.offset)))
    }

    /// Whether one more entry would make a file larger than `bytes`.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        let offsets = (self.offsets.len() + 1) * OFFSET_ENTRY_BYTES;
        let times = (self.times.len() + 2) * TIME_ENTRY_BYTES;
        offsets.max(times) as u64 > bytes
    }

    /// What the two files hold.
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

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::{self, tests::batch};

    /// Batches of these sizes and timestamps, one behind the other.
    fn indexed(batches: &[(i32, usize, i64)], interval: u64) -> (SegmentIndex, Vec<BatchPlace>) {
        let (mut index, mut places) = (SegmentIndex::new(100), Vec::new());
        let (mut offset, mut position) = (100, 0);
        for (count, bytes, timestamp) in batches {
            let mut bytes = batch(*count, *bytes, *timestamp);
            batch::place(&mut bytes, offset, 0);
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
            let end = places.last().map_or(0, |last| last.position + last.size);
            let (offsets, times) = index.files();
            let read = SegmentIndex::of_files(100, &offsets, &times, end).unwrap();
            for place in &places {
                for offset in [place.base_offset, place.last_offset] {
                    let from = read.before_offset(offset);
                    prop_assert!(from <= place.position);
                    let skipped = place.position - from;
                    let largest = batches.iter().map(|(_, bytes, _)| bytes + 61).max();
                    prop_assert!(skipped <= interval + 2 * largest.unwrap_or(0) as u64);
                }
            }
            for timestamp in 0..100 {
                let first = places.iter().zip(&batches).find(|(_, batch)| batch.2 >= timestamp);
                if let Some((place, _)) = first {
                    prop_assert!(read.before_time(timestamp) <= place.last_offset);
                }
            }
            let largest = batches.iter().map(|batch| batch.2).max();
            prop_assert_eq!(read.largest_timestamp().map(|(time, _)| time), largest);
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

    #[test]
    fn files_that_contradict_themselves_are_none() {
        let (index, places) = indexed(&[(1, 5000, 1), (1, 5000, 2), (1, 5000, 3)], 0);
        let (offsets, times) = index.files();
        assert!(SegmentIndex::of_files(100, &offsets, &times, 20_000).is_some());
        assert!(SegmentIndex::of_files(100, &offsets[1..], &times, 20_000).is_none());
        assert!(SegmentIndex::of_files(100, &offsets, &times[..5], 20_000).is_none());
        let turned: Vec<_> = offsets.chunks(8).rev().flatten().copied().collect();
        assert!(SegmentIndex::of_files(100, &turned, &times, 20_000).is_none());
        assert!(SegmentIndex::of_files(100, &offsets, &times, places[1].position).is_none());
    }
}
