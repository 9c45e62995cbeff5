//! Opens the log of a partition, after a clean or unclean end.
//!
//! ```text
//!  leftovers ─► segments ─► from the last checkpoint or snapshot on: headers ─► end, producers,
//!                           from the recovery point on: checksums too            epochs
//! ```
//!
//! After an unclean end, everything before the recovery point is present and intact. After it, the
//! last batch may be torn: bytes that are not a whole batch are cut off and kept in a separate
//! file. A wrong checksum followed by whole batches is damage rather than a torn end: it is cut off
//! as well, and reported as damage.
//!
//! If records before the recovery point are missing or damaged, the disk has lost synced data, or a
//! file was removed. The data after them stays in place: the gap is reported, and readers get an
//! error there instead of the following records.

mod cut;
mod leftovers;
mod repairs;
mod snapshots;

use std::fs;
use std::io;
use std::ops::{ControlFlow, Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::appender::Appender;
use crate::batch::BatchHeader;
use crate::error::{LogError, at};
use crate::files::disk::{self, DiskWait};
use crate::files::epochs::{self, LeaderEpochs};
use crate::files::times::unix_ms;
use crate::index::SegmentIndex;
use crate::partition::Published;
use crate::producers::ProducerStates;
use crate::recovery::cut::{Cut, cut_end};
use crate::recovery::leftovers::{clear_leftovers, drop_segment, remove_if_there};
pub use crate::recovery::repairs::Repairs;
use crate::recovery::snapshots::{latest_producers, remove_snapshots};
use crate::segment::checkpoint::KnownState;
use crate::segment::damage::{Numbering, OffsetGap, Search, intact_from};
use crate::segment::{INDEX, LOG, Segment, TIME_INDEX, file_path, is_intact_at, parse_name, walk};

/// How the broker ended last time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LastEnd {
    /// Everything was synced, and nothing was written afterwards.
    Clean,
    /// The broker crashed, or the end is unknown.
    Unclean,
}

/// The state of a partition before it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) last_end: LastEnd,
    /// Everything before it is synced.
    pub(crate) recovery_point: i64,
    /// The log start offset.
    pub(crate) log_start: i64,
    pub(crate) numbering: Numbering,
    /// `index.interval.bytes` of the topic.
    pub(crate) index_interval: u64,
    /// Whether the folder replaces a lost one, which had used offsets and epochs.
    pub(crate) replaces_lost: bool,
}

impl Before {
    /// Returns the state of a new partition.
    pub(crate) fn new(index_interval: u64) -> Before {
        Before {
            last_end: LastEnd::Clean,
            recovery_point: 0,
            log_start: 0,
            numbering: Numbering::default(),
            index_interval,
            replaces_lost: false,
        }
    }
}

/// An opened log.
pub(crate) struct Opened {
    pub(crate) published: Published,
    pub(crate) appender: Appender,
    pub(crate) repairs: Repairs,
}

/// Opens the log in a folder; creates an empty one if the folder has no segments. Its data is
/// synced afterwards: a process that ended may have left data in memory only.
///
/// # Errors
/// [`LogError::Disk`], with the file and the cause.
pub(crate) fn open(folder: &Path, before: Before) -> Result<Opened, LogError> {
    clear_leftovers(folder)?;
    let mut bases = bases(folder)?;
    if bases.is_empty() {
        bases.push(before.log_start);
        Segment::create(folder, before.log_start).map_err(at(folder))?;
    }
    if before.last_end == LastEnd::Unclean {
        // Sync removals of segments, because later writes do not restore them.
        disk::sync_folder(folder).map_err(at(folder))?;
    }
    let scanned = scan_all(folder, before, &bases)?;
    let missing = before.recovery_point.saturating_sub(scanned.next_offset);
    let mut repairs = Repairs {
        dropped_segments: scanned.dropped.len(),
        indexed_segments: scanned.indexed,
        missing_offsets: u64::try_from(missing).unwrap_or(0),
        missing_start: scanned.missing_start(before, bases[0]),
        gaps: scanned.gaps.iter().map(|gap| gap.offsets.clone()).collect(),
        ..Repairs::default()
    };
    // Drop later segments before cutting off the bad end. Otherwise a crash in between would leave
    // them after a good end.
    for base in &scanned.dropped {
        drop_segment(folder, *base)?;
    }
    remove_snapshots(folder, bases[0]..=scanned.next_offset)?;
    if !scanned.dropped.is_empty() {
        disk::sync_folder(folder).map_err(at(folder))?;
    }
    for cut in &scanned.cuts {
        if let Some(kept) = cut_end(cut)? {
            repairs.cut_bytes += kept.bytes;
            repairs.is_damaged |= kept.is_damaged;
        }
    }
    finish(folder, before, scanned, repairs)
}

