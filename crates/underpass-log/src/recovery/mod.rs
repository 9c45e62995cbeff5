//! Opens the log of a partition, after a clean end or any other.
//!
//! ```text
//!  leftovers ─► segments ─► from the last checkpoint or snapshot on: headers ─► end, producers,
//!                           from the recovery point on: checksums too            epochs
//! ```
//!
//! After an unclean end everything up to the recovery point is there and right. Behind it the last
//! batch may be torn: what is no whole batch is cut off, and kept in a file beside. A wrong
//! checksum with whole batches behind it is damage and no torn end: it is cut off as well, and
//! reported as that.
//!
//! Where records before the recovery point are missing or damaged, the disk has lost what was
//! synced, or somebody has removed a file. Whatever is behind them stays where it is: the gap is
//! reported, and readers get an error there instead of what follows.

pub(crate) mod checkpoint;
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
use crate::index::SegmentIndex;
use crate::partition::Published;
use crate::producers::ProducerStates;
use crate::recovery::checkpoint::KnownState;
use crate::recovery::cut::{Cut, cut_end};
use crate::recovery::leftovers::{clear_leftovers, drop_segment, remove_if_there};
pub use crate::recovery::repairs::Repairs;
use crate::recovery::snapshots::{latest_producers, remove_snapshots};
use crate::segment::damage::{Numbering, OffsetGap, Search, intact_from};
use crate::segment::{INDEX, LOG, Segment, TIME_INDEX, file_path, is_intact_at, parse_name, walk};
use crate::threads::unix_ms;

/// How the broker ended before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LastEnd {
    /// Everything was synced, and nothing written since.
    Clean,
    /// By a crash, or there is no telling.
    Unclean,
}

/// What is known of a partition before it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) last_end: LastEnd,
    /// Everything before it is synced.
    pub(crate) recovery_point: i64,
    /// What was deleted at the beginning.
    pub(crate) log_start: i64,
    pub(crate) numbering: Numbering,
    /// `index.interval.bytes` of the topic.
    pub(crate) index_interval: u64,
    /// Whether the folder is made in the place of one that was lost, with its offsets and epochs.
    pub(crate) replaces_lost: bool,
}

