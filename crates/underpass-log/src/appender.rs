//! The state of a partition that belongs to the appending thread.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::batch::{BatchBytes, BatchHeader};
use crate::config::TopicConfig;
use crate::files::disk;
use crate::position::LogPosition;
use crate::producers::{
    ProducerSnapshot, ProducerStates, ProducersBefore, SequenceError, SequenceVerdict,
};
use crate::segment::checkpoint::ActiveState;
use crate::segment::{ActiveIndex, OpenSegment, SNAPSHOT, Segment, file_path, lock};

/// The range of bytes reserved on disk at a time: as many as the segment already has, within these
/// limits. Large reservations for thousands of small partitions would fill the disk.
const RESERVED_BYTES: RangeInclusive<u64> = 64 << 10..=8 << 20;

/// The smallest scan of the active segment, in bytes, that is worth a new checkpoint.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// The state of a partition that belongs to the appending thread.
#[derive(Debug)]
pub(crate) struct Appender {
    pub(crate) producers: ProducerStates,
    pub(crate) active: Arc<Segment>,
    pub(crate) open: Arc<OpenSegment>,
    pub(crate) index: ActiveIndex,
    pub(crate) epoch: i32,
    pub(crate) next_offset: i64,
    /// The largest timestamp of the first batch of the active segment.
    pub(crate) first_timestamp: Option<i64>,
    /// When this process created or opened the active segment. Gives its age if its first batch has
    /// no timestamp.
    pub(crate) active_since: Instant,
    /// The position up to which blocks are reserved.
    pub(crate) reserved: u64,
    /// Segments with unsynced bytes, by base offset, oldest first. The files stay open: a write
    /// error is reported only to descriptors that were open when it occurred.
    pub(crate) unsynced: Vec<(i64, Arc<OpenSegment>)>,
    /// The position in the active segment from which recovery has to scan.
    pub(crate) checkpointed: u64,
    /// A checkpoint of the active segment, to be written once its bytes are synced.
    pub(crate) state: Option<ActiveState>,
    /// The number of unsynced records.
    pub(crate) unsynced_records: u64,
    /// Whether segments were created since the folder was last synced.
    pub(crate) folder_changed: bool,
    /// Full segments whose indexes, and whose snapshots of the producers at their ends, are still
    /// to be written.
    pub(crate) sealed: Vec<SealedSegment>,
    /// Full segments for which that write failed.
    pub(crate) unfinished: Vec<SealedSegment>,
}

/// A full segment.
#[derive(Debug)]
pub(crate) struct SealedSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) open: Arc<OpenSegment>,
    pub(crate) index: ActiveIndex,
    pub(crate) next_offset: i64,
    pub(crate) snapshot: ProducerSnapshot,
}

/// An appended batch, or the earlier one that it duplicates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Appended {
    /// The offset of the first record.
    pub base_offset: i64,
    /// The offset after the last record.
    pub next_offset: i64,
}

/// The reason why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The batch is larger than `max.message.bytes`.
    #[error("the batch has {size} bytes, more than max.message.bytes={max}")]
    TooLarge {
        /// The size of the batch, in bytes.
        size: usize,
        /// The largest allowed size, in bytes.
        max: usize,
    },
    /// The sequence number or epoch of the producer is wrong.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The disk is full or failing. The log contains no part of the batch.
    #[error("the log cannot be written: {0}")]
    Disk(Arc<io::Error>),
    /// An earlier sync failed: the state of the data on disk is unknown.
    #[error("the data folder is offline since a sync has failed; restart the broker")]
    Offline,
    /// The partition is being deleted, or the broker is stopping.
    #[error("the partition is closed")]
    Closed,
}

/// Batches to be written with one call.
#[derive(Default)]
pub(crate) struct PendingWrite {
    /// The index of each append in the round, with the header to write for its batch.
    pub(crate) placed: Vec<(usize, BatchHeader)>,
    pub(crate) bytes: u64,
    /// The producer states before these batches, for rollback.
    pub(crate) producers: ProducersBefore,
}

/// Returns the header of a batch if its size is allowed.
pub(crate) fn checked(
    batch: &BatchBytes,
    config: &TopicConfig,
) -> Result<BatchHeader, AppendError> {
    let (size, max) = (batch.len(), config.max_message_bytes);
    let header = batch
        .header()
        .filter(|header| header.size == size && size <= max);
    header.ok_or(AppendError::TooLarge { size, max })
}

/// Writes a snapshot of the producers at an offset.
pub(crate) fn write_snapshot(
    folder: &Path,
    offset: i64,
    producers: &ProducerSnapshot,
) -> io::Result<()> {
    disk::replace(&file_path(folder, offset, SNAPSHOT), &producers.file())
}

