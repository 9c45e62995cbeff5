//! Which part of a log can be compacted, and which of its segments become one.

use std::io;
use std::sync::Arc;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::config::TopicConfig;
use crate::files::disk::{self, DiskWait};
use crate::partition::PartitionLog;
use crate::segment::{INDEX, Segment, TIME_INDEX};

/// A closed segment, with the offset at its end.
#[derive(Clone, Debug)]
pub(crate) struct SourceSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) end: i64,
}

/// The part of a log that can be compacted.
///
/// ```text
///  start          first dirty offset      end             log end
///    │ compacted before │ not yet compacted │ lag, unsynced, active │
/// ```
#[derive(Clone, Debug)]
pub(crate) struct CleanablePart {
    /// The segments, the compacted ones first.
    pub(crate) sources: Vec<SourceSegment>,
    /// The first offset that was not compacted yet. It may be within a segment.
    pub(crate) first_dirty: i64,
    pub(crate) end: i64,
    /// The part of the bytes that was not compacted yet, from 0 to 1.
    pub(crate) dirty_ratio: f64,
    /// Whether a record is older than `max.compaction.lag.ms`.
    is_overdue: bool,
}

impl CleanablePart {
    /// Returns the part of a log that can be compacted now; `None` if there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn of(log: &PartitionLog, now_ms: i64) -> io::Result<Option<CleanablePart>> {
        let config = log.config();
        if !config.cleanup_policy.compacts() {
            return Ok(None);
        }
        let (segments, start, safe) = {
            let published = log.published();
            let safe = published.high_watermark.offset.min(published.synced.offset);
            (published.segments.clone(), published.start, safe)
        };
        let active = segments.last().map_or(0, |segment| segment.base);
        let first_dirty = log.compacted().filter(|until| *until <= active);
        let first_dirty = first_dirty.unwrap_or(start).max(start);
        let ends = segments.iter().skip(1).map(|next| next.base);
        let sources = segments
            .iter()
            .zip(ends)
            .map(|(segment, end)| SourceSegment {
                segment: Arc::clone(segment),
                end,
            });
        let mut sources: Vec<_> = sources.take_while(|source| source.end <= safe).collect();
        cut_young(&mut sources, first_dirty, (&config, now_ms))?;
        let Some(end) = sources.last().map(|last| last.end) else {
            return Ok(None);
        };
        if end <= first_dirty {
            return Ok(None);
        }
        let dirty = || sources.iter().filter(|source| source.end > first_dirty);
        let dirty_bytes: u64 = dirty().map(|source| source.segment.size()).sum();
        let all_bytes: u64 = sources.iter().map(|source| source.segment.size()).sum();
        let is_overdue = is_overdue(dirty(), (&config, now_ms))?;
        Ok((dirty_bytes > 0).then(|| CleanablePart {
            dirty_ratio: dirty_bytes as f64 / all_bytes as f64,
            sources,
            first_dirty,
            end,
            is_overdue,
        }))
    }

    /// Whether it is worth the work, or has to be done.
    pub(crate) fn is_due(&self, config: &TopicConfig) -> bool {
        self.is_overdue || self.dirty_ratio > config.min_cleanable_dirty_ratio
    }

    /// Whether the partition was deleted, or its first segments were.
    pub(crate) fn is_outdated(&self, log: &PartitionLog) -> bool {
        let first = self.sources.first().map(|source| source.segment.base);
        let published = log.published();
        let present = published.segments.first().map(|segment| segment.base);
        log.is_deleted() || present > first
    }

    /// Returns the segments with offsets before `end`, in groups that become one segment each.
    pub(crate) fn groups(&self, end: i64, config: &TopicConfig) -> Vec<Vec<SourceSegment>> {
        let mut groups: Vec<Vec<SourceSegment>> = Vec::new();
        let mut sizes = [0; 3];
        let sources = self.sources.iter();
        for source in sources.take_while(|source| source.segment.base < end) {
            let of_source = sizes_of(&source.segment);
            let sums = [0, 1, 2].map(|number| sizes[number] + of_source[number]);
            let index_bytes = config.segment_index_bytes;
            let fits = |group: &&mut Vec<SourceSegment>| {
                let base = group.first().map_or(0, |first| first.segment.base);
                sums[0] <= config.segment_bytes
                    && sums[1].max(sums[2]) <= index_bytes
                    && source.end - base <= i64::from(i32::MAX)
            };
            match groups.last_mut().filter(fits) {
                Some(group) => {
                    group.push(source.clone());
                    sizes = sums;
                }
                None => {
                    groups.push(vec![source.clone()]);
                    sizes = of_source;
                }
            }
        }
        groups
    }
}

/// Removes the segments from the first one with a record that is too young to be compacted on.
fn cut_young(
    sources: &mut Vec<SourceSegment>,
    first_dirty: i64,
    (config, now_ms): (&TopicConfig, i64),
) -> io::Result<()> {
    if config.min_compaction_lag_ms == 0 {
        return Ok(());
    }
    let oldest = now_ms.saturating_sub(config.min_compaction_lag_ms);
    for (number, source) in sources.iter().enumerate() {
        if source.end <= first_dirty {
            continue;
        }
        let latest = source.segment.largest_timestamp()?;
        if latest.is_some_and(|(timestamp, _)| timestamp > oldest) {
            sources.truncate(number);
            return Ok(());
        }
    }
    Ok(())
}

/// Whether the first batch of a segment is older than `max.compaction.lag.ms`.
fn is_overdue<'s>(
    mut dirty: impl Iterator<Item = &'s SourceSegment>,
    (config, now_ms): (&TopicConfig, i64),
) -> io::Result<bool> {
    if config.max_compaction_lag_ms == i64::MAX {
        return Ok(false);
    }
    let oldest = now_ms.saturating_sub(config.max_compaction_lag_ms);
    dirty.try_fold(false, |is_overdue, source| {
        if is_overdue || source.segment.size() == 0 {
            return Ok(is_overdue);
        }
        let mut header = [0; HEADER_BYTES];
        let open = source.segment.open_once()?;
        disk::read_exact(&*open.file, &mut header, 0, DiskWait::Allowed)?;
        let first = BatchHeader::parse(&header).map_or(-1, |header| header.max_timestamp);
        Ok((1..oldest).contains(&first))
    })
}

/// Returns the sizes of a segment and of its indexes, in bytes.
fn sizes_of(segment: &Segment) -> [u64; 3] {
    let size = |extension| disk::regular_size(&segment.path(extension)).unwrap_or(0);
    [segment.size(), size(INDEX), size(TIME_INDEX)]
}
