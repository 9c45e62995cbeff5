//! The state of idempotent producers, to detect batches that are sent again.
//!
//! A snapshot is a file in Kafka's format: a version, a CRC-32C of the rest, a count, and entries
//! of 46 bytes. Kafka writes one entry per producer, for its latest batch, and so forgets earlier
//! batches on restart. Here each remembered batch has an entry, the latest last: of several entries
//! of one producer, Kafka uses the last.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::batch::{BatchHeader, add_sequence};
use crate::position::OFFSET_MAX;

/// The number of batches remembered per producer: as many as clients have in flight.
const BATCHES: usize = 5;

/// The number of producers remembered per partition. Every start of a client is a producer, and
/// clients may invent IDs, so expiry alone is not a bound: this many take about 20 MiB. The ones
/// whose latest batch is the oldest are forgotten first. The next batch of a forgotten producer is
/// appended, even if it is a duplicate. That takes this many other producers within the time in
/// which a client repeats a batch: two minutes.
const PRODUCERS_MAX: usize = 1 << 16;

/// The largest snapshot that is read, in bytes: Kafka has no limit.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;

/// The number of producers kept when there are too many, so that not every batch needs a search.
const PRODUCERS_KEPT: usize = PRODUCERS_MAX / 8 * 7;

const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_HEADER_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;

/// The producers of a partition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProducerStates(HashMap<i64, ProducerState>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct ProducerState {
    epoch: i16,
    /// The remembered batches, latest last.
    batches: VecDeque<AppendedBatch>,
    /// The timestamp of the latest batch, for expiry.
    timestamp: i64,
}

/// The producers changed by a round of appends, as they were before.
#[derive(Debug, Default)]
pub(crate) struct ProducersBefore(HashMap<i64, Option<ProducerState>>);

/// The producers at an offset, as snapshot entries. Only the order among the entries of one
/// producer matters.
#[derive(Debug)]
pub(crate) struct ProducerSnapshot(Vec<[u8; ENTRY_BYTES]>);

/// An appended batch of a producer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct AppendedBatch {
    first_sequence: i32,
    last_sequence: i32,
    last_offset: i64,
    offset_delta: i32,
}

/// The verdict on a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SequenceVerdict {
    Append,
    /// The batch was appended before, with these offsets.
    Duplicate {
        base_offset: i64,
        last_offset: i64,
    },
}

/// The reason why a batch of a producer is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SequenceError {
    /// A producer with the same ID and a higher epoch has written since.
    #[error("producer {producer_id} has epoch {present} by now, not {shown}")]
    Fenced {
        /// The ID of the producer.
        producer_id: i64,
        /// The current epoch of the producer.
        present: i16,
        /// The epoch of the batch.
        shown: i16,
    },
    /// A batch is missing before this one.
    #[error("producer {producer_id} has to go on with sequence number {expected}, not {shown}")]
    OutOfOrder {
        /// The ID of the producer.
        producer_id: i64,
        /// The sequence number that should follow.
        expected: i32,
        /// The sequence number of the batch.
        shown: i32,
    },
}

impl ProducerStates {
    /// Decides about a batch. Batches without a producer ID are appended, and so is the first batch
    /// of an unknown or forgotten producer.
    pub(crate) fn judge(&self, batch: &BatchHeader) -> Result<SequenceVerdict, SequenceError> {
        let Some(known) = self.0.get(&batch.producer_id) else {
            return Ok(SequenceVerdict::Append);
        };
        let producer_id = batch.producer_id;
        if batch.producer_epoch < known.epoch {
            return Err(SequenceError::Fenced {
                producer_id,
                present: known.epoch,
                shown: batch.producer_epoch,
            });
        }
        let is_new_epoch = batch.producer_epoch > known.epoch;
        if !is_new_epoch && let Some(before) = known.find(batch) {
            return Ok(SequenceVerdict::Duplicate {
                base_offset: before.last_offset - i64::from(before.offset_delta),
                last_offset: before.last_offset,
            });
        }
        let expected = match known.batches.back() {
            Some(last) if !is_new_epoch => add_sequence(last.last_sequence, 1),
            _ => 0,
        };
        match batch.base_sequence == expected {
            true => Ok(SequenceVerdict::Append),
            false => Err(SequenceError::OutOfOrder {
                producer_id,
                expected,
                shown: batch.base_sequence,
            }),
        }
    }

    /// Records an appended batch with its offset.
    pub(crate) fn record(&mut self, batch: &BatchHeader) {
        if batch.producer_id < 0 {
            return;
        }
        let state = self.0.entry(batch.producer_id).or_insert(ProducerState {
            epoch: batch.producer_epoch,
            batches: VecDeque::new(),
            timestamp: 0,
        });
        if state.epoch != batch.producer_epoch {
            state.epoch = batch.producer_epoch;
            state.batches.clear();
        }
        state.timestamp = batch.max_timestamp;
        state.add(AppendedBatch {
            first_sequence: batch.base_sequence,
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta,
        });
    }

