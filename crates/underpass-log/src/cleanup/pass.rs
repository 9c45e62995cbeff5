//! One pass over a log: as many keys as the map has room for.

use std::collections::HashSet;
use std::io;

use crate::batch::BatchHeader;
use crate::batch::rewrite::{self, KeyedRecord, RewriteBuffers, Rewritten};
use crate::cleanup::error::CleanError;
use crate::cleanup::map::OffsetMap;
use crate::cleanup::pace::Pace;
use crate::cleanup::plan::{CleanablePart, SourceSegment};
use crate::cleanup::reader::SegmentReader;
use crate::cleanup::retention::DeletedFiles;
use crate::cleanup::swap;
use crate::cleanup::writer::CleanedSegment;
use crate::config::TopicConfig;
use crate::partition::PartitionLog;
use crate::segment::lock;

/// The largest uncompressed size of a batch whose records are read, in bytes.
const RECORDS_BYTES_MAX: u64 = 64 << 20;

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CleanedPart {
    /// The offset up to which the log is compacted.
    pub(crate) end: i64,
    /// The numbers of segments and bytes before and after.
    pub(crate) segments: (usize, usize),
    pub(crate) bytes: (u64, u64),
    pub(crate) removed_records: u64,
}

/// A pass over a log.
pub(crate) struct CleanPass<'p> {
    pub(crate) log: &'p PartitionLog,
    pub(crate) part: &'p CleanablePart,
    pub(crate) now_ms: i64,
    pub(crate) map_bytes_max: usize,
    pub(crate) deleted: &'p DeletedFiles,
}

/// The state that decides about batches.
struct Filter<'f> {
    map: &'f OffsetMap,
    /// The offset from which records are not in the map.
    end: i64,
    now_ms: i64,
    delete_retention_ms: i64,
    /// The last offset of the latest batch of each producer. Recovery finds the sequence numbers
    /// there.
    producer_batches: HashSet<i64>,
    /// Whether a batch was kept whose records may not count. Later tombstones stay, too.
    has_opaque: bool,
    buffers: RewriteBuffers,
    removed_records: u64,
}

/// The decision about a batch.
enum Kept {
    AsItIs,
    /// The batch in the buffers.
    Rewritten,
    /// A header without records.
    Empty,
    Nothing,
}

