//! Opens the log of a partition, after a clean end or any other.
//!
//! ```text
//!  leftovers ─► segments ─► from the last snapshot on: headers ─► end, producers, epochs
//!                           from the recovery point on: checksums too
//! ```
//!
//! After an unclean end everything up to the recovery point is there and right. Behind it the last
//! batch may be torn: what is no whole batch is cut off, and kept in a file beside. A wrong
//! checksum with whole batches behind it is damage and no torn end: it is cut off as well, and
//! reported as that.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::appender::Appender;
use crate::batch::{BatchHeader, is_intact};
use crate::files::disk;
use crate::files::epochs::LeaderEpochs;
use crate::index::SegmentIndex;
use crate::partition::Published;
use crate::position::LogPosition;
use crate::producers::ProducerStates;
use crate::segment::{DiskWait, LOG, SNAPSHOT, Segment, file_path, parse_name, walk};

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
    /// `index.interval.bytes` of the topic.
    pub(crate) index_interval: u64,
}

impl Before {
    /// Of a partition that is being made.
    pub(crate) fn new(index_interval: u64) -> Before {
        Before {
            last_end: LastEnd::Clean,
            recovery_point: 0,
            log_start: 0,
            index_interval,
        }
    }
}

/// What was found, and is worth a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Repairs {
    /// Bytes behind the last whole batch, which are in a file beside now.
    pub cut_bytes: u64,
    /// Whether whole batches were among them: the disk has damaged what was before.
    pub is_damaged: bool,
    /// Segments behind what was cut off, which have another name now.
    pub dropped_segments: usize,
    /// Segments whose indexes were made again.
    pub indexed_segments: usize,
}

impl Repairs {
    /// Whether anything was lost.
    pub fn lost_something(&self) -> bool {
        self.cut_bytes > 0 || self.dropped_segments > 0
    }
}

/// What was opened.
pub(crate) struct Opened {
    pub(crate) published: Published,
    pub(crate) appender: Appender,
    pub(crate) repairs: Repairs,
}

/// The suffix of what was cut off.
const CUT: &str = "cut";

/// Opens the log in a folder; makes an empty one where there is none.
///
/// # Errors
/// Of the kernel.
pub(crate) fn open(folder: &Path, before: Before) -> io::Result<Opened> {
    clear_leftovers(folder)?;
    let mut bases = bases(folder)?;
    let mut repairs = Repairs::default();
    let mut epochs = LeaderEpochs::read(folder);
    if bases.is_empty() {
        bases.push(before.log_start);
        Segment::create(folder, before.log_start)?;
    }
    let (producers, from) = latest_producers(folder, &bases);
    let mut scan = Scan {
        before,
        producers,
        next_offset: bases[0],
        epochs: &mut epochs,
    };
    let mut sealed = Vec::new();
    let mut bases = bases.into_iter().peekable();
    let mut active = None;
    while let Some(base) = bases.next() {
        let next = bases.peek().copied();
        if let Some(segment) = next.and_then(|next| scan.known(folder, base, next, from)) {
            sealed.push(Arc::new(segment));
            continue;
        }
        let scanned = scan.segment(folder, base, from, &mut repairs)?;
        if next.is_none() || scanned.is_cut {
            active = Some(scanned);
            break;
        }
        let mut index = scanned.index;
        index.seal();
        scanned.segment.write_index(&index)?;
        repairs.indexed_segments += 1;
        sealed.push(Arc::new(scanned.segment));
    }
    for base in bases {
        repairs.dropped_segments += 1;
        drop_segment(folder, base)?;
    }
    let (next_offset, producers) = (scan.next_offset, scan.producers);
    epochs.cut_end(next_offset);
    let active = active.ok_or(io::ErrorKind::NotFound)?;
    finish(
        folder,
        before,
        (sealed, active),
        (next_offset, producers, epochs),
        repairs,
    )
}

