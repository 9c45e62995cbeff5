//! A partition: consecutive segments, and the range of them that readers may see.
//!
//! ```text
//!  log start                            high watermark      log end
//!     │ segment │ segment │ … │ active segment     │              │
//!     └── readers see this ────────────────────────┘ written, and not yet synced
//! ```
//!
//! One thread appends (`appender`). Readers copy the published state under a lock that is never
//! held during a system call.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use underpass::FileRange;

use crate::appender::Appender;
use crate::batch::HEADER_BYTES;
use crate::config::TopicConfig;
use crate::files::disk::DiskWait;
use crate::files::epochs::LeaderEpochs;
use crate::position::{LogPosition, TopicPartition};
use crate::segment::damage::{Damaged, OffsetGap};
use crate::segment::{Segment, lock};

/// The log of a partition.
#[derive(Debug)]
pub struct PartitionLog {
    name: TopicPartition,
    number: u64,
    topic_id: String,
    pub(crate) folder: PathBuf,
    config: Mutex<Arc<TopicConfig>>,
    published: Mutex<Published>,
    pub(crate) appender: Mutex<Appender>,
    /// Held while files are opened or created by name, except by appends, which hold `appender`.
    /// Locked before `appender`.
    pub(crate) files: Mutex<()>,
    /// Whether the partition is being deleted.
    pub(crate) is_deleted: AtomicBool,
    /// Whether a sync has failed, after which nothing counts as synced.
    has_failed: AtomicBool,
    /// The offset up to which the log is compacted; `None` if it never was.
    compacted: Mutex<Option<i64>>,
}

/// The state that readers see.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) start: i64,
    pub(crate) end: LogPosition,
    /// The position before which everything survives a crash.
    pub(crate) synced: LogPosition,
    pub(crate) high_watermark: LogPosition,
    /// The segments in order; the last one is active.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: LeaderEpochs,
    /// Lost records, in order.
    pub(crate) gaps: Vec<OffsetGap>,
}

/// The offsets of a partition at a point in time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogOffsets {
    /// The first offset in the log.
    pub start: i64,
    /// The first offset that consumers do not see yet.
    pub high_watermark: i64,
    /// The offset of the next record.
    pub end: i64,
    /// The first offset that a crash may lose.
    pub synced: i64,
    /// The leader epoch of new records.
    pub leader_epoch: i32,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub enum LogRead {
    /// Batches of one file, from the one with the offset on. The last batch may be truncated.
    Records(FileRange, RangeEnd),
    /// No records yet, or no batch fits.
    Empty,
    /// The read would wait for the disk: repeat it on a thread that may block.
    NeedsDisk,
}

/// Why a range of records ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RangeEnd {
    /// The range reaches the high watermark or has the requested size.
    Enough,
    /// The file ends, and the next file has more records.
    File,
}

/// The part of the log that a read may access.
struct Readable {
    /// The segments that may contain the offset, in order, with the end offset of each.
    segments: Vec<(Arc<Segment>, i64)>,
    /// The end of the visible part of the last visible segment.
    watermark: LogPosition,
    /// The next gap.
    gap: Option<OffsetGap>,
}

/// Whether one batch is read even if it is larger than requested (KIP-74).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FirstBatch {
    /// The batch is read, so that a consumer makes progress.
    Whole,
    /// The batch has to fit.
    Fitting,
}

/// The reason why nothing is read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is before the start of the log, or past its end.
    #[error("offset {offset} is not within {} and {}", offsets.start, offsets.end)]
    OutOfRange {
        /// The requested offset.
        offset: i64,
        /// The offsets of the log.
        offsets: LogOffsets,
    },
    /// The records were synced, but are missing or damaged.
    #[error(
        "the records from {} to {} were synced, and are missing or damaged",
        gap.start,
        gap.end - 1
    )]
    Lost {
        /// The lost offsets.
        gap: Range<i64>,
    },
    /// The file could not be read.
    #[error("the log cannot be read: {0}")]
    Disk(#[from] io::Error),
}

impl PartitionLog {
    pub(crate) fn new(
        name: TopicPartition,
        topic_id: String,
        folder: PathBuf,
        config: Arc<TopicConfig>,
        (published, appender): (Published, Appender),
    ) -> PartitionLog {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        PartitionLog {
            name,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            topic_id,
            folder,
            config: Mutex::new(config),
            published: Mutex::new(published),
            appender: Mutex::new(appender),
            files: Mutex::new(()),
            is_deleted: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            compacted: Mutex::new(None),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// Returns a number that is unique among all partitions of this process, past and present.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the ID of the topic from `partition.metadata`.
    pub fn topic_id(&self) -> &str {
        &self.topic_id
    }

    /// Returns the configuration.
    pub fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&lock(&self.config))
    }

    /// Changes the configuration for later operations.
    pub fn set_config(&self, config: Arc<TopicConfig>) {
        *lock(&self.config) = config;
    }