impl Before {
    /// Of a partition that is being made.
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

/// What was opened.
pub(crate) struct Opened {
    pub(crate) published: Published,
    pub(crate) appender: Appender,
    pub(crate) repairs: Repairs,
}

/// Opens the log in a folder; makes an empty one where there is none. What is found is on the disk
/// afterwards: a process that has ended without the machine may have left it in memory.
///
/// # Errors
/// [`LogError::Disk`]: which file, and what is wrong with it.
pub(crate) fn open(folder: &Path, before: Before) -> Result<Opened, LogError> {
    clear_leftovers(folder)?;
    let mut bases = bases(folder)?;
    if bases.is_empty() {
        bases.push(before.log_start);
        Segment::create(folder, before.log_start).map_err(at(folder))?;
    }
    if before.last_end == LastEnd::Unclean {
        // Segments that are gone stay gone: what is written from now on does not go back to them.
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
    // Segments go before what they are behind is cut off. Otherwise a crash in between would leave
    // them behind a whole end.
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

/// Looks through all segments, again as long as what was relied on turns out to be wrong.
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
        // If anything turns out to be wrong it is not relied on.
        let active = active.take().filter(|_| epochs.is_some());
        let (producers, from) = match &active {
            Some(active) => (active.producers.clone(), active.next_offset),
            None => latest_producers(folder, bases[0], snapshot_max),
        };
        // It was written after a sync.
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
            // The snapshot has batches that are not there.
            snapshot_max = end;
        } else if checked_from > end && (is_promised || !scanned.cuts.is_empty()) {
            // What is there is not what was synced.
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
    // A sealed index gets no more entries; the active one does, and its files would look whole.
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
    // The epoch is on the disk before a record has it. Otherwise a second crash that loses all its
    // records would lose it too, and others would get the same offsets in the same epoch. This
    // syncs the names in the folder, too.
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

/// The epoch of what is appended: another one where something may have been lost.
fn next_epoch(latest: Option<i32>, next_offset: i64, (is_clean, were_others): (bool, bool)) -> i32 {
    match latest {
        // There were the same offsets in epochs that are not known: this one is later.
        None if were_others => late_epoch(),
        None if next_offset == 0 => 0,
        latest => latest.unwrap_or(0).saturating_add(i32::from(!is_clean)),
    }
}

/// An epoch that none is later than that has begun with 0 and risen by one with each unclean start:
/// the minutes since 1970.
fn late_epoch() -> i32 {
    i32::try_from(unix_ms() / 60_000).unwrap_or(i32::MAX / 2)
}

/// Where the log begins that has these offsets.
fn log_start(folder: &Path, known: i64, log: RangeInclusive<i64>, is_clean: bool) -> i64 {
    if known > *log.end() {
        tracing::warn!(
            "{}: the log was to begin at {known}, and ends at {}",
            folder.display(),
            log.end()
        );
        // Nothing was lost: then the number is wrong, and nothing is hidden because of it.
        if is_clean {
            return *log.start();
        }
    }
    known.clamp(*log.start(), *log.end())
}

/// The segments of a partition, as far as they are one log.
struct ScannedLog {
    /// All but the last one.
    segments: Vec<Arc<Segment>>,
    last: ScannedSegment,
    /// How many indexes were made again.
    indexed: usize,
    /// Segments behind the end.
    dropped: Vec<i64>,
    cuts: Vec<Cut>,
    next_offset: i64,
    producers: ProducerStates,
    epochs: LeaderEpochs,
    gaps: Vec<OffsetGap>,
}

impl ScannedLog {
    /// What was not deleted at the beginning, and is not there. Where the log begins is written
    /// before anything is deleted; Kafka writes it into its file of epochs.
    fn missing_start(&self, before: Before, first: i64) -> Option<Range<i64>> {
        let start = self.epochs.start()?.max(before.log_start);
        (start < first).then_some(start..first)
    }
}

/// A segment that was looked through.
struct ScannedSegment {
    segment: Segment,
    index: SegmentIndex,
    first_timestamp: Option<i64>,
    cut: Option<Cut>,
    /// Up to where it was known, and not looked through.
    known: u64,
}

struct Scan {
    index_interval: u64,
    /// An offset at which a batch has ended, as far as that is known.
    synced: i64,
    /// Up to where everything is synced.
    recovery_point: i64,
    /// From where on checksums are looked at in the last segment. Those of others are from the
    /// recovery point on: whether they are followed must not depend on what is damaged in them.
    checked_from: i64,
    numbering: Numbering,
    /// From where on producers are recorded.
    from: i64,
    /// The last segment, as far as it is known.
    active: Option<KnownState>,
    producers: ProducerStates,
    next_offset: i64,
    epochs: LeaderEpochs,
    are_epochs_known: bool,
    gaps: Vec<OffsetGap>,
}

impl Scan {
    /// Looks through the segments, up to the first one that is not followed by the next. Writes
    /// indexes that are missing, and syncs what may not be.
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
            // What is behind in others may be of records that are lost, and stays where it is.
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

    /// A full segment of which nothing has to be found out: it is synced, the producers at its end
    /// are known, and so are its epochs and its indexes.
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

    /// Goes on with the segment at `next`, if what was looked through is followed by it. Behind the
    /// recovery point a gap is what a crash has taken, and whatever is behind the gap was not
    /// synced either. In a compacted partition a gap is no sign of that; bytes that are no batch
    /// are.
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

    /// Goes on at `next`: what is missing before it is a gap, unless it was compacted.
    fn go_on(&mut self, next: i64, place: (i64, u64)) {
        match self.numbering.allows(next, self.next_offset) {
            true => self.next_offset = next,
            false => self.skip(next, place),
        }
    }

    /// Goes on at `next`: what is missing before it is a gap.
    fn skip(&mut self, next: i64, place: (i64, u64)) {
        let offsets = self.next_offset..next;
        match self.gaps.last_mut() {
            _ if offsets.is_empty() => {}
            Some(before) if before.offsets.end == offsets.start => before.offsets.end = next,
            _ => self.gaps.push(OffsetGap { offsets, place }),
        }
        self.next_offset = next;
    }

    /// Looks through a segment, behind what is known of it.
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
            // What is found may be in memory only, left by a process that has ended; and so may be
            // that an end was cut off.
            disk::sync(&file).map_err(at(&path))?;
        }
        let range = scanned.segment.size()..size;
        scanned.cut = (!range.is_empty()).then_some(Cut { path, range });
        Ok(scanned)
    }

    /// Looks through the batches of a segment, up to the first one that is not right.
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
            // What was synced is damaged, and the log may go on behind it. Where the last batch is
            // damaged itself, it has not ended there.
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

    /// Whether a batch may be the next one. Of what was synced nothing is missing before it, and
    /// nothing reaches into the next segment.
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

/// The base offsets of the segments, in order.
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