impl CleanPass<'_> {
    /// Compacts the part, or as much as the map has room for. Calls `before_change` before the
    /// first segment is replaced: from then on offsets may be missing.
    ///
    /// # Errors
    /// [`CleanError`]. The log is compacted in part; another pass continues.
    pub(crate) fn run(
        &self,
        pace: &mut Pace<'_>,
        before_change: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<CleanedPart, CleanError> {
        let config = self.log.config();
        let mut buffers = RewriteBuffers::default();
        let (map, end) = self.mapped(&mut buffers, pace)?;
        let mut filter = Filter {
            map: &map,
            end,
            now_ms: self.now_ms,
            delete_retention_ms: config.delete_retention_ms,
            producer_batches: lock(&self.log.appender).producers.batch_ends(),
            has_opaque: false,
            buffers,
            removed_records: 0,
        };
        let mut part = CleanedPart {
            end,
            ..CleanedPart::default()
        };
        for group in self.part.groups(end, &config) {
            let (bytes, removed) = (group_bytes(&group), filter.removed_records);
            let size = self.group(&group, &mut filter, (pace, &config), before_change)?;
            part.segments.0 += group.len();
            part.segments.1 += 1;
            part.bytes.0 += bytes;
            part.bytes.1 += size.unwrap_or(bytes);
            part.removed_records += filter.removed_records - removed;
        }
        Ok(part)
    }

    /// Records the keys of the records not yet compacted. Returns the map, and the offset up to
    /// which it has them.
    fn mapped(
        &self,
        buffers: &mut RewriteBuffers,
        pace: &mut Pace<'_>,
    ) -> Result<(OffsetMap, i64), CleanError> {
        let CleanablePart {
            sources,
            first_dirty,
            end,
            ..
        } = self.part;
        let mut map = OffsetMap::new(first_dirty.abs_diff(*end), self.map_bytes_max);
        let mut full_at = None;
        for source in sources.iter().filter(|source| source.end > *first_dirty) {
            let mut reader = SegmentReader::from(source, *first_dirty)?;
            while let Some(read) = reader.next(pace)? {
                let (header, batch) = (read.header, read.bytes);
                if is_opaque(&header) {
                    continue;
                }
                let form = (&mut *buffers, RECORDS_BYTES_MAX);
                let visited = rewrite::visit_records(batch, &header, form, &mut |record| {
                    let Some(key) = record.key.filter(|_| record.offset >= *first_dirty) else {
                        return;
                    };
                    if full_at.is_none() && !map.insert(key, record.offset) {
                        full_at = Some(record.offset);
                    }
                });
                if let Err(error) = visited {
                    let log = self.log.name();
                    tracing::debug!("{log}: batch {}: {error}", header.base_offset);
                }
                if let Some(full_at) = full_at {
                    return Ok((map, full_at));
                }
            }
        }
        Ok((map, *end))
    }

    /// Compacts segments into one. Returns its size; `None` if nothing changes.
    fn group(
        &self,
        group: &[SourceSegment],
        filter: &mut Filter<'_>,
        (pace, config): (&mut Pace<'_>, &TopicConfig),
        before_change: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<Option<u64>, CleanError> {
        if group_bytes(group) == 0 {
            return Ok(None);
        }
        let mut cleaned = CleanedSegment::new(self.log, group, config.index_interval_bytes);
        let mut replaced = || {
            filter_group(group, filter, &mut cleaned, pace)?;
            if !cleaned.finish(pace)? {
                return Ok(None);
            }
            before_change()?;
            swap::replace(self.log, group, cleaned.size(), self.deleted)?;
            Ok(Some(cleaned.size()))
        };
        let outcome = replaced();
        if outcome.is_err() {
            cleaned.discard();
        }
        outcome
    }
}

/// Adds the batches of a group that are kept.
fn filter_group(
    group: &[SourceSegment],
    filter: &mut Filter<'_>,
    cleaned: &mut CleanedSegment<'_>,
    pace: &mut Pace<'_>,
) -> Result<(), CleanError> {
    let last = group.iter().rposition(|source| source.segment.size() > 0);
    for (number, source) in group.iter().enumerate() {
        if number > 0 {
            cleaned.diverge(pace)?;
        }
        let mut reader = SegmentReader::from(source, source.segment.base)?;
        while let Some(read) = reader.next(pace)? {
            let (header, batch) = (read.header, read.bytes);
            let is_last = Some(number) == last && read.is_last;
            match filter.decide(&header, batch, is_last) {
                Kept::AsItIs => cleaned.keep(&header, batch, pace)?,
                Kept::Rewritten => cleaned.add(&filter.buffers.batch, pace)?,
                Kept::Empty => cleaned.add(&rewrite::emptied(&header), pace)?,
                Kept::Nothing => cleaned.diverge(pace)?,
            }
        }
    }
    Ok(())
}

impl Filter<'_> {
    /// Decides about a batch. The last one of a group is not dropped, so that the new segment ends
    /// where the old ones did.
    fn decide(&mut self, header: &BatchHeader, batch: &[u8], is_last: bool) -> Kept {
        if is_opaque(header) {
            self.has_opaque = true;
            return Kept::AsItIs;
        }
        let is_needed = is_last || self.producer_batches.contains(&header.last_offset());
        if header.count == 0 {
            return if is_needed {
                Kept::AsItIs
            } else {
                Kept::Nothing
            };
        }
        let mut buffers = std::mem::take(&mut self.buffers);
        let form = (&mut buffers, RECORDS_BYTES_MAX);
        let horizon = self.now_ms.saturating_add(self.delete_retention_ms);
        let rewritten = rewrite::rewrite(batch, header, form, horizon, &mut |record| {
            self.keeps(&record, header)
        });
        self.buffers = buffers;
        match rewritten {
            Ok(Rewritten::Unchanged) => Kept::AsItIs,
            Ok(Rewritten::Changed(removed)) => {
                self.removed_records += removed as u64;
                Kept::Rewritten
            }
            Ok(Rewritten::Emptied) => {
                self.removed_records += u64::from(header.count.unsigned_abs());
                if is_needed {
                    Kept::Empty
                } else {
                    Kept::Nothing
                }
            }
            // Too large for memory, or not understood, though it is intact.
            Err(_) => {
                self.has_opaque = true;
                Kept::AsItIs
            }
        }
    }

    fn keeps(&self, record: &KeyedRecord<'_>, header: &BatchHeader) -> bool {
        if record.offset >= self.end {
            return true;
        }
        let Some(key) = record.key else {
            return false;
        };
        let is_latest = self
            .map
            .get(key)
            .is_none_or(|latest| latest <= record.offset);
        let horizon = header.delete_horizon();
        let is_expired = record.is_tombstone
            && !self.has_opaque
            && horizon.is_some_and(|horizon| horizon <= self.now_ms);
        is_latest && !is_expired
    }
}

/// Whether the records of a batch may not count, because of their transaction.
fn is_opaque(header: &BatchHeader) -> bool {
    header.is_control() || header.is_transactional()
}

fn group_bytes(group: &[SourceSegment]) -> u64 {
    group.iter().map(|source| source.segment.size()).sum()
}
