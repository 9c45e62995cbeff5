//! A partition: segments one behind the other, and what of them readers may see.
//!
//! ```text
//!  log start                            high watermark      log end
//!     │ segment │ segment │ … │ active segment     │              │
//!     └── readers see this ────────────────────────┘ written, and not yet synced
//! ```
//!
//! Appends are made by one thread (`appender`). Readers take what is published, under a lock that
//! is never held over a system call.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use underpass::FileRange;

use crate::appender::Appender;
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
    /// Held while files are found or made by their names, except by appends, which hold `appender`.
    /// Comes before that.
    pub(crate) files: Mutex<()>,
    /// Whether the partition is being deleted.
    pub(crate) is_deleted: AtomicBool,
    /// Whether a sync has failed, since when nothing of it counts as synced.
    has_failed: AtomicBool,
}

/// What readers see.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) start: i64,
    pub(crate) end: LogPosition,
    /// Everything before it would be there after a crash.
    pub(crate) synced: LogPosition,
    pub(crate) high_watermark: LogPosition,
    /// In order; the last one is the active one.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: LeaderEpochs,
    /// Records that were lost, in order.
    pub(crate) gaps: Vec<OffsetGap>,
}

/// The offsets of a partition at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogOffsets {
    /// The first one that is there.
    pub start: i64,
    /// The first one that consumers do not see yet.
    pub high_watermark: i64,
    /// The one that the next record gets.
    pub end: i64,
    /// What would be there after a crash.
    pub synced: i64,
    /// The epoch of what is appended.
    pub leader_epoch: i32,
}

/// What of a fetch is there.
#[derive(Clone, Debug)]
pub enum LogRead {
    /// Batches from the one on that has the offset, in one file. The last one may be cut off.
    Records(FileRange, RangeEnd),
    /// There is nothing yet, or not one batch fits.
    Empty,
    /// The file has to be looked into, and that would wait for the disk: ask again on a thread
    /// that may.
    NeedsDisk,
}

/// Why a range of records ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RangeEnd {
    /// There is nothing more to be seen yet, or the range has as many bytes as were asked for.
    Enough,
    /// The file ends, and another one has more.
    File,
}

/// What a read may look at.
struct Readable {
    /// Those that may have the offset, the first one first, with the offset at the end of each.
    segments: Vec<(Arc<Segment>, i64)>,
    /// How far the last one that has something to be seen may be read.
    watermark: LogPosition,
    /// What is lost next.
    gap: Option<OffsetGap>,
}

/// Whether one batch is read even where it is larger than what was asked for (KIP-74).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FirstBatch {
    /// It is, so that a consumer gets on.
    Whole,
    /// It has to fit.
    Fitting,
}

/// Why nothing is read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is before the start of the log, or behind its end.
    #[error("offset {offset} is not within {} and {}", offsets.start, offsets.end)]
    OutOfRange {
        /// What was asked for.
        offset: i64,
        /// What there is.
        offsets: LogOffsets,
    },
    /// The record was lost: it was synced, and is missing or damaged.
    #[error(
        "the records from {} to {} were synced, and are missing or damaged",
        gap.start,
        gap.end - 1
    )]
    Lost {
        /// What was lost.
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
        }
    }

    /// The name.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// A number that no other partition of this process has or had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The id of the topic, as `partition.metadata` has it.
    pub fn topic_id(&self) -> &str {
        &self.topic_id
    }

    /// How it is kept.
    pub fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&lock(&self.config))
    }

    /// Changes how it is kept, for what follows.
    pub fn set_config(&self, config: Arc<TopicConfig>) {
        *lock(&self.config) = config;
    }

    /// The offsets at this moment.
    pub fn offsets(&self) -> LogOffsets {
        lock(&self.published).offsets()
    }

    /// How many bytes the segments have.
    pub fn size(&self) -> u64 {
        let segments = lock(&self.published).segments.clone();
        segments.iter().map(|segment| segment.size()).sum()
    }

    /// The largest id of an idempotent producer that has written here, as far as that is
    /// remembered.
    pub fn largest_producer_id(&self) -> Option<i64> {
        lock(&self.appender).producers.largest_id()
    }

    /// The end of the latest epoch up to `epoch` (KIP-320): that epoch, and the first offset behind
    /// it; nothing where it is not known.
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let published = lock(&self.published);
        published.epochs.end_of(epoch, published.end.offset)
    }

    /// Reads from `offset` on: at most `bytes_max` bytes, of one segment, that consumers may see.
    /// Without system calls for an offset among the latest batches, otherwise with one or two.
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

    /// Remembers records of which a read has found out that they are lost.
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

    /// What may be looked at for an offset; nothing where there is nothing to be seen yet.
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
        // Mostly one has it; a gap at its end is what the next one is for. Damage has left empty
        // ones, any number of them.
        let visible = from
            .iter()
            .zip(ends)
            .take_while(|(segment, _)| segment.base <= watermark.segment)
            .filter(|(segment, _)| segment.size() > 0);
        Ok(Some(Readable {
            segments: visible
                .take(2)
                .map(|(segment, end)| (Arc::clone(segment), end.min(watermark.offset)))
                .collect(),
            watermark,
            gap: gap.cloned(),
        }))
    }

    /// The first record that has a timestamp of at least `timestamp`, as its offset and its
    /// timestamp; nothing if there is none. Where the records of its batch cannot be read, the
    /// first one of the batch. Blocks.
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

    /// The first record that has the largest timestamp, as its offset and its timestamp (KIP-734).
    /// Blocks.
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

    /// Whether the partition is being deleted, for as long as `files` or `appender` is held.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Whether a sync has failed, for as long as `files` is held.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub(crate) fn set_failed(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// What is published, to be changed by a thread of the log.
    pub(crate) fn published(&self) -> std::sync::MutexGuard<'_, Published> {
        lock(&self.published)
    }

    /// Moves the high watermark behind a batch that was written, never back. Returns whether it has
    /// moved.
    pub(crate) fn show_written(&self, offset: i64) -> bool {
        let end = lock(&self.published).end;
        match end.offset == offset {
            true => self.show_until(end),
            // A batch behind it waits for a sync, and is not to be seen before.
            false => self
                .place_of_end(offset)
                .is_some_and(|end| self.show_until(end)),
        }
    }

    /// The place of the end of a batch among the latest ones.
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

    /// Moves the high watermark, never back. Returns whether it has moved.
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
                // Consumers do not see what is no batch, and come back for what is lost.
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
