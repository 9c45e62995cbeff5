//! A segment: a file of record batches, and its indexes.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use underpass::SharedFile;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::files::disk;
use crate::index::{BatchPlace, SegmentIndex};

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiskWait {
    /// It may: the thread is one that does.
    Allowed,
    /// It gives up where the pages are not cached.
    Forbidden,
}

/// A segment of a partition. Its size only grows, and only the last one of a partition grows.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: i64,
    folder: PathBuf,
    /// Bytes that are whole batches and published.
    size: AtomicU64,
    /// The files, while they are in use.
    open: Mutex<Option<Arc<OpenSegment>>>,
}

/// The open files of a segment.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) file: Arc<SharedFile>,
    index: Mutex<SegmentIndex>,
}

/// What headers are read with: those between two entries of an index, mostly.
const READ_BYTES: usize = 4096 + HEADER_BYTES;

impl Segment {
    /// A segment whose files are not open.
    pub(crate) fn closed(folder: &Path, base: i64, size: u64) -> Segment {
        Segment {
            base,
            folder: folder.to_owned(),
            size: AtomicU64::new(size),
            open: Mutex::new(None),
        }
    }

    /// A new segment, empty, with its file. The folder is not synced.
    pub(crate) fn create(folder: &Path, base: i64) -> io::Result<Segment> {
        let segment = Segment::closed(folder, base, 0);
        let file = disk::open(&segment.path(LOG))?;
        // Leftovers of a segment that a crash has made unknown.
        disk::truncate(&file, 0)?;
        segment.set_open(file, SegmentIndex::new(base));
        Ok(segment)
    }

    pub(crate) fn set_open(&self, file: File, index: SegmentIndex) -> Arc<OpenSegment> {
        let open = Arc::new(OpenSegment {
            file: SharedFile::new(file.into()),
            index: Mutex::new(index),
        });
        *lock(&self.open) = Some(Arc::clone(&open));
        open
    }

    /// The file with this extension.
    pub(crate) fn path(&self, extension: &str) -> PathBuf {
        file_path(&self.folder, self.base, extension)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The files, if they are open.
    pub(crate) fn opened(&self) -> Option<Arc<OpenSegment>> {
        lock(&self.open).clone()
    }

    /// The files, which are opened if they are not. Blocks.
    pub(crate) fn open(&self) -> io::Result<Arc<OpenSegment>> {
        if let Some(open) = self.opened() {
            return Ok(open);
        }
        let file = File::open(self.path(LOG))?;
        let index = match self.read_index() {
            Some(index) => index,
            None => self.indexed(&file, INTERVAL_BYTES)?,
        };
        Ok(self.set_open(file, index))
    }

    /// Closes the files: whoever uses them keeps them. They are opened again when they are needed.
    pub(crate) fn close(&self) {
        *lock(&self.open) = None;
    }

    /// Closes the files if nobody uses them.
    pub(crate) fn close_unused(&self) {
        let mut open = lock(&self.open);
        if open
            .as_ref()
            .is_some_and(|open| Arc::strong_count(open) == 1)
        {
            *open = None;
        }
    }

    /// What the index files say, if they can be right.
    pub(crate) fn read_index(&self) -> Option<SegmentIndex> {
        let offsets = fs::read(self.path(INDEX)).ok()?;
        let times = fs::read(self.path(TIME_INDEX)).ok()?;
        SegmentIndex::of_files(self.base, &offsets, &times, self.size())
            .filter(|_| self.size() == 0 || !times.is_empty())
    }

    /// Writes the index files. They are not synced: what is lost is found again.
    pub(crate) fn write_index(&self, index: &SegmentIndex) -> io::Result<()> {
        let (offsets, times) = index.files();
        fs::write(self.path(INDEX), offsets)?;
        fs::write(self.path(TIME_INDEX), times)
    }

    /// The indexes, as the batches of the file say.
    fn indexed(&self, file: &File, interval: u64) -> io::Result<SegmentIndex> {
        let mut index = SegmentIndex::new(self.base);
        let mut add = |place: &BatchPlace, header: &BatchHeader| {
            index.add(header, place.position, interval);
            ControlFlow::Continue(())
        };
        walk(file, 0, self.size(), DiskWait::Allowed, &mut add)?;
        index.seal();
        Ok(index)
    }
}

impl OpenSegment {
    pub(crate) fn index(&self) -> MutexGuard<'_, SegmentIndex> {
        lock(&self.index)
    }