fn finish(
    folder: &Path,
    before: Before,
    (mut segments, last): (Vec<Arc<Segment>>, ScannedSegment),
    (next_offset, producers, mut epochs): (i64, ProducerStates, LeaderEpochs),
    repairs: Repairs,
) -> io::Result<Opened> {
    let active = Arc::new(last.segment);
    segments.push(Arc::clone(&active));
    // A sealed index gets no more entries; the active one does.
    let file = disk::open(&active.path(LOG))?;
    let open = active.set_open(file, last.index);
    let first = segments.first().map_or(0, |segment| segment.base);
    let start = before.log_start.clamp(first, next_offset);
    epochs.cut_start(start);
    let latest = epochs.latest().unwrap_or(0);
    let epoch = match (before.last_end, next_offset > 0) {
        (LastEnd::Unclean, true) => latest + 1,
        _ => latest,
    };
    let end = LogPosition {
        offset: next_offset,
        segment: active.base,
        position: active.size(),
    };
    epochs.write(folder)?;
    let appender = Appender {
        producers,
        active,
        open,
        epoch,
        next_offset,
        first_timestamp: last.first_timestamp,
        reserved: end.position,
        unsynced: Vec::new(),
        unsynced_records: 0,
        folder_changed: true,
        epochs_changed: false,
        sealed: Vec::new(),
    };
    let published = Published {
        start,
        end,
        synced: end,
        high_watermark: end,
        segments,
        epochs,
    };
    Ok(Opened {
        published,
        appender,
        repairs,
    })
}

/// A segment that was looked through.
struct ScannedSegment {
    segment: Segment,
    index: SegmentIndex,
    first_timestamp: Option<i64>,
    is_cut: bool,
}

struct Scan<'a> {
    before: Before,
    producers: ProducerStates,
    next_offset: i64,
    epochs: &'a mut LeaderEpochs,
}

impl Scan<'_> {
    /// A full segment of which nothing has to be found out: it is synced, the producers at its end
    /// are known, and so are its indexes.
    fn known(&mut self, folder: &Path, base: i64, next: i64, from: i64) -> Option<Segment> {
        if next > from.min(self.recovery_point()) {
            return None;
        }
        let size = fs::metadata(file_path(folder, base, LOG)).ok()?.len();
        let segment = Segment::closed(folder, base, size);
        segment.read_index()?;
        self.next_offset = next;
        Some(segment)
    }

    /// Looks through a segment. Producers are recorded from the offset `from` on.
    fn segment(
        &mut self,
        folder: &Path,
        base: i64,
        from: i64,
        repairs: &mut Repairs,
    ) -> io::Result<ScannedSegment> {
        let path = file_path(folder, base, LOG);
        let size = fs::metadata(&path)?.len();
        let segment = Segment::closed(folder, base, size);
        let file = disk::open(&path)?;
        let mut index = SegmentIndex::new(base);
        let (mut whole, mut first_timestamp) = (0, None);
        self.next_offset = self.next_offset.max(base);
        let mut batch = Vec::new();
        let mut wrong = None;
        walk(&file, 0, size, DiskWait::Allowed, &mut |place, header| {
            let is_right = match self.is_expected(header, base) {
                true if header.last_offset() >= self.recovery_point() => {
                    batch.resize(header.size, 0);
                    match file.read_exact_at(&mut batch, place.position) {
                        Ok(()) => is_intact(&batch, header),
                        Err(error) => {
                            wrong = Some(error);
                            false
                        }
                    }
                }
                is_expected => is_expected,
            };
            if !is_right {
                return ControlFlow::Break(());
            }
            first_timestamp.get_or_insert(header.base_timestamp);
            index.add(header, place.position, self.before.index_interval);
            self.record(header, from);
            whole = place.position + place.size;
            ControlFlow::Continue(())
        })?;
        if let Some(error) = wrong {
            return Err(error);
        }
        segment.set_size(whole);
        if whole < size {
            self.cut(&segment, &file, whole..size, repairs)?;
        }
        Ok(ScannedSegment {
            segment,
            index,
            first_timestamp,
            is_cut: whole < size,
        })
    }

    fn recovery_point(&self) -> i64 {
        match self.before.last_end {
            LastEnd::Clean => i64::MAX,
            LastEnd::Unclean => self.before.recovery_point,
        }
    }

    fn is_expected(&self, header: &BatchHeader, base: i64) -> bool {
        header.base_offset >= self.next_offset && header.last_offset() - base <= i64::from(i32::MAX)
    }

    fn record(&mut self, header: &BatchHeader, from: i64) {
        self.next_offset = header.next_offset();
        self.epochs.begin(header.leader_epoch, header.base_offset);
        if header.base_offset >= from && !header.is_control() {
            self.producers.record(header);
        }
    }

    /// Cuts off the end of a segment, and keeps it.
    fn cut(
        &self,
        segment: &Segment,
        file: &fs::File,
        cut: std::ops::Range<u64>,
        repairs: &mut Repairs,
    ) -> io::Result<()> {
        let kept = segment.path(&format!("{LOG}.{CUT}"));
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut Tail::of(file, &cut), &mut bytes)?;
        // Blocks that were reserved are zeros, and nothing is lost with them.
        let written = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        if written > 0 {
            fs::write(kept, &bytes[..written])?;
            repairs.cut_bytes += written as u64;
            repairs.is_damaged |= has_whole_batch(&bytes);
        }
        disk::truncate(file, cut.start)
    }
}