    /// Returns the current offsets.
    pub fn offsets(&self) -> LogOffsets {
        lock(&self.published).offsets()
    }

    /// Returns the size of all segments, in bytes.
    pub fn size(&self) -> u64 {
        let segments = lock(&self.published).segments.clone();
        segments.iter().map(|segment| segment.size()).sum()
    }

    /// Returns the largest ID of the idempotent producers that are remembered here.
    pub fn largest_producer_id(&self) -> Option<i64> {
        lock(&self.appender).producers.largest_id()
    }

    /// Returns the latest epoch up to `epoch` and the offset after it (KIP-320); `None` if unknown.
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let published = lock(&self.published);
        published.epochs.end_of(epoch, published.end.offset)
    }

    /// Reads up to `bytes_max` bytes below the high watermark from `offset` on, in one segment.
    /// Needs no system calls for the latest batches, otherwise one or two.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(
        &self,
        offset: i64,
        bytes_max: u64,
        first: FirstBatch,
        wait: DiskWait,
    ) -> Result<LogRead, ReadError> {
        let Some(readable) = self.readable(offset)? else {
            return Ok(LogRead::Empty);
        };
        match readable.read((offset, bytes_max, first), wait) {
            Err(ReadError::Disk(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(LogRead::NeedsDisk)
            }
            Err(ReadError::Disk(error)) => Err(match Damaged::of(&error) {
                Some(damaged) => self.lose(damaged, readable.watermark.offset),
                None => error.into(),
            }),
            read => read,
        }
    }

    /// Adds a gap for records that a read found damaged.
    fn lose(&self, damaged: &Damaged, end: i64) -> ReadError {
        let mut published = lock(&self.published);
        let bases = published.segments.iter().map(|segment| segment.base);
        let next = bases.filter(|base| *base > damaged.place.0).min();
        let offsets = damaged.offsets.start..damaged.offsets.end.min(next.unwrap_or(end));
        let gaps = &mut published.gaps;
        let at = gaps.partition_point(|gap| gap.offsets.start < offsets.start);
        if gaps
            .get(at)
            .is_none_or(|gap| gap.offsets.start > offsets.start)
        {
            let (name, last) = (&self.name, offsets.end - 1);
            let first = offsets.start;
            tracing::warn!("{name}: {damaged}; the records from {first} to {last} are lost");
            gaps.insert(
                at,
                OffsetGap {
                    offsets: offsets.clone(),
                    place: damaged.place,
                },
            );
        }
        ReadError::Lost { gap: offsets }
    }

    /// Returns the part of the log to read for an offset; `None` if it is not visible yet.
    fn readable(&self, offset: i64) -> Result<Option<Readable>, ReadError> {
        let published = lock(&self.published);
        let watermark = published.high_watermark;
        if offset < published.start || offset > published.end.offset {
            let offsets = published.offsets();
            return Err(ReadError::OutOfRange { offset, offsets });
        }
        if offset >= watermark.offset {
            return Ok(None);
        }
        let gaps = &published.gaps;
        let gap = gaps.get(gaps.partition_point(|gap| gap.offsets.end <= offset));
        if let Some(OffsetGap { offsets, .. }) = gap.filter(|gap| gap.offsets.start <= offset) {
            let gap = offsets.clone();
            return Err(ReadError::Lost { gap });
        }
        let behind = published
            .segments
            .partition_point(|segment| segment.base <= offset);
        let from = &published.segments[behind.saturating_sub(1)..];
        let ends = from.iter().skip(1).map(|next| next.base);
        let ends = ends.chain([published.end.offset]);
        let visible = from
            .iter()
            .zip(ends)
            .take_while(|(segment, _)| segment.base <= watermark.segment);
        // Damage may have left any number of empty segments.
        let visible = visible.filter(|(segment, _)| segment.size() > 0);
        // Of other segments compaction has left one batch without records. Clients may take a
        // response without records for the end of the log, so these are sent only at its end.
        let has_none = |(segment, _): &(&Arc<Segment>, i64)| segment.size() <= HEADER_BYTES as u64;
        let without_records = visible.clone().take_while(has_none).count();
        let skipped = match visible.clone().nth(without_records) {
            Some(_) => without_records,
            None => 0,
        };
        // Usually one segment suffices; the next is for an offset in a gap at the end of the first.
        let visible = visible.skip(skipped);
        Ok(Some(Readable {
            segments: visible
                .take(2)
                .map(|(segment, end)| (Arc::clone(segment), end.min(watermark.offset)))
                .collect(),
            watermark,
            gap: gap.cloned(),
        }))
    }

    /// Returns the offset and the timestamp of the first record with a timestamp of at least
    /// `timestamp`; `None` if there are no such records. If the batch cannot be read, returns its
    /// first record. Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub fn offset_of_time(&self, timestamp: i64) -> io::Result<Option<(i64, i64)>> {
        let (segments, start, watermark) = {
            let published = lock(&self.published);
            (
                published.segments.clone(),
                published.start,
                published.high_watermark,
            )
        };
        let visible = segments
            .iter()
            .take_while(|segment| segment.base <= watermark.segment);
        for segment in visible {
            let limit = match segment.base == watermark.segment {
                true => watermark.position,
                false => segment.size(),
            };
            if let Some(found) = segment.first_since(timestamp, start, limit)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the offset and the timestamp of the first record with the largest timestamp
    /// (KIP-734). Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub fn largest_timestamp(&self) -> io::Result<Option<(i64, i64)>> {
        let segments = lock(&self.published).segments.clone();
        let mut largest = None;
        for segment in segments {
            let of_segment = segment.largest_timestamp()?;
            largest = largest.max(of_segment.map(|(time, _)| time));
        }
        match largest {
            Some(timestamp) => self.offset_of_time(timestamp),
            None => Ok(None),
        }
    }

    /// Whether the partition is being deleted. Constant while `files` or `appender` is held.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Whether a sync has failed. Constant while `files` is held.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub(crate) fn set_failed(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Returns the offset up to which the log is compacted; `None` if it never was.
    pub(crate) fn compacted(&self) -> Option<i64> {
        *lock(&self.compacted)
    }

    pub(crate) fn set_compacted(&self, until: Option<i64>) {
        *lock(&self.compacted) = until;
    }

    /// Locks the published state, for changes by a thread of the log.
    pub(crate) fn published(&self) -> std::sync::MutexGuard<'_, Published> {
        lock(&self.published)
    }

    /// Moves the high watermark forward to the end of a written batch. Returns whether it moved.
    pub(crate) fn show_written(&self, offset: i64) -> bool {
        let end = lock(&self.published).end;
        match end.offset == offset {
            true => self.show_until(end),
            // A later batch waits for a sync and must not be visible before.
            false => self
                .place_of_end(offset)
                .is_some_and(|end| self.show_until(end)),
        }
    }

    /// Returns the position of the end of a recent batch.
    fn place_of_end(&self, offset: i64) -> Option<LogPosition> {
        let segments = lock(&self.published).segments.clone();
        let segment = segments
            .iter()
            .rev()
            .find(|segment| segment.base < offset)?;
        let open = segment.open().ok()?;
        let batch = open
            .find(offset - 1, (segment.size(), None), DiskWait::Allowed)
            .ok()??;
        Some(LogPosition {
            offset,
            segment: segment.base,
            position: batch.position + batch.size,
        })
    }

    /// Moves the high watermark forward. Returns whether it moved.
    pub(crate) fn show_until(&self, position: LogPosition) -> bool {
        let mut published = lock(&self.published);
        let moves = position > published.high_watermark;
        if moves {
            published.high_watermark = position;
        }
        moves
    }
}