    /// Records a batch whose write may still fail. Saves the previous state in `before`.
    pub(crate) fn record_pending(&mut self, batch: &BatchHeader, before: &mut ProducersBefore) {
        let id = batch.producer_id;
        let known = before.0.entry(id);
        known.or_insert_with(|| self.0.get(&id).cloned());
        self.record(batch);
    }

    /// Restores the previous states.
    pub(crate) fn undo(&mut self, before: ProducersBefore) {
        for (id, state) in before.0 {
            match state {
                Some(state) => self.0.insert(id, state),
                None => self.0.remove(&id),
            };
        }
    }

    /// Forgets the producers with the oldest batches if there are too many.
    pub(crate) fn bound(&mut self) {
        if self.0.len() <= PRODUCERS_MAX {
            return;
        }
        let mut ends: Vec<_> = self.0.values().map(ProducerState::last_offset).collect();
        let forgotten = ends.len() - PRODUCERS_KEPT;
        let (_, first_kept, _) = ends.select_nth_unstable(forgotten);
        let first_kept = *first_kept;
        // Only a forged snapshot has several producers with one offset.
        let mut room = PRODUCERS_KEPT;
        self.0.retain(|_, state| {
            let is_kept = state.last_offset() >= first_kept && room > 0;
            room -= usize::from(is_kept);
            is_kept
        });
    }

    /// Forgets producers whose latest batch is older than `timestamp`.
    pub(crate) fn expire(&mut self, timestamp: i64) {
        self.0.retain(|_, state| state.timestamp >= timestamp);
    }

    /// Adds an entry of a snapshot.
    fn add_entry(&mut self, id: i64, state: ProducerState) {
        match self.0.get_mut(&id) {
            Some(known) if known.epoch == state.epoch => {
                known.timestamp = state.timestamp;
                state.batches.into_iter().for_each(|batch| known.add(batch));
            }
            _ => drop(self.0.insert(id, state)),
        }
    }

    /// Returns the last offset of the latest batch of each producer.
    pub(crate) fn batch_ends(&self) -> HashSet<i64> {
        self.0.values().map(ProducerState::last_offset).collect()
    }

    /// Returns the largest producer ID, if any.
    pub(crate) fn largest_id(&self) -> Option<i64> {
        self.0.keys().max().copied()
    }

    /// Returns the sequence number with which a producer can go on, if it is remembered.
    #[cfg(test)]
    pub(crate) fn next_sequence(&self, id: i64) -> Option<i32> {
        let last = self.0.get(&id)?.batches.back()?;
        Some(add_sequence(last.last_sequence, 1))
    }

    /// Takes a snapshot of the producers.
    pub(crate) fn snapshot(&self) -> ProducerSnapshot {
        let states = self.0.iter();
        ProducerSnapshot(states.flat_map(|(id, state)| state.entries(*id)).collect())
    }

    /// Parses a snapshot; `None` if it is damaged or of another version.
    pub(crate) fn of_snapshot(file: &[u8]) -> Option<ProducerStates> {
        let (header, entries) = file.split_first_chunk::<SNAPSHOT_HEADER_BYTES>()?;
        let version = i16::from_be_bytes([header[0], header[1]]);
        let crc = u32::from_be_bytes([header[2], header[3], header[4], header[5]]);
        let count = i32::from_be_bytes([header[6], header[7], header[8], header[9]]);
        let is_whole = usize::try_from(count).ok()?.checked_mul(ENTRY_BYTES) == Some(entries.len());
        if version != SNAPSHOT_VERSION || crc32c::crc32c(&file[6..]) != crc || !is_whole {
            return None;
        }
        let mut states = ProducerStates::default();
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let (id, state) = ProducerState::of_entry(entry)?;
            states.add_entry(id, state);
        }
        states.bound();
        Some(states)
    }
}

impl ProducerSnapshot {
    /// Returns the content of a snapshot file.
    pub(crate) fn file(&self) -> Vec<u8> {
        let mut entries: Vec<_> = self.0.iter().collect();
        // The sort is stable: entries of one producer stay in order.
        entries.sort_by(|one, other| one[..8].cmp(&other[..8]));
        let mut file = vec![0; SNAPSHOT_HEADER_BYTES];
        file.extend(entries.into_iter().flatten());
        file[..2].copy_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        file[6..10].copy_from_slice(&(self.0.len() as i32).to_be_bytes());
        let crc = crc32c::crc32c(&file[6..]);
        file[2..6].copy_from_slice(&crc.to_be_bytes());
        file
    }
}