/// Scans all segments, and repeats the scan as long as an assumption turns out to be wrong.
fn scan_all(folder: &Path, before: Before, bases: &[i64]) -> Result<ScannedLog, LogError> {
    let recovery_point = match before.last_end {
        LastEnd::Clean => i64::MAX,
        LastEnd::Unclean => before.recovery_point,
    };
    let mut checked_from = recovery_point;
    let mut snapshot_max = i64::MAX;
    let mut active = bases
        .last()
        .and_then(|base| KnownState::read(folder, *base));
    loop {
        let epochs = LeaderEpochs::read(folder);
        // If any assumption turns out to be wrong, the next scan ignores the checkpoint.
        let active = active.take().filter(|_| epochs.is_some());
        let (producers, from) = match &active {
            Some(active) => (active.producers.clone(), active.next_offset),
            None => latest_producers(folder, bases[0], snapshot_max),
        };
        // The checkpoint was written after a sync.
        let known = active.as_ref().map_or(0, |active| active.next_offset);
        let scan = Scan {
            index_interval: before.index_interval,
            synced: before.recovery_point,
            recovery_point: recovery_point.max(known),
            checked_from: checked_from.max(known),
            numbering: before.numbering,
            active,
            from,
            producers,
            next_offset: bases[0],
            gaps: Vec::new(),
            are_epochs_known: epochs.is_some(),
            epochs: epochs.unwrap_or_default(),
        };
        let scanned = scan.segments(folder, bases)?;
        let end = scanned.next_offset;
        let is_promised = recovery_point < i64::MAX || !scanned.dropped.is_empty();
        if from > end {
            // The snapshot contains batches that are missing.
            snapshot_max = end;
        } else if checked_from > end && (is_promised || !scanned.cuts.is_empty()) {
            // The log is not the one that was synced.
            checked_from = 0;
        } else {
            return Ok(scanned);
        }
    }
}

fn finish(
    folder: &Path,
    before: Before,
    scanned: ScannedLog,
    repairs: Repairs,
) -> Result<Opened, LogError> {
    let ScannedLog {
        mut segments,
        last,
        next_offset,
        producers,
        mut epochs,
        gaps,
        ..
    } = scanned;
    let active = Arc::new(last.segment);
    segments.push(Arc::clone(&active));
    // Remove the index files of the active segment: its index grows, but they would look complete.
    for extension in [INDEX, TIME_INDEX] {
        remove_if_there(&active.path(extension))?;
    }
    let path = active.path(LOG);
    let (open, index) = active.set_active(disk::open(&path).map_err(at(&path))?, last.index);
    let is_clean = before.last_end == LastEnd::Clean && !repairs.lost_end();
    let log = segments[0].base..=next_offset;
    let start = log_start(folder, before.log_start, log, is_clean);
    let were_others = before.replaces_lost || repairs.missing_offsets > 0;
    let epoch = next_epoch(epochs.latest(), next_offset, (is_clean, were_others));
    epochs.cut_end(next_offset);
    epochs.cut_start(start);
    epochs.begin(epoch, next_offset);
    // Sync the epoch before any record has it. Otherwise a second crash that loses all its records
    // would lose it too, and other records would get the same offsets in the same epoch. This also
    // syncs the names in the folder.
    let path = folder.join(epochs::NAME);
    epochs.write(folder).map_err(at(&path))?;
    let appender = Appender {
        producers,
        reserved: active.size(),
        active,
        open,
        index,
        epoch,
        next_offset,
        first_timestamp: last.first_timestamp,
        active_since: Instant::now(),
        checkpointed: last.known,
        state: None,
        unsynced: Vec::new(),
        unsynced_records: 0,
        folder_changed: false,
        sealed: Vec::new(),
        unfinished: Vec::new(),
    };
    let end = appender.end();
    Ok(Opened {
        published: Published {
            start,
            end,
            synced: end,
            high_watermark: end,
            segments,
            epochs,
            gaps,
        },
        appender,
        repairs,
    })
}

