//! A segment: a file of record batches, and its indexes.

pub(crate) mod checkpoint;
pub(crate) mod damage;
mod times;
mod walk;

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use underpass::SharedFile;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::files::disk::{self, DiskWait};
use crate::files::times::modified_ms;
use crate::index::sealed::{IndexFile, OffsetFile, TimeFile};
use crate::index::{BatchPlace, SegmentIndex};
use crate::position::parse_offset;
use crate::segment::damage::{Damaged, Numbering, Search, intact_from, walk_intact};
pub(crate) use crate::segment::walk::{is_intact_at, walk};

/// A segment of a partition. Its size only grows, and only the last segment of a partition grows.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: i64,
    folder: PathBuf,
    /// The size of the whole published batches, in bytes.
    size: AtomicU64,
    pub(crate) numbering: Numbering,
    /// The files, while they are in use.
    open: Mutex<Option<Arc<OpenSegment>>>,
    /// Held while files are opened by name, for longer than `open`.
    opening: Mutex<()>,
    /// Whether the files stay open, because other files have their names.
    is_pinned: AtomicBool,
    /// The number of bytes whose records were read, and the largest timestamp in them.
    latest_record: Mutex<Option<(u64, i64)>>,
}

/// The open files of a segment.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) file: Arc<SharedFile>,
    base: i64,
    numbering: Numbering,
    index: OpenIndex,
}

/// The indexes of a segment to which batches are appended.
pub(crate) type ActiveIndex = Arc<Mutex<SegmentIndex>>;

#[derive(Debug)]
enum OpenIndex {
    /// For the active segment until its index files are written, and for invalid index files.
    InMemory(ActiveIndex),
    InFile(OffsetFile),
}

impl Segment {
    /// Makes a segment whose files are not open.
    pub(crate) fn closed(folder: &Path, base: i64, size: u64, numbering: Numbering) -> Segment {
        Segment {
            base,
            folder: folder.to_owned(),
            size: AtomicU64::new(size),
            numbering,
            open: Mutex::new(None),
            opening: Mutex::new(()),
            is_pinned: AtomicBool::new(false),
            latest_record: Mutex::new(None),
        }
    }

    /// Creates an empty segment with its file. The folder is not synced.
    pub(crate) fn create(
        folder: &Path,
        base: i64,
    ) -> io::Result<(Segment, Arc<OpenSegment>, ActiveIndex)> {
        let segment = Segment::closed(folder, base, 0, Numbering::default());
        let file = disk::open(&segment.path(LOG))?;
        // A crash may have left an unknown segment with this name.
        disk::truncate(&file, 0)?;
        let (open, index) = segment.set_active(file, SegmentIndex::new(base));
        Ok((segment, open, index))
    }

    /// Sets the open file and the index of a segment that becomes active.
    pub(crate) fn set_active(
        &self,
        file: File,
        index: SegmentIndex,
    ) -> (Arc<OpenSegment>, ActiveIndex) {
        let index = Arc::new(Mutex::new(index));
        let in_memory = OpenIndex::InMemory(Arc::clone(&index));
        let open = self.set_open(SharedFile::new(file.into()), in_memory);
        (open, index)
    }

    /// Switches a full segment to its index files, which were just written.
    pub(crate) fn set_sealed(&self, open: &OpenSegment) -> io::Result<()> {
        let index = OpenIndex::InFile(self.open_index(INDEX)?);
        self.set_open(Arc::clone(&open.file), index);
        Ok(())
    }

    fn set_open(&self, file: Arc<SharedFile>, index: OpenIndex) -> Arc<OpenSegment> {
        self.keep_open(Arc::new(OpenSegment {
            file,
            base: self.base,
            numbering: self.numbering,
            index,
        }))
    }

    fn keep_open(&self, open: Arc<OpenSegment>) -> Arc<OpenSegment> {
        *lock(&self.open) = Some(Arc::clone(&open));
        open
    }

    /// Returns the path of the file with this extension.
    pub(crate) fn path(&self, extension: &str) -> PathBuf {
        file_path(&self.folder, self.base, extension)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Returns the files if they are open.
    pub(crate) fn opened(&self) -> Option<Arc<OpenSegment>> {
        lock(&self.open).clone()
    }

    /// Returns the files and opens them if necessary. Blocks.
    pub(crate) fn open(&self) -> io::Result<Arc<OpenSegment>> {
        match self.opened() {
            Some(open) => Ok(open),
            None => Ok(self.keep_open(self.open_once()?)),
        }
    }

    /// Opens the files for good: from now on others may get their names. Readers of this segment
    /// continue with the old files. Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn pin(&self) -> io::Result<Arc<OpenSegment>> {
        self.is_pinned.store(true, Ordering::Release);
        let pinned = self.open();
        if pinned.is_err() {
            self.unpin();
        }
        pinned
    }