impl ProducerState {
    fn find(&self, batch: &BatchHeader) -> Option<&AppendedBatch> {
        self.batches.iter().find(|before| {
            before.first_sequence == batch.base_sequence
                && before.last_sequence == batch.last_sequence()
        })
    }

    /// Returns the offset of the latest record; −1 if unknown.
    fn last_offset(&self) -> i64 {
        self.batches.back().map_or(-1, |last| last.last_offset)
    }

    fn add(&mut self, batch: AppendedBatch) {
        if self.batches.len() == BATCHES {
            self.batches.pop_front();
        }
        self.batches.push_back(batch);
    }

    /// Returns one entry for each batch, or a single entry without a batch.
    fn entries(&self, id: i64) -> impl Iterator<Item = [u8; ENTRY_BYTES]> {
        let none = self.batches.is_empty().then_some(None);
        let batches = self.batches.iter().map(Some).chain(none);
        batches.map(move |batch| self.entry(id, batch))
    }

    fn entry(&self, id: i64, batch: Option<&AppendedBatch>) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        let mut put = |at: usize, field: &[u8]| entry[at..at + field.len()].copy_from_slice(field);
        put(0, &id.to_be_bytes());
        put(8, &self.epoch.to_be_bytes());
        let (sequence, offset, delta) = batch.map_or((-1, -1, 0), |batch| {
            (batch.last_sequence, batch.last_offset, batch.offset_delta)
        });
        put(10, &sequence.to_be_bytes());
        put(14, &offset.to_be_bytes());
        put(22, &delta.to_be_bytes());
        put(26, &self.timestamp.to_be_bytes());
        // No coordinator epoch, and no open transaction.
        put(34, &(-1i32).to_be_bytes());
        put(38, &(-1i64).to_be_bytes());
        entry
    }

    fn of_entry(entry: &[u8]) -> Option<(i64, ProducerState)> {
        let last_sequence = i32::from_be_bytes(part(entry, 10)?);
        let last_offset = i64::from_be_bytes(part(entry, 14)?);
        let offset_delta = i32::from_be_bytes(part(entry, 22)?);
        // Without a sequence number the entry has no batch, and the other fields are ignored.
        let is_batch =
            offset_delta >= 0 && (i64::from(offset_delta)..=OFFSET_MAX).contains(&last_offset);
        if last_sequence >= 0 && !is_batch {
            return None;
        }
        let first_sequence = add_sequence(last_sequence, offset_delta.saturating_neg());
        let last = AppendedBatch {
            first_sequence,
            last_sequence,
            last_offset,
            offset_delta,
        };
        let state = ProducerState {
            epoch: i16::from_be_bytes(part(entry, 8)?),
            batches: (last_sequence >= 0).then_some(last).into_iter().collect(),
            timestamp: i64::from_be_bytes(part(entry, 26)?),
        };
        Some((i64::from_be_bytes(part(entry, 0)?), state))
    }
}

