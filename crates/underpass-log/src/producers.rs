//! What is known of idempotent producers, so that a batch that is sent again is not appended again.
//!
//! A snapshot is a file of Kafka's format: a version, a CRC-32C of what follows, a count, and
//! entries of 46 bytes.

use std::collections::{HashMap, VecDeque};

use crate::batch::{BatchHeader, add_sequence};

/// How many batches of a producer are remembered: as many as clients have in flight.
const BATCHES: usize = 5;

const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_HEADER_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;

/// The producers of a partition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProducerStates(HashMap<i64, ProducerState>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct ProducerState {
    epoch: i16,
    /// The latest last.
    batches: VecDeque<AppendedBatch>,
    /// The timestamp of its latest batch: it expires by that.
    timestamp: i64,
}

/// A batch of a producer that was appended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct AppendedBatch {
    first_sequence: i32,
    last_sequence: i32,
    last_offset: i64,
    offset_delta: i32,
}

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SequenceVerdict {
    Append,
    /// It was appended before, at this offset and ending with the other.
    Duplicate {
        base_offset: i64,
        last_offset: i64,
    },
}

/// Why a batch of a producer is not appended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SequenceError {
    /// A producer with the same id and a higher epoch has written since.
    #[error("producer {producer_id} has epoch {present} by now, not {shown}")]
    Fenced {
        /// The producer.
        producer_id: i64,
        /// Its epoch.
        present: i16,
        /// That of the batch.
        shown: i16,
    },
    /// A batch is missing before this one.
    #[error("producer {producer_id} has to go on with sequence number {expected}, not {shown}")]
    OutOfOrder {
        /// The producer.
        producer_id: i64,
        /// What would follow.
        expected: i32,
        /// That of the batch.
        shown: i32,
    },
}

impl ProducerStates {
    /// What becomes of a batch. One without a producer id is appended, and so is the first one of
    /// a producer that is not known (any more).
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

    /// Remembers a batch that was appended, with its place.
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
        if state.batches.len() == BATCHES {
            state.batches.pop_front();
        }
        state.timestamp = batch.max_timestamp;
        state.batches.push_back(AppendedBatch {
            first_sequence: batch.base_sequence,
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta,
        });
    }

    /// Forgets producers whose latest batch is older than `timestamp`.
    pub(crate) fn expire(&mut self, timestamp: i64) {
        self.0.retain(|_, state| state.timestamp >= timestamp);
    }

    /// The content of a snapshot file.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_unstable_by_key(|(id, _)| **id);
        let mut file = vec![0; SNAPSHOT_HEADER_BYTES];
        for (id, state) in &entries {
            let last = state.batches.back();
            file.extend_from_slice(&id.to_be_bytes());
            file.extend_from_slice(&state.epoch.to_be_bytes());
            file.extend_from_slice(&last.map_or(-1, |last| last.last_sequence).to_be_bytes());
            file.extend_from_slice(&last.map_or(-1, |last| last.last_offset).to_be_bytes());
            file.extend_from_slice(&last.map_or(0, |last| last.offset_delta).to_be_bytes());
            file.extend_from_slice(&state.timestamp.to_be_bytes());
            // No coordinator has spoken, and no transaction is open.
            file.extend_from_slice(&(-1i32).to_be_bytes());
            file.extend_from_slice(&(-1i64).to_be_bytes());
        }
        file[..2].copy_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        file[6..10].copy_from_slice(&(entries.len() as i32).to_be_bytes());
        let crc = crc32c::crc32c(&file[6..]);
        file[2..6].copy_from_slice(&crc.to_be_bytes());
        file
    }

    /// Reads a snapshot; nothing if it is damaged or of another version.
    pub(crate) fn of_snapshot(file: &[u8]) -> Option<ProducerStates> {
        let (header, entries) = file.split_first_chunk::<SNAPSHOT_HEADER_BYTES>()?;
        let version = i16::from_be_bytes([header[0], header[1]]);
        let crc = u32::from_be_bytes([header[2], header[3], header[4], header[5]]);
        let count = i32::from_be_bytes([header[6], header[7], header[8], header[9]]);
        let is_whole = usize::try_from(count).ok()?.checked_mul(ENTRY_BYTES) == Some(entries.len());
        if version != SNAPSHOT_VERSION || crc32c::crc32c(&file[6..]) != crc || !is_whole {
            return None;
        }
        let states = entries
            .chunks_exact(ENTRY_BYTES)
            .map(ProducerState::of_entry);
        states.collect::<Option<_>>().map(ProducerStates)
    }
}

impl ProducerState {
    fn find(&self, batch: &BatchHeader) -> Option<&AppendedBatch> {
        self.batches.iter().find(|before| {
            before.first_sequence == batch.base_sequence
                && before.last_sequence == batch.last_sequence()
        })
    }

    fn of_entry(entry: &[u8]) -> Option<(i64, ProducerState)> {
        let last_sequence = i32::from_be_bytes(part(entry, 10)?);
        let offset_delta = i32::from_be_bytes(part(entry, 22)?);
        let last = AppendedBatch {
            first_sequence: add_sequence(last_sequence, -offset_delta),
            last_sequence,
            last_offset: i64::from_be_bytes(part(entry, 14)?),
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
        crate::batch::place(&mut bytes, at, 0);
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
        // Older ones are forgotten, and a part of one is not one.
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
            let restored = ProducerStates::of_snapshot(&states.snapshot()).unwrap();
            for (id, sequence) in next {
                let following = header(id, 3, sequence, 1, 0);
                prop_assert_eq!(restored.judge(&following), Ok(SequenceVerdict::Append));
                let wrong = header(id, 3, add_sequence(sequence, 1), 1, 0);
                prop_assert!(restored.judge(&wrong).is_err());
            }
            let mut damaged = states.snapshot();
            let last = damaged.len() - 1;
            damaged[last] ^= 1;
            prop_assert_eq!(ProducerStates::of_snapshot(&damaged), None);
        }
    }
}