    /// The batch that has an offset, or the first one behind it; nothing if it is not within the
    /// first `limit` bytes.
    ///
    /// # Errors
    /// `WouldBlock` where the disk had to be waited for; those of the kernel.
    pub(crate) fn find(
        &self,
        offset: i64,
        limit: u64,
        wait: DiskWait,
    ) -> io::Result<Option<BatchPlace>> {
        let (recent, from) = {
            let index = self.index();
            (index.recent(offset), index.before_offset(offset))
        };
        if let Some(place) = recent {
            return Ok(Some(place).filter(|place| place.position + place.size <= limit));
        }
        let mut found = None;
        walk(
            &*self.file,
            from,
            limit,
            wait,
            &mut |place, _| match place.last_offset >= offset {
                true => {
                    found = Some(*place);
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            },
        )?;
        Ok(found)
    }
}

/// Visits the headers of the batches from a position on, up to `limit`. Ends where there is no
/// whole batch.
///
/// # Errors
/// `WouldBlock` where the disk had to be waited for; those of the kernel.
pub(crate) fn walk(
    file: impl AsFd,
    from: u64,
    limit: u64,
    wait: DiskWait,
    visit: &mut dyn FnMut(&BatchPlace, &BatchHeader) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut buffer = [0; READ_BYTES];
    let (mut start, mut filled, mut position) = (from, 0, from);
    while position + HEADER_BYTES as u64 <= limit {
        let at = usize::try_from(position - start).unwrap_or(usize::MAX);
        let header = match buffer[..filled].get(at..).and_then(BatchHeader::parse) {
            Some(header) => header,
            None if at.saturating_add(HEADER_BYTES) <= filled => return Ok(()),
            None => {
                (start, filled) = (position, read_at(&file, &mut buffer, position, wait)?);
                match filled < HEADER_BYTES {
                    true => return Ok(()),
                    false => continue,
                }
            }
        };
        let place = BatchPlace::of(&header, position);
        position += place.size;
        if position > limit || visit(&place, &header).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads once; as much as there is up to the end of the buffer, at least a header unless the file
/// ends.
fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64, wait: DiskWait) -> io::Result<usize> {
    let flags = match wait {
        DiskWait::Allowed => ReadWriteFlags::empty(),
        DiskWait::Forbidden => ReadWriteFlags::NOWAIT,
    };
    let mut filled = 0;
    while filled < HEADER_BYTES {
        let mut room = [io::IoSliceMut::new(&mut buffer[filled..])];
        match preadv2(&file, &mut room, offset + filled as u64, flags) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            // A file system without such reads: they are short, and mostly of what was just sent.
            Err(Errno::OPNOTSUPP) if wait == DiskWait::Forbidden => {
                return read_at(file, buffer, offset, DiskWait::Allowed);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

/// The file of a segment with this extension.
pub(crate) fn file_path(folder: &Path, base: i64, extension: &str) -> PathBuf {
    folder.join(format!("{base:020}.{extension}"))
}

/// The base offset and the extension of a file of a segment.
pub(crate) fn parse_name(name: &str) -> Option<(i64, &str)> {
    let (base, extension) = name.split_once('.')?;
    let is_number = base.len() == 20 && base.bytes().all(|byte| byte.is_ascii_digit());
    Some((base.parse().ok().filter(|_| is_number)?, extension))
}

pub(crate) const LOG: &str = "log";
pub(crate) const INDEX: &str = "index";
pub(crate) const TIME_INDEX: &str = "timeindex";
pub(crate) const SNAPSHOT: &str = "snapshot";

/// `index.interval.bytes` where an index is made again and the topic is not asked.
const INTERVAL_BYTES: u64 = 4096;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::{self, tests::batch};

    /// A segment of batches of these sizes.
    fn written(folder: &Path, batches: &[(i32, usize)]) -> (Segment, Vec<BatchPlace>) {
        let segment = Segment::create(folder, 50).unwrap();
        let open = segment.open().unwrap();
        let (mut offset, mut position, mut places) = (50, 0, Vec::new());
        for (count, bytes) in batches {
            let mut bytes = batch(*count, *bytes, 0);
            batch::place(&mut bytes, offset, 0);
            disk::write_all(&*open.file, &[&bytes], position).unwrap();
            let header = BatchHeader::parse(&bytes).unwrap();
            open.index().add(&header, position, 1000);
            places.push(BatchPlace::of(&header, position));
            offset = header.next_offset();
            position += bytes.len() as u64;
        }
        segment.set_size(position);
        (segment, places)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_offset_is_found_in_its_batch(
            batches in prop::collection::vec((1i32..20, 0usize..6000), 1..80)
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (segment, places) = written(folder.path(), &batches);
            let open = segment.open().unwrap();
            let index = open.index().clone();
            segment.write_index(&index).unwrap();
            // Again with files that were closed, and with index files that are missing.
            for turn in 0..3 {
                let open = segment.open().unwrap();
                for place in &places {
                    for offset in [place.base_offset, place.last_offset] {
                        let found = open.find(offset, segment.size(), DiskWait::Forbidden);
                        prop_assert_eq!(found.unwrap(), Some(*place), "turn {}", turn);
                        let cut = open.find(offset, place.position + 1, DiskWait::Allowed);
                        prop_assert_eq!(cut.unwrap(), None);
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
            "1234.log",
            "partition.metadata",
            "0000000000000000123x.log",
            "",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