    /// Closes the files of a replaced segment that nobody else refers to.
    pub(crate) fn release(&self) {
        *lock(&self.open) = None;
    }

    /// Undoes [`pin`](Self::pin).
    pub(crate) fn unpin(&self) {
        self.is_pinned.store(false, Ordering::Release);
    }

    /// Returns the files; if they were not open, they do not stay open. Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn open_once(&self) -> io::Result<Arc<OpenSegment>> {
        let _opening = lock(&self.opening);
        if let Some(open) = self.opened() {
            return Ok(open);
        }
        let file = File::open(self.path(LOG))?;
        let index = match self.open_index(INDEX) {
            Ok(index) => OpenIndex::InFile(index),
            Err(error) => {
                let path = self.path(INDEX);
                tracing::warn!("{}: {error}; it is made again for now", path.display());
                OpenIndex::InMemory(Arc::new(Mutex::new(self.indexed(&file, INTERVAL_BYTES)?)))
            }
        };
        Ok(Arc::new(OpenSegment {
            file: SharedFile::new(file.into()),
            base: self.base,
            numbering: self.numbering,
            index,
        }))
    }

    /// Closes the files. Their current users keep them open, and later users reopen them.
    pub(crate) fn close(&self) {
        let mut open = lock(&self.open);
        if !self.is_pinned.load(Ordering::Acquire) {
            *open = None;
        }
    }

    /// Closes the files if they are not in use.
    pub(crate) fn close_unused(&self) {
        let mut open = lock(&self.open);
        let is_unused = |open: &Arc<OpenSegment>| Arc::strong_count(open) == 1;
        if open.as_ref().is_some_and(is_unused) && !self.is_pinned.load(Ordering::Acquire) {
            *open = None;
        }
    }

    /// Whether a full segment ends where the next one starts and has plausible index files. Reads
    /// only the headers after the last entry. Waits for the disk.
    pub(crate) fn is_whole(&self, next: i64) -> bool {
        match self.ends_at(next) {
            Ok(is_whole) => is_whole,
            // A crash may have removed them, or they were never written.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                let path = self.path(INDEX);
                tracing::warn!("{}: {error}; the indexes are made again", path.display());
                false
            }
        }
    }

    fn ends_at(&self, next: i64) -> io::Result<bool> {
        let offsets = next - self.base;
        let times: TimeFile = self.open_index(TIME_INDEX)?;
        let is_time_right = match times.largest()? {
            Some((_, offset)) => i64::from(offset) < offsets,
            None => self.begins_without_records()?,
        };
        let index: OffsetFile = self.open_index(INDEX)?;
        let last = index.last_within(self.size(), offsets)?;
        let (entry, from) = match last {
            Some((offset, position)) => (Some(self.base + i64::from(offset)), position),
            None => (None, 0),
        };
        let mut end = self.base;
        let mut is_entry_right = entry.is_none();
        let file = File::open(self.path(LOG))?;
        let (size, wait) = (self.size(), DiskWait::Allowed);
        let position = walk(&file, from, size, wait, &mut |place, header| {
            let is_right = match entry.filter(|_| place.position == from) {
                Some(last) => header.last_offset() == last,
                None => self.numbering.allows(header.base_offset, end),
            };
            if !is_right {
                return ControlFlow::Break(());
            }
            is_entry_right = true;
            end = header.next_offset();
            ControlFlow::Continue(())
        })?;
        match is_time_right && is_entry_right {
            true => Ok(position == size && self.numbering.allows(next, end)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn open_index<const BYTES: usize>(&self, extension: &str) -> io::Result<IndexFile<BYTES>> {
        // One entry for each batch and one for the end.
        let entries_max = self.size() / HEADER_BYTES as u64 + 1;
        IndexFile::open(&self.path(extension), entries_max)
    }

    /// Returns the largest timestamp and the last offset of its batch. Waits for the disk.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn largest_timestamp(&self) -> io::Result<Option<(i64, i64)>> {
        if let Some(index) = self.index_in_memory() {
            return Ok(lock(&index).largest_timestamp());
        }
        let times: io::Result<TimeFile> = self.open_index(TIME_INDEX);
        let largest = times.and_then(|times| times.largest());
        if let Ok(Some((timestamp, offset))) = largest {
            let offset = self.base + i64::from(offset);
            if self.has_timestamp(offset, timestamp)? {
                return Ok(Some((timestamp, offset)));
            }
        }
        if self.size() <= HEADER_BYTES as u64 {
            return Ok(None);
        }
        // Retention depends on this timestamp, so it must be right.
        let may_have_none = self.is_pinned.load(Ordering::Acquire)
            || largest.is_ok_and(|largest| largest.is_none()) && self.begins_without_records()?;
        if !may_have_none {
            let path = self.path(TIME_INDEX);
            tracing::warn!(
                "{}: this contradicts the log, which is read",
                path.display()
            );
        }
        let open = self.open_once()?;
        let index = self.indexed(&*open.file, INTERVAL_BYTES)?;
        Ok(index.largest_timestamp())
    }

    /// Whether the first batch has no records, or there is none: then there may be no timestamps.
    fn begins_without_records(&self) -> io::Result<bool> {
        if self.size() == 0 {
            return Ok(true);
        }
        let mut header = [0; HEADER_BYTES];
        let open = self.open_once()?;
        disk::read_exact(&*open.file, &mut header, 0, DiskWait::Allowed)?;
        Ok(BatchHeader::parse(&header).is_some_and(|header| header.count == 0))
    }

    /// Returns the largest timestamp of the records themselves, read from the file regardless of
    /// the batch headers. Unreadable records count with the modification time of the file. Waits
    /// for the disk.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn latest_record(&self) -> io::Result<i64> {
        if let Some(latest) = self.known_latest_record() {
            return Ok(latest);
        }
        let (size, open) = (self.size(), self.open_once()?);
        let latest = open.latest_record(size, modified_ms(&*open.file)?)?;
        *lock(&self.latest_record) = Some((size, latest));
        Ok(latest)
    }

    /// Returns the modification time of the file. Waits for the disk.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn modified_ms(&self) -> io::Result<i64> {
        modified_ms(&*self.open_once()?.file)
    }

    /// Returns the earlier result of [`latest_record`](Self::latest_record), unless batches were
    /// appended since.
    pub(crate) fn known_latest_record(&self) -> Option<i64> {
        let known = *lock(&self.latest_record);
        let known = known.filter(|(of_size, _)| *of_size == self.size());
        known.map(|(_, latest)| latest)
    }

    /// Whether the batch with the last offset `offset` has this largest timestamp.
    fn has_timestamp(&self, offset: i64, timestamp: i64) -> io::Result<bool> {
        // Do not keep files open, since all segments of a partition may be checked in turn.
        let open = self.open_once()?;
        let found = open.find_header(offset, (self.size(), None), DiskWait::Allowed)?;
        Ok(found.is_some_and(|(_, header)| {
            header.last_offset() == offset
                // Kafka's index has the timestamp of a batch without records.
                && [header.latest_timestamp(), header.max_timestamp].contains(&timestamp)
        }))
    }

    fn index_in_memory(&self) -> Option<ActiveIndex> {
        match &self.opened()?.index {
            OpenIndex::InMemory(index) => Some(Arc::clone(index)),
            OpenIndex::InFile(_) => None,
        }
    }

    /// Returns the offset from which to search for the first batch that reaches a timestamp.
    fn before_time(&self, timestamp: i64) -> i64 {
        if let Some(index) = self.index_in_memory() {
            return lock(&index).before_time(timestamp);
        }
        let times: io::Result<TimeFile> = self.open_index(TIME_INDEX);
        let before = times.and_then(|times| times.before(timestamp));
        // The file has no checksum. If it is wrong, the whole segment is searched.
        let before = before.ok().flatten().map(|(latest, offset)| {
            let offset = self.base + i64::from(offset);
            let found =
                self.open_once()?
                    .find_header(offset, (self.size(), None), DiskWait::Allowed)?;
            let is_right = found.is_some_and(|(_, header)| header.max_timestamp == latest);
            io::Result::Ok(if is_right { offset } else { self.base })
        });
        before.and_then(Result::ok).unwrap_or(self.base)
    }

    /// Returns the offset and the timestamp of the first record at or after the offset `start` with
    /// a timestamp of at least `timestamp`, within the first `limit` bytes. Waits for the disk.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn first_since(
        &self,
        timestamp: i64,
        start: i64,
        limit: u64,
    ) -> io::Result<Option<(i64, i64)>> {
        match self.largest_timestamp()? {
            Some((largest, _)) if largest >= timestamp => {}
            _ => return Ok(None),
        }
        let open = self.open()?;
        let (from, _) = open.before_offset(self.before_time(timestamp), DiskWait::Allowed)?;
        open.first_since(from, (timestamp, start), limit)
    }

    /// Writes each index file as a whole, because a partial file looks like a whole shorter one.
    /// Does not sync their names: lost files are rebuilt.
    pub(crate) fn write_index(&self, index: &SegmentIndex) -> io::Result<()> {
        let (offsets, times) = index.files();
        disk::write_whole(&self.path(INDEX), &offsets)?;
        disk::write_whole(&self.path(TIME_INDEX), &times)
    }

    /// Builds the indexes from the batches of the file.
    fn indexed(&self, file: impl AsFd, interval: u64) -> io::Result<SegmentIndex> {
        let mut index = SegmentIndex::new(self.base);
        let mut add = |place: &BatchPlace, header: &BatchHeader| {
            index.add(header, place.position, interval);
            ControlFlow::Continue(())
        };
        walk_intact(
            file,
            0,
            &Search::of((self.base, self.numbering), self.size(), None),
            &mut add,
        )?;
        index.seal();
        Ok(index)
    }
}