/// Returns the epoch of new records: a new one if records may have been lost.
fn next_epoch(latest: Option<i32>, next_offset: i64, (is_clean, were_others): (bool, bool)) -> i32 {
    match latest {
        // Lost records had the same offsets in unknown epochs: use a later one.
        None if were_others => late_epoch(),
        None if next_offset == 0 => 0,
        latest => latest.unwrap_or(0).saturating_add(i32::from(!is_clean)),
    }
}

/// Returns an epoch later than any that started at 0 and rose by one with each unclean start: the
/// minutes since 1970.
fn late_epoch() -> i32 {
    i32::try_from(unix_ms() / 60_000).unwrap_or(i32::MAX / 2)
}

/// Returns the start of a log with the offsets `log`, given its `known` start.
fn log_start(folder: &Path, known: i64, log: RangeInclusive<i64>, is_clean: bool) -> i64 {
    if known > *log.end() {
        tracing::warn!(
            "{}: the log was to begin at {known}, and ends at {}",
            folder.display(),
            log.end()
        );
        // Nothing was lost, so the number is wrong and must not hide records.
        if is_clean {
            return *log.start();
        }
    }
    known.clamp(*log.start(), *log.end())
}

/// The result of a scan: the segments that form one log.
struct ScannedLog {
    /// All segments but the last.
    segments: Vec<Arc<Segment>>,
    last: ScannedSegment,
    /// The number of rebuilt indexes.
    indexed: usize,
    /// Segments after the end.
    dropped: Vec<i64>,
    cuts: Vec<Cut>,
    next_offset: i64,
    producers: ProducerStates,
    epochs: LeaderEpochs,
    gaps: Vec<OffsetGap>,
}

impl ScannedLog {
    /// Returns offsets at the beginning that are missing but were not deleted. The log start is
    /// written before segments are deleted; Kafka writes it into its file of epochs.
    fn missing_start(&self, before: Before, first: i64) -> Option<Range<i64>> {
        let start = self.epochs.start()?.max(before.log_start);
        (start < first).then_some(start..first)
    }
}

/// A scanned segment.
struct ScannedSegment {
    segment: Segment,
    index: SegmentIndex,
    first_timestamp: Option<i64>,
    cut: Option<Cut>,
    /// The position from which the scan started, given by the checkpoint.
    known: u64,
}

struct Scan {
    index_interval: u64,
    /// An offset at which a batch ended, if known.
    synced: i64,
    /// The offset before which everything is synced.
    recovery_point: i64,
    /// The offset from which checksums are verified in the last segment. In other segments it is
    /// the recovery point: whether they are followed must not depend on damage in them.
    checked_from: i64,
    numbering: Numbering,
    /// The offset from which producers are recorded.
    from: i64,
    /// The checkpoint of the last segment.
    active: Option<KnownState>,
    producers: ProducerStates,
    next_offset: i64,
    epochs: LeaderEpochs,
    are_epochs_known: bool,
    gaps: Vec<OffsetGap>,
}

