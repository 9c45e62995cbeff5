//! What is appended to a partition, by the one thread that appends.

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
use crate::recovery::checkpoint::ActiveState;
use crate::segment::{ActiveIndex, OpenSegment, SNAPSHOT, Segment, file_path, lock};

/// Bytes that are reserved on the disk at a time: as many as the segment has, within these limits.
/// Thousands of small partitions would fill a disk with room for large ones.
const RESERVED_BYTES: RangeInclusive<u64> = 64 << 10..=8 << 20;

/// How many bytes a start looks through at least before that is saved.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// What the thread that appends knows of a partition.
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
    /// Since when the active segment is there, or known to this process: its age where its first
    /// batch has no timestamp.
    pub(crate) active_since: Instant,
    /// Up to where blocks are reserved.
    pub(crate) reserved: u64,
    /// The segments with bytes that are not synced, by their bases, the oldest first. The files
    /// stay open: a write error is reported only to descriptors that were open when it happened.
    pub(crate) unsynced: Vec<(i64, Arc<OpenSegment>)>,
    /// Up to which position a start need not look through the active segment.
    pub(crate) checkpointed: u64,
    /// What a start has to know of the active segment, as of the latest sync after which that is to
    /// be written.
    pub(crate) state: Option<ActiveState>,
    /// Records that are not synced.
    pub(crate) unsynced_records: u64,
    /// Segments that were made since the folder was synced.
    pub(crate) folder_changed: bool,
    /// Segments that are full, and what has to be written about each: their indexes, and the
    /// producers at the end of each.
    pub(crate) sealed: Vec<SealedSegment>,
    /// Those of which it could not be written.
    pub(crate) unfinished: Vec<SealedSegment>,
}

/// A segment that is full.
#[derive(Debug)]
pub(crate) struct SealedSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) open: Arc<OpenSegment>,
    pub(crate) index: ActiveIndex,
    pub(crate) next_offset: i64,
    pub(crate) snapshot: ProducerSnapshot,
}

/// A batch that was appended, or had been before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Appended {
    /// The offset of its first record.
    pub base_offset: i64,
    /// The offset behind its last one.
    pub next_offset: i64,
}

/// Why a batch is not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// It is larger than `max.message.bytes` allows.
    #[error("the batch has {size} bytes, more than max.message.bytes={max}")]
    TooLarge {
        /// Bytes of the batch.
        size: usize,
        /// The most that are allowed.
        max: usize,
    },
    /// Its producer is in the wrong order.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The disk is full, or fails; nothing of it is in the log.
    #[error("the log cannot be written: {0}")]
    Disk(Arc<io::Error>),
    /// A sync has failed: what is on the disk is not known any more.
    #[error("the data folder is offline since a sync has failed; restart the broker")]
    Offline,
    /// The partition is being deleted, or the broker is stopping.
    #[error("the partition is closed")]
    Closed,
}

/// Batches that are written in one call.
#[derive(Default)]
pub(crate) struct PendingWrite {
    /// Numbers of the appends, with the header of each as it is placed.
    pub(crate) placed: Vec<(usize, BatchHeader)>,
    pub(crate) bytes: u64,
    /// Producers before, to go back to.
    pub(crate) producers: ProducersBefore,
}

/// The header of a batch that may be appended.
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

/// Writes the producers at an offset.
pub(crate) fn write_snapshot(
    folder: &Path,
    offset: i64,
    producers: &ProducerSnapshot,
) -> io::Result<()> {
    disk::replace(&file_path(folder, offset, SNAPSHOT), &producers.file())
}

impl Appender {
    /// Where a batch was appended before, if it was.
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

    /// Whether an index may be full once everything pending is written: what is pending has no
    /// entries yet.
    pub(crate) fn may_fill_indexes(&self, pending: &PendingWrite, config: &TopicConfig) -> bool {
        let entries = pending.placed.len();
        entries > 0 && lock(&self.index).is_full(config.segment_index_bytes, entries)
    }

    /// Whether a batch belongs into another segment than what is pending.
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
        let is_old = age.is_some_and(|age| age > config.segment_ms);
        let last = self.next_offset + i64::from(header.last_offset_delta);
        size + header.size as u64 > config.segment_bytes
            || is_old
            || lock(&self.index).is_full(config.segment_index_bytes, 0)
            || last - self.active.base > i64::from(i32::MAX)
    }

    /// The state of a segment to which something was appended since the start.
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

    /// Whether a start would have to look through so much of the active segment that what it has to
    /// know is written again. The larger the segment is, the larger that is.
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

    /// Remembers what was written at `position`.
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

    /// The end of the log.
    pub(crate) fn end(&self) -> LogPosition {
        LogPosition {
            offset: self.next_offset,
            segment: self.active.base,
            position: self.active.size(),
        }
    }
}

impl PendingWrite {
    /// The timestamp of the first batch.
    fn first_timestamp(&self) -> Option<i64> {
        let first = self.placed.first();
        first.map(|(_, first)| first.max_timestamp)
    }

    /// Whether something before an offset is not written yet.
    pub(crate) fn begins_before(&self, offset: i64) -> bool {
        let first = self.placed.first();
        first.is_some_and(|(_, header)| header.base_offset < offset)
    }

    /// Gives a batch its place.
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