impl Appender {
    /// Returns the earlier append of a duplicate batch; `None` if the batch is new.
    pub(crate) fn judge(&self, header: &BatchHeader) -> Result<Option<Appended>, AppendError> {
        if header.producer_id < 0 {
            return Ok(None);
        }
        Ok(match self.producers.judge(header)? {
            SequenceVerdict::Append => None,
            SequenceVerdict::Duplicate {
                base_offset,
                last_offset,
            } => Some(Appended {
                base_offset,
                next_offset: last_offset + 1,
            }),
        })
    }

    /// Whether an index may be full after the pending batches, which have no entries yet, are
    /// written.
    pub(crate) fn may_fill_indexes(&self, pending: &PendingWrite, config: &TopicConfig) -> bool {
        let entries = pending.placed.len();
        entries > 0 && lock(&self.index).is_full(config.segment_index_bytes, entries)
    }

    /// Whether a batch needs a new segment after the pending batches.
    pub(crate) fn is_full(
        &self,
        header: &BatchHeader,
        pending: &PendingWrite,
        config: &TopicConfig,
    ) -> bool {
        let size = self.active.size() + pending.bytes;
        if size == 0 {
            return false;
        }
        let first = self.first_timestamp.or_else(|| pending.first_timestamp());
        let age = first.map(|first| match first {
            0.. => header.max_timestamp.saturating_sub(first),
            _ => i64::try_from(self.active_since.elapsed().as_millis()).unwrap_or(i64::MAX),
        });
        let is_old = age.is_some_and(|age| age > config.roll_ms());
        let last = self.next_offset + i64::from(header.last_offset_delta);
        size + header.size as u64 > config.segment_bytes
            || is_old
            || lock(&self.index).is_full(config.segment_index_bytes, 0)
            || last - self.active.base > i64::from(i32::MAX)
    }

    /// Returns the state of the active segment; `None` if nothing was appended since the start.
    pub(crate) fn state(&self) -> Option<ActiveState> {
        let index = lock(&self.index);
        Some(ActiveState {
            base: self.active.base,
            open: Arc::clone(&self.open),
            last: index.last()?,
            first_timestamp: self.first_timestamp?,
            index: index.clone(),
            producers: self.producers.snapshot(),
        })
    }

    /// Whether recovery would have to scan so much of the active segment that a new checkpoint is
    /// due. The threshold grows with the segment.
    pub(crate) fn is_checkpoint_due(&self, segment_bytes: u64) -> bool {
        let since = self.active.size().saturating_sub(self.checkpointed);
        let least = CHECKPOINT_BYTES.min(segment_bytes / 8);
        since > least.max(self.checkpointed / 4)
    }

    /// Reserves blocks up to `end` and some more.
    pub(crate) fn reserve(&mut self, end: u64, segment_bytes: u64) {
        if end > self.reserved {
            let ahead = end.clamp(*RESERVED_BYTES.start(), *RESERVED_BYTES.end());
            let until = (end + ahead).min(segment_bytes.max(end));
            disk::reserve(&*self.open.file, self.reserved, until - self.reserved);
            self.reserved = until;
        }
    }

    /// Updates the index and the unsynced state after a write at `position`.
    pub(crate) fn record(&mut self, pending: &PendingWrite, position: u64, config: &TopicConfig) {
        self.producers.bound();
        let mut at = position;
        let mut index = lock(&self.index);
        for (_, header) in &pending.placed {
            index.add(header, at, config.index_interval_bytes);
            at += header.size as u64;
            self.unsynced_records += header.count.unsigned_abs() as u64;
        }
        drop(index);
        self.first_timestamp = self.first_timestamp.or_else(|| pending.first_timestamp());
        if self
            .unsynced
            .last()
            .is_none_or(|(base, _)| *base != self.active.base)
        {
            let open = Arc::clone(&self.open);
            self.unsynced.push((self.active.base, open));
        }
    }

    /// Returns the end of the log.
    pub(crate) fn end(&self) -> LogPosition {
        LogPosition {
            offset: self.next_offset,
            segment: self.active.base,
            position: self.active.size(),
        }
    }
}

impl PendingWrite {
    /// Returns the largest timestamp of the first pending batch.
    fn first_timestamp(&self) -> Option<i64> {
        let first = self.placed.first();
        first.map(|(_, first)| first.max_timestamp)
    }

    /// Whether a pending batch starts before `offset`.
    pub(crate) fn begins_before(&self, offset: i64) -> bool {
        let first = self.placed.first();
        first.is_some_and(|(_, header)| header.base_offset < offset)
    }

    /// Assigns an offset and an epoch to a batch and adds it.
    pub(crate) fn add(
        &mut self,
        appender: &mut Appender,
        number: usize,
        mut header: BatchHeader,
    ) -> Appended {
        header.base_offset = appender.next_offset;
        header.leader_epoch = appender.epoch;
        if header.producer_id >= 0 {
            let producers = &mut appender.producers;
            producers.record_pending(&header, &mut self.producers);
        }
        appender.next_offset = header.next_offset();
        self.bytes += header.size as u64;
        self.placed.push((number, header));
        Appended {
            base_offset: header.base_offset,
            next_offset: header.next_offset(),
        }
    }
}