impl OpenSegment {
    /// Returns the batch that contains an offset, or the next one; `None` if it is not within the
    /// first `limit` bytes. `end` is the offset at `limit`, if known.
    ///
    /// # Errors
    /// `WouldBlock` if the read would wait for the disk, [`Damaged`] if the batch is damaged; other
    /// I/O errors.
    pub(crate) fn find(
        &self,
        offset: i64,
        (limit, end): (u64, Option<i64>),
        wait: DiskWait,
    ) -> io::Result<Option<BatchPlace>> {
        if let OpenIndex::InMemory(index) = &self.index
            && let Some(place) = lock(index).recent(offset)
        {
            return Ok(Some(place).filter(|place| place.position + place.size <= limit));
        }
        let found = self.find_header(offset, (limit, end), wait)?;
        Ok(found.map(|(place, _)| place))
    }

    fn find_header(
        &self,
        offset: i64,
        (limit, end): (u64, Option<i64>),
        wait: DiskWait,
    ) -> io::Result<Option<(BatchPlace, BatchHeader)>> {
        let search = Search::of((self.base, self.numbering), limit, end);
        let (mut from, mut expected) = self.before_offset(offset, wait)?;
        loop {
            let (mut found, mut last) = (None, None);
            let mut visit = |place: &BatchPlace, header: &BatchHeader| {
                let is_right = self.numbering.allows(header.base_offset, expected)
                    && header.next_offset() <= search.offsets_max;
                if !is_right {
                    return ControlFlow::Break(());
                }
                expected = header.next_offset();
                last = Some((*place, *header));
                if place.last_offset < offset {
                    return ControlFlow::Continue(());
                }
                found = last;
                ControlFlow::Break(())
            };
            let position = walk(&*self.file, from, limit, wait, &mut visit)?;
            let is_over =
                position >= limit && end.is_none_or(|end| self.numbering.allows(end, expected));
            if found.is_some() || is_over {
                return Ok(found);
            }
            if wait == DiskWait::Forbidden {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // A damaged last batch may have ended elsewhere: the damage starts with it.
            let (position, lost) = match last {
                Some((place, header)) if !is_intact_at(&*self.file, &place, &header)? => {
                    (place.position, header.base_offset)
                }
                _ => (position, expected),
            };
            match intact_from(&*self.file, position, lost, &search)? {
                Some((place, header)) if header.base_offset <= offset => {
                    (from, expected) = (place.position, header.base_offset);
                }
                behind => {
                    let next = behind.map_or(i64::MAX, |(_, header)| header.base_offset);
                    return Err(io::Error::from(Damaged {
                        offsets: lost..next,
                        place: (self.base, position),
                    }));
                }
            }
        }
    }

    /// Returns the position from which to search for the batch that contains this offset, or for
    /// the next one, and the expected base offset of the batch at that position.
    ///
    /// # Errors
    /// `WouldBlock` if the read would wait for the disk; other I/O errors.
    fn before_offset(&self, offset: i64, wait: DiskWait) -> io::Result<(u64, i64)> {
        let first = (0, self.base);
        let offset = offset - self.base;
        let entry = match &self.index {
            OpenIndex::InMemory(index) => lock(index).before_offset(offset),
            OpenIndex::InFile(file) => file.before(offset, wait)?,
        };
        let Some((last, position)) = entry else {
            return Ok(first);
        };
        // The file has no checksum. If it is wrong, the whole segment is searched.
        let mut header = [0; HEADER_BYTES];
        let header = match disk::read_exact(&*self.file, &mut header, position, wait) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            read => read.map(|()| BatchHeader::parse(&header))?,
        };
        let last = self.base + i64::from(last);
        let header = header.filter(|header| header.last_offset() == last);
        Ok(header.map_or(first, |header| (position, header.base_offset)))
    }
}