impl Readable {
    fn read(
        &self,
        (offset, bytes_max, first): (i64, u64, FirstBatch),
        wait: DiskWait,
    ) -> Result<LogRead, ReadError> {
        for (segment, end) in &self.segments {
            let mut limit = match segment.base == self.watermark.segment {
                true => self.watermark.position,
                false => segment.size(),
            };
            let open = match (segment.opened(), wait) {
                (Some(open), _) => open,
                (None, DiskWait::Allowed) => segment.open()?,
                (None, DiskWait::Forbidden) => return Ok(LogRead::NeedsDisk),
            };
            let Some(batch) = open.find(offset, (limit, Some(*end)), wait)? else {
                continue;
            };
            if let Some(OffsetGap { offsets, place }) = &self.gap {
                if offsets.start < batch.base_offset {
                    let gap = offsets.clone();
                    return Err(ReadError::Lost { gap });
                }
                // Stop before the gap: the next read reports it. Consumers must not see damage.
                if place.0 == segment.base && place.1 > batch.position {
                    limit = limit.min(place.1);
                }
            }
            let len = match first {
                FirstBatch::Whole => bytes_max.max(batch.size),
                FirstBatch::Fitting if batch.size > bytes_max => return Ok(LogRead::Empty),
                FirstBatch::Fitting => bytes_max,
            };
            let rest = limit - batch.position;
            let end = match len > rest && segment.base != self.watermark.segment {
                true => RangeEnd::File,
                false => RangeEnd::Enough,
            };
            let range = FileRange {
                file: Arc::clone(&open.file),
                offset: batch.position,
                len: len.min(rest),
            };
            return Ok(LogRead::Records(range, end));
        }
        Ok(LogRead::Empty)
    }
}

impl Published {
    pub(crate) fn offsets(&self) -> LogOffsets {
        LogOffsets {
            start: self.start,
            high_watermark: self.high_watermark.offset,
            end: self.end.offset,
            synced: self.synced.offset,
            leader_epoch: self.epochs.latest().unwrap_or(0),
        }
    }
}