fn part<const N: usize>(entry: &[u8], at: usize) -> Option<[u8; N]> {
    entry.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::tests::batch_of;

    fn header(id: i64, epoch: i16, sequence: i32, count: i32, at: i64) -> BatchHeader {
        let mut bytes = batch_of(id, epoch, sequence, count);
        crate::batch::tests::put_place(&mut bytes, at, 0);
        BatchHeader::parse(&bytes).unwrap()
    }

    #[test]
    fn a_batch_that_is_sent_again_is_found() {
        let mut states = ProducerStates::default();
        for number in 0..7 {
            let batch = header(9, 0, number * 10, 10, i64::from(number) * 10);
            assert_eq!(states.judge(&batch), Ok(SequenceVerdict::Append));
            states.record(&batch);
        }
        for number in 2..7 {
            let again = states.judge(&header(9, 0, number * 10, 10, 0));
            let (base_offset, last_offset) = (i64::from(number) * 10, i64::from(number) * 10 + 9);
            let found = SequenceVerdict::Duplicate {
                base_offset,
                last_offset,
            };
            assert_eq!(again, Ok(found));
        }
        // Older batches are forgotten, and a part of a batch is not a duplicate.
        for other in [
            header(9, 0, 10, 10, 0),
            header(9, 0, 60, 5, 0),
            header(9, 0, 71, 1, 0),
        ] {
            let refused = states.judge(&other);
            assert!(matches!(
                refused,
                Err(SequenceError::OutOfOrder { expected: 70, .. })
            ));
        }
    }

    #[test]
    fn a_higher_epoch_begins_anew_and_fences_the_lower_one() {
        let mut states = ProducerStates::default();
        states.record(&header(9, 1, 0, 5, 0));
        assert!(states.judge(&header(9, 2, 5, 1, 0)).is_err());
        let new = header(9, 2, 0, 5, 5);
        assert_eq!(states.judge(&new), Ok(SequenceVerdict::Append));
        states.record(&new);
        let old = states.judge(&header(9, 1, 5, 1, 0));
        assert!(matches!(
            old,
            Err(SequenceError::Fenced {
                present: 2,
                shown: 1,
                ..
            })
        ));
    }

    #[test]
    fn sequences_wrap_and_producers_expire() {
        let mut states = ProducerStates::default();
        states.record(&header(9, 0, i32::MAX - 1, 2, 0));
        assert_eq!(
            states.judge(&header(9, 0, 0, 1, 0)),
            Ok(SequenceVerdict::Append)
        );
        states.expire(7);
        assert!(states.judge(&header(9, 0, 5, 1, 0)).is_err());
        states.expire(8);
        assert_eq!(
            states.judge(&header(9, 0, 5, 1, 0)),
            Ok(SequenceVerdict::Append)
        );
    }

    #[test]
    fn a_round_that_comes_to_nothing_is_undone_and_keeps_only_what_it_has_changed() {
        let mut states = ProducerStates::default();
        for id in 0..10_000 {
            states.record(&header(id, 0, 0, 1, id));
        }
        let unchanged = states.clone();
        let mut before = ProducersBefore::default();
        for batch in [
            header(5, 0, 1, 1, 10_000),
            header(5, 0, 2, 1, 10_001),
            header(6, 1, 0, 1, 10_002),
            header(20_000, 0, 7, 1, 10_003),
            header(20_000, 0, 8, 1, 10_004),
        ] {
            assert_eq!(states.judge(&batch), Ok(SequenceVerdict::Append));
            states.record_pending(&batch, &mut before);
        }
        assert_eq!(before.0.len(), 3);
        states.undo(before);
        assert_eq!(states, unchanged);
    }

    #[test]
    fn there_are_not_more_producers_than_allowed_and_the_oldest_go_first() {
        let mut states = ProducerStates::default();
        let count = PRODUCERS_MAX as i64;
        for id in 0..count {
            states.record(&header(id, 0, 3, 1, id));
        }
        states.record(&header(0, 0, 4, 1, count));
        states.bound();
        assert_eq!(states.0.len(), PRODUCERS_MAX);
        states.record(&header(count, 0, 3, 1, count + 1));
        states.bound();
        assert_eq!(states.0.len(), PRODUCERS_KEPT);
        let is_known = |id: i64| states.0.contains_key(&id);
        assert!(is_known(0) && !is_known(1) && is_known(count) && is_known(count - 1));
        // A forgotten producer may continue anywhere, a known one may not.
        let far = |id| header(id, 0, 500, 1, 0);
        assert_eq!(states.judge(&far(1)), Ok(SequenceVerdict::Append));
        assert!(states.judge(&far(0)).is_err());
    }

    #[test]
    fn a_snapshot_with_too_many_producers_is_read_as_far_as_they_are_remembered() {
        let count = PRODUCERS_MAX as i64 + 10;
        let mut states = ProducerStates::default();
        for id in 0..count {
            states.record(&header(id, 0, 3, 1, id));
        }
        let read = ProducerStates::of_snapshot(&states.snapshot().file()).unwrap();
        assert_eq!(read.0.len(), PRODUCERS_KEPT);
        assert!(read.0.contains_key(&(count - 1)) && !read.0.contains_key(&0));
    }

    proptest! {
        #[test]
        fn a_snapshot_goes_on_where_it_was_taken(
            batches in prop::collection::vec((0i64..4, 1i32..20), 0..60)
        ) {
            let (mut states, mut next) = (ProducerStates::default(), HashMap::new());
            for (offset, (id, count)) in batches.into_iter().enumerate() {
                let sequence = next.entry(id).or_insert(i32::MAX - 50);
                states.record(&header(id, 3, *sequence, count, offset as i64 * 100));
                *sequence = add_sequence(*sequence, count);
            }
            let restored = ProducerStates::of_snapshot(&states.snapshot().file()).unwrap();
            prop_assert_eq!(&restored, &states);
            for (id, sequence) in next {
                let following = header(id, 3, sequence, 1, 0);
                prop_assert_eq!(restored.judge(&following), Ok(SequenceVerdict::Append));
                let wrong = header(id, 3, add_sequence(sequence, 1), 1, 0);
                prop_assert!(restored.judge(&wrong).is_err());
            }
            let mut damaged = states.snapshot().file();
            let last = damaged.len() - 1;
            damaged[last] ^= 1;
            prop_assert_eq!(ProducerStates::of_snapshot(&damaged), None);
        }
    }
}