impl Scan {
    /// Scans the segments, up to the first one that the next does not follow. Writes missing
    /// indexes and syncs data that may not be synced.
    fn segments(mut self, folder: &Path, bases: &[i64]) -> Result<ScannedLog, LogError> {
        let (mut segments, mut cuts, mut indexed) = (Vec::new(), Vec::new(), 0);
        for (number, base) in bases.iter().enumerate() {
            let next = bases.get(number + 1).copied();
            if let Some(segment) = next.and_then(|next| self.known(folder, *base, next)) {
                segments.push(Arc::new(segment));
                continue;
            }
            let state = self.active.take_if(|_| next.is_none());
            let mut scanned = self.segment(folder, (*base, next), state)?;
            let is_followed = next.is_some_and(|next| self.follow(next, &scanned));
            // Bytes at the end of a followed segment may belong to lost records: leave them there.
            let cut = scanned.cut.take();
            cuts.extend(cut.filter(|cut| !is_followed || cut.is_zeros()));
            if !is_followed {
                return Ok(ScannedLog {
                    segments,
                    last: scanned,
                    indexed,
                    dropped: bases[number + 1..].to_vec(),
                    cuts,
                    next_offset: self.next_offset,
                    producers: self.producers,
                    epochs: self.epochs,
                    gaps: self.gaps,
                });
            }
            scanned.index.seal();
            let segment = &scanned.segment;
            let written = segment.write_index(&scanned.index);
            written.map_err(at(&segment.path(INDEX)))?;
            indexed += 1;
            segments.push(Arc::new(scanned.segment));
        }
        Err(at(folder)(io::ErrorKind::NotFound.into()))
    }

    /// Returns a full segment that needs no scan: it is synced, and the producers at its end, its
    /// epochs and its indexes are known.
    fn known(&mut self, folder: &Path, base: i64, next: i64) -> Option<Segment> {
        if next > self.from.min(self.recovery_point) || !self.are_epochs_known {
            return None;
        }
        let size = disk::regular_size(&file_path(folder, base, LOG)).ok()?;
        let segment = Segment::closed(folder, base, size, self.numbering);
        segment.is_whole(next).then_some(())?;
        self.next_offset = next;
        Some(segment)
    }

    /// Continues with the segment at `next` if it follows the scanned one. After the recovery
    /// point, a gap is the loss of a crash, and data after it was not synced either. In a compacted
    /// partition gaps are normal, and only invalid bytes are a loss.
    fn follow(&mut self, next: i64, scanned: &ScannedSegment) -> bool {
        let is_whole = scanned.cut.is_none();
        let is_followed = next == self.next_offset
            || next > self.next_offset && self.next_offset < self.recovery_point
            || is_whole && self.numbering.allows(next, self.next_offset);
        if is_followed {
            let place = (scanned.segment.base, scanned.segment.size());
            match is_whole {
                true => self.go_on(next, place),
                false => self.skip(next, place),
            }
        }
        is_followed
    }

    /// Continues at `next`: missing offsets are a gap, unless they were compacted.
    fn go_on(&mut self, next: i64, place: (i64, u64)) {
        match self.numbering.allows(next, self.next_offset) {
            true => self.next_offset = next,
            false => self.skip(next, place),
        }
    }

    /// Continues at `next`: missing offsets are a gap.
    fn skip(&mut self, next: i64, place: (i64, u64)) {
        let offsets = self.next_offset..next;
        match self.gaps.last_mut() {
            _ if offsets.is_empty() => {}
            Some(before) if before.offsets.end == offsets.start => before.offsets.end = next,
            _ => self.gaps.push(OffsetGap { offsets, place }),
        }
        self.next_offset = next;
    }

    /// Scans a segment after the part known from its checkpoint.
    fn segment(
        &mut self,
        folder: &Path,
        (base, next): (i64, Option<i64>),
        known: Option<KnownState>,
    ) -> Result<ScannedSegment, LogError> {
        let path = file_path(folder, base, LOG);
        let size = disk::regular_size(&path).map_err(at(&path))?;
        let file = disk::open(&path).map_err(at(&path))?;
        let mut scanned = ScannedSegment {
            segment: Segment::closed(folder, base, 0, self.numbering),
            index: SegmentIndex::new(base),
            first_timestamp: None,
            cut: None,
            known: 0,
        };
        self.next_offset = self.next_offset.max(base);
        if let Some(known) = known {
            self.next_offset = known.next_offset;
            scanned.segment.set_size(known.position);
            scanned.index = known.index;
            scanned.first_timestamp = Some(known.first_timestamp);
            scanned.known = known.position;
        }
        let looked = self.batches(&file, (size, next), &mut scanned);
        looked.map_err(at(&path))?;
        if self.recovery_point.min(self.checked_from) < i64::MAX {
            // The data, and the effect of an earlier cut, may be in memory only, left by a process
            // that has ended.
            disk::sync(&file).map_err(at(&path))?;
        }
        let range = scanned.segment.size()..size;
        scanned.cut = (!range.is_empty()).then_some(Cut { path, range });
        Ok(scanned)
    }