/// The end of a file.
struct Tail<'f> {
    file: &'f fs::File,
    at: u64,
    end: u64,
}

impl Tail<'_> {
    fn of<'f>(file: &'f fs::File, range: &std::ops::Range<u64>) -> Tail<'f> {
        Tail {
            file,
            at: range.start,
            end: range.end,
        }
    }
}

impl io::Read for Tail<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = (self.end - self.at).min(buffer.len() as u64) as usize;
        let read = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Whether an intact batch begins anywhere behind the first one in `bytes`, which is broken.
fn has_whole_batch(bytes: &[u8]) -> bool {
    let mut at = match BatchHeader::parse(bytes) {
        Some(header) => header.size,
        None => return false,
    };
    while let Some(header) = bytes.get(at..).and_then(BatchHeader::parse) {
        let batch = bytes.get(at..at + header.size);
        if batch.is_some_and(|batch| is_intact(batch, &header)) {
            return true;
        }
        at += header.size;
    }
    false
}

/// The base offsets of the segments, in order.
fn bases(folder: &Path) -> io::Result<Vec<i64>> {
    let mut bases = Vec::new();
    for entry in fs::read_dir(folder)? {
        if let Some((base, LOG)) = entry?.file_name().to_str().and_then(parse_name) {
            bases.push(base);
        }
    }
    bases.sort_unstable();
    Ok(bases)
}

/// The producers of the latest snapshot that can be read, and its offset; those at the beginning
/// where there is none.
fn latest_producers(folder: &Path, bases: &[i64]) -> (ProducerStates, i64) {
    let mut offsets = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Some((offset, SNAPSHOT)) = entry.file_name().to_str().and_then(parse_name) {
            offsets.push(offset);
        }
    }
    offsets.sort_unstable();
    let read = |offset: &i64| {
        let content = fs::read(file_path(folder, *offset, SNAPSHOT)).ok()?;
        Some((ProducerStates::of_snapshot(&content)?, *offset))
    };
    let first = bases.first().copied().unwrap_or(0);
    let found = offsets.iter().rev().find_map(read);
    found.unwrap_or((ProducerStates::default(), first))
}

/// Removes what was to be removed, and completes what was to be replaced, in Kafka's order.
fn clear_leftovers(folder: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    let of = |suffix: &'static str| {
        let all = names.iter().filter(move |name| name.ends_with(suffix));
        all.filter_map(move |name| Some((name, parse_name(name)?.0)))
    };
    for (name, _) in of(".deleted") {
        fs::remove_file(folder.join(name))?;
    }
    let cleaned = of(".cleaned")
        .map(|(_, base)| base)
        .min()
        .unwrap_or(i64::MAX);
    for (name, base) in of(".swap") {
        // Whatever replaced segments from there on was not complete.
        let path = folder.join(name);
        match base >= cleaned {
            true => fs::remove_file(path)?,
            false => fs::rename(&path, folder.join(name.trim_end_matches(".swap")))?,
        }
    }
    for (name, _) in of(".cleaned").chain(of(".tmp")) {
        fs::remove_file(folder.join(name))?;
    }
    Ok(())
}

/// Gives the files of a segment another name, by which nothing looks for them.
fn drop_segment(folder: &Path, base: i64) -> io::Result<()> {
    let log = file_path(folder, base, LOG);
    disk::rename(&log, &file_path(folder, base, &format!("{LOG}.{CUT}")))?;
    for extension in ["index", "timeindex", "txnindex", SNAPSHOT] {
        match fs::remove_file(file_path(folder, base, extension)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
