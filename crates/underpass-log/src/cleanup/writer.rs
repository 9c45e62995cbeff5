//! Writes a compacted segment under another name (`.cleaned`).

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::batch::BatchHeader;
use crate::cleanup::error::CleanError;
use crate::cleanup::pace::Pace;
use crate::cleanup::plan::SourceSegment;
use crate::files::disk::{self, DiskWait};
use crate::index::SegmentIndex;
use crate::partition::PartitionLog;
use crate::segment::{INDEX, LOG, OpenSegment, TIME_INDEX, TRANSACTION_INDEX, lock};

/// The suffix of incomplete files.
pub(crate) const CLEANED: &str = ".cleaned";

/// The extensions of the files of a compacted segment.
pub(crate) const EXTENSIONS: [&str; 4] = [LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX];

/// The number of bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// The number of bytes after which they are synced. A sync of a whole segment would make producers
/// wait for theirs.
const SYNC_BYTES: u64 = 16 << 20;

/// The largest position of a batch that Kafka can read.
const POSITION_MAX: u64 = i32::MAX as u64;

/// The largest file of aborted transactions that is read, in bytes.
const TRANSACTIONS_BYTES_MAX: u64 = 64 << 20;

/// A compacted segment. Nothing is written as long as its content is that of the first source.
pub(crate) struct CleanedSegment<'g> {
    log: &'g PartitionLog,
    sources: &'g [SourceSegment],
    index_interval: u64,
    file: Option<File>,
    buffer: Vec<u8>,
    index: SegmentIndex,
    /// The size so far.
    size: u64,
    synced: u64,
}

impl<'g> CleanedSegment<'g> {
    /// Starts the segment that replaces some others, which are at least one.
    pub(crate) fn new(
        log: &'g PartitionLog,
        sources: &'g [SourceSegment],
        index_interval: u64,
    ) -> CleanedSegment<'g> {
        let base = sources.first().map_or(0, |first| first.segment.base);
        CleanedSegment {
            log,
            sources,
            index_interval,
            file: None,
            buffer: Vec::new(),
            index: SegmentIndex::new(base),
            size: 0,
            synced: 0,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Adds a batch that is the next one of the first source, if nothing else was added.
    pub(crate) fn keep(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
        pace: &mut Pace<'_>,
    ) -> Result<(), CleanError> {
        self.index.add(header, self.size, self.index_interval);
        self.size += batch.len() as u64;
        match self.file {
            Some(_) => self.put(batch, pace),
            None => Ok(()),
        }
    }

    /// Adds a batch that no source has.
    pub(crate) fn add(&mut self, batch: &[u8], pace: &mut Pace<'_>) -> Result<(), CleanError> {
        self.diverge(pace)?;
        if let Some(header) = BatchHeader::parse(batch) {
            self.index.add(&header, self.size, self.index_interval);
        }
        self.size += batch.len() as u64;
        self.put(batch, pace)
    }

    /// Creates the file, unless it exists, with the part of the first source that was kept. From
    /// now on the content may differ from that of the source.
    pub(crate) fn diverge(&mut self, pace: &mut Pace<'_>) -> Result<(), CleanError> {
        if self.file.is_some() {
            return Ok(());
        }
        {
            let _files = lock(&self.log.files);
            if self.log.is_deleted() {
                return Err(CleanError::Interrupted);
            }
            let file = disk::open(&self.path(LOG))?;
            disk::truncate(&file, 0)?;
            self.file = Some(file);
        }
        let Some(first) = self.sources.first() else {
            return Ok(());
        };
        let open: Arc<OpenSegment> = first.segment.open_once()?;
        let mut piece = vec![0; WRITE_BYTES];
        let (mut at, kept) = (0, self.size);
        while at < kept {
            let length = (kept - at).min(WRITE_BYTES as u64) as usize;
            let piece = &mut piece[..length];
            disk::read_exact(&*open.file, piece, at, DiskWait::Allowed)?;
            pace.step(length)?;
            self.size = at + length as u64;
            self.put(piece, pace)?;
            at += length as u64;
        }
        self.size = kept;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8], pace: &mut Pace<'_>) -> Result<(), CleanError> {
        self.buffer.extend_from_slice(bytes);
        if self.size > POSITION_MAX {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
        }
        if self.buffer.len() >= WRITE_BYTES {
            self.flush(pace)?;
        }
        Ok(())
    }

    fn flush(&mut self, pace: &mut Pace<'_>) -> Result<(), CleanError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let position = self.size - self.buffer.len() as u64;
        disk::write_all(file, &[&self.buffer], position)?;
        pace.step(self.buffer.len())?;
        self.buffer.clear();
        if self.size - self.synced >= SYNC_BYTES {
            disk::sync(file)?;
            self.synced = self.size;
        }
        Ok(())
    }

    /// Writes the rest and the indexes, and syncs all files. Returns whether there is a segment:
    /// otherwise the first source stays as it is.
    pub(crate) fn finish(&mut self, pace: &mut Pace<'_>) -> Result<bool, CleanError> {
        self.flush(pace)?;
        let Some(file) = &self.file else {
            return Ok(false);
        };
        disk::sync(file)?;
        // Records without timestamps are as old as their file.
        let modified = self.sources.iter().rev();
        let modified = modified.filter_map(|source| source.segment.modified_ms().ok());
        if let Some(modified) = modified.max() {
            let modified = Duration::from_millis(modified.unsigned_abs());
            if let Err(error) = file.set_modified(SystemTime::UNIX_EPOCH + modified) {
                tracing::debug!("{}: {error}", self.path(LOG).display());
            }
        }
        self.index.seal();
        let (offsets, times) = self.index.files();
        let transactions = self.transactions()?;
        let _files = lock(&self.log.files);
        if self.log.is_deleted() {
            return Err(CleanError::Interrupted);
        }
        let files = [(INDEX, Some(offsets)), (TIME_INDEX, Some(times))];
        for (extension, content) in files.into_iter().chain([(TRANSACTION_INDEX, transactions)]) {
            let Some(content) = content else { continue };
            let file = disk::open(&self.path(extension))?;
            disk::truncate(&file, 0)?;
            disk::write_all(&file, &[&content], 0)?;
            disk::sync(&file)?;
        }
        Ok(true)
    }

    /// Returns the aborted transactions of the sources, which only Kafka reads.
    fn transactions(&self) -> io::Result<Option<Vec<u8>>> {
        let mut all = None::<Vec<u8>>;
        for source in self.sources {
            let path = source.segment.path(TRANSACTION_INDEX);
            match disk::read(&path, TRANSACTIONS_BYTES_MAX) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                content => all.get_or_insert_default().extend(content?),
            }
        }
        Ok(all)
    }

    /// Removes the files.
    pub(crate) fn discard(&self) {
        let _files = lock(&self.log.files);
        if self.log.is_deleted() {
            return;
        }
        for extension in EXTENSIONS {
            let path = self.path(extension);
            if let Err(error) = disk::remove_if_there(&path) {
                // The next start removes it.
                tracing::debug!("{}: {error}", path.display());
            }
        }
    }

    fn path(&self, extension: &str) -> PathBuf {
        let first = self.sources.first();
        let path = first.map(|first| first.segment.path(extension));
        with_suffix(&path.unwrap_or_default(), CLEANED)
    }
}

/// Returns a path with something appended to its name.
pub(crate) fn with_suffix(path: &std::path::Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