/// Returns the path of the file of a segment with this extension.
pub(crate) fn file_path(folder: &Path, base: i64, extension: &str) -> PathBuf {
    folder.join(format!("{base:020}.{extension}"))
}

/// Parses the file name of a segment into its base offset and extension.
pub(crate) fn parse_name(name: &str) -> Option<(i64, &str)> {
    let (base, extension) = name.split_once('.')?;
    let is_number = base.len() == 20 && base.bytes().all(|byte| byte.is_ascii_digit());
    Some((parse_offset(base).filter(|_| is_number)?, extension))
}

pub(crate) const LOG: &str = "log";
pub(crate) const INDEX: &str = "index";
pub(crate) const TIME_INDEX: &str = "timeindex";
pub(crate) const TRANSACTION_INDEX: &str = "txnindex";
pub(crate) const SNAPSHOT: &str = "snapshot";
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// `index.interval.bytes` for rebuilt indexes where the topic configuration is not known.
const INTERVAL_BYTES: u64 = 4096;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::batch::tests::batch;

    /// A segment of batches of these sizes.
    fn written(folder: &Path, batches: &[(i32, usize)]) -> (Segment, ActiveIndex, Vec<BatchPlace>) {
        let (segment, open, index) = Segment::create(folder, 50).unwrap();
        let (mut offset, mut position, mut places) = (50, 0, Vec::new());
        for (count, bytes) in batches {
            let mut bytes = batch(*count, *bytes, 0);
            bytes[..8].copy_from_slice(&i64::to_be_bytes(offset));
            disk::write_all(&*open.file, &[&bytes], position).unwrap();
            let header = BatchHeader::parse(&bytes).unwrap();
            lock(&index).add(&header, position, 1000);
            places.push(BatchPlace::of(&header, position));
            offset = header.next_offset();
            position += bytes.len() as u64;
        }
        segment.set_size(position);
        (segment, index, places)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_offset_is_found_in_its_batch(
            batches in prop::collection::vec((1i32..20, 0usize..6000), 1..80)
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (segment, index, places) = written(folder.path(), &batches);
            segment.write_index(&lock(&index)).unwrap();
            // Repeat with closed files, and with missing index files.
            for turn in 0..3 {
                let open = segment.open().unwrap();
                for place in &places {
                    for offset in [place.base_offset, place.last_offset] {
                        let found = open.find(offset, (segment.size(), None), DiskWait::Forbidden);
                        prop_assert_eq!(found.unwrap(), Some(*place), "turn {}", turn);
                        let cut = open.find(offset, (place.position + 1, None), DiskWait::Allowed);
                        prop_assert!(!matches!(cut, Ok(Some(_))));
                    }
                }
                segment.close();
                if turn == 1 {
                    fs::remove_file(segment.path(INDEX)).unwrap();
                }
            }
        }
    }

    #[test]
    fn names_are_those_of_kafka() {
        let path = file_path(Path::new("/a"), 1234, LOG);
        assert_eq!(path, Path::new("/a/00000000000000001234.log"));
        assert_eq!(
            parse_name("00000000000000001234.log.deleted"),
            Some((1234, "log.deleted"))
        );
        for name in [
            "09223372036854775807.log",
            "99999999999999999999.log",
            "-0000000000000000001.log",
            "1234.log",
            "partition.metadata",
            "0000000000000000123x.log",
            "",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