    /// Scans the batches of a segment, up to the first invalid one.
    fn batches(
        &mut self,
        file: &fs::File,
        (size, next): (u64, Option<i64>),
        scanned: &mut ScannedSegment,
    ) -> io::Result<()> {
        let base = scanned.segment.base;
        let checked_from = match next {
            Some(_) => self.recovery_point,
            None => self.checked_from,
        };
        let (mut from, mut resumed) = (scanned.known, None);
        let mut search = Search::of((base, self.numbering), size, next);
        if next.is_none() && self.synced > 0 {
            search.end = Some(self.synced);
        }
        loop {
            let (mut wrong, mut last) = (Ok(()), None);
            let wait = DiskWait::Allowed;
            let end = walk(file, from, size, wait, &mut |place, header| {
                let is_right =
                    resumed == Some(place.position) || self.is_expected(header, (base, next));
                let mut is_intact = || {
                    let checked = is_intact_at(file, place, header);
                    checked.unwrap_or_else(|error| {
                        wrong = Err(error);
                        false
                    })
                };
                if !is_right || header.last_offset() >= checked_from && !is_intact() {
                    return ControlFlow::Break(());
                }
                self.go_on(header.base_offset, (base, place.position));
                scanned.first_timestamp.get_or_insert(header.max_timestamp);
                let index = &mut scanned.index;
                index.add(header, place.position, self.index_interval);
                self.record(header);
                last = Some((*place, *header));
                scanned.segment.set_size(place.position + place.size);
                ControlFlow::Continue(())
            })?;
            wrong?;
            let is_complete = next.is_none_or(|next| self.numbering.allows(next, self.next_offset));
            if end >= size && is_complete || self.next_offset >= self.recovery_point {
                return Ok(());
            }
            // Synced data is damaged; the log may continue after it. A damaged last batch may have
            // ended elsewhere, so the damage starts with it.
            let (damaged, lost) = match last {
                Some((place, header)) if !is_intact_at(file, &place, &header)? => {
                    (place.position, header.base_offset)
                }
                _ => (end, self.next_offset),
            };
            let Some((place, header)) = intact_from(file, damaged, lost, &search)? else {
                return Ok(());
            };
            self.next_offset = lost;
            self.skip(header.base_offset, (base, damaged));
            (from, resumed) = (place.position, Some(place.position));
        }
    }

    /// Whether a batch may be next. In the synced part it must follow without a gap, and must not
    /// reach into the next segment.
    fn is_expected(&self, header: &BatchHeader, (base, next): (i64, Option<i64>)) -> bool {
        let is_synced = self.next_offset < self.recovery_point;
        let reaches_over =
            |next| (is_synced || next <= self.recovery_point) && header.next_offset() > next;
        header.is_within(base, self.next_offset)
            && (!is_synced || self.numbering.allows(header.base_offset, self.next_offset))
            && !next.is_some_and(reaches_over)
    }

    fn record(&mut self, header: &BatchHeader) {
        self.next_offset = header.next_offset();
        self.epochs.begin(header.leader_epoch, header.base_offset);
        if header.base_offset >= self.from && !header.is_control() {
            self.producers.record(header);
            self.producers.bound();
        }
    }
}

/// Returns the base offsets of the segments, in order.
fn bases(folder: &Path) -> Result<Vec<i64>, LogError> {
    let mut bases = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry.map_err(at(folder))?;
        if let Some((base, LOG)) = entry.file_name().to_str().and_then(parse_name) {
            bases.push(base);
        }
    }
    bases.sort_unstable();
    Ok(bases)
}
