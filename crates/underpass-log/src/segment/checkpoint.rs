//! A checkpoint of the active segment, so that recovery does not scan all of it: the index and the
//! producers after a synced batch. It is written after some syncs, into a file next to the segment.
//! Kafka ignores this file.
//!
//! ```text
//!   0  CRC-32C of what follows       4 │ 74  first timestamp       8
//!   4  version (1)                   1 │ 82  size of the index     4
//!   5  header of the last batch     61 │ 86  index
//!  66  position of that batch        8 │     producers as in a snapshot
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::files::disk::{self, DiskWait};
use crate::index::{BatchPlace, SegmentIndex};
use crate::producers::{ProducerSnapshot, ProducerStates, SNAPSHOT_BYTES_MAX};
use crate::segment::{CHECKPOINT, LOG, OpenSegment, file_path};

const VERSION: u8 = 1;

/// The size of an entry of both indexes, in bytes.
const INDEX_BYTES_MAX: u64 = 20;

/// The active segment at a point in time.
#[derive(Debug)]
pub(crate) struct ActiveState {
    pub(crate) base: i64,
    pub(crate) open: Arc<OpenSegment>,
    /// The latest batch.
    pub(crate) last: BatchPlace,
    pub(crate) first_timestamp: i64,
    pub(crate) index: SegmentIndex,
    pub(crate) producers: ProducerSnapshot,
}

/// The state of the active segment up to a position.
#[derive(Clone, Debug)]
pub(crate) struct KnownState {
    pub(crate) next_offset: i64,
    pub(crate) position: u64,
    pub(crate) first_timestamp: i64,
    pub(crate) index: SegmentIndex,
    pub(crate) producers: ProducerStates,
}

impl ActiveState {
    /// Writes the file. Its batches are synced, its name is not: without the file, recovery scans
    /// the segment.
    pub(crate) fn write(self, folder: &Path) -> io::Result<()> {
        let mut file = vec![0; 4];
        file.push(VERSION);
        let mut header = [0; HEADER_BYTES];
        let position = self.last.position;
        disk::read_exact(&*self.open.file, &mut header, position, DiskWait::Allowed)?;
        file.extend(header);
        file.extend(position.to_be_bytes());
        file.extend(self.first_timestamp.to_be_bytes());
        let index = self.index.checkpoint();
        file.extend((index.len() as u32).to_be_bytes());
        file.extend(index);
        file.extend(self.producers.file());
        let crc = crc32c::crc32c(&file[4..]);
        file[..4].copy_from_slice(&crc.to_be_bytes());
        disk::write_whole(&file_path(folder, self.base, CHECKPOINT), &file)
    }
}

impl KnownState {
    /// Reads the file of a segment; `None` if it is missing or does not match the segment.
    pub(crate) fn read(folder: &Path, base: i64) -> Option<KnownState> {
        let log = file_path(folder, base, LOG);
        let size = disk::regular_size(&log).ok()?;
        let path = file_path(folder, base, CHECKPOINT);
        let bytes_max = size / HEADER_BYTES as u64 * INDEX_BYTES_MAX + SNAPSHOT_BYTES_MAX;
        let known = match disk::read(&path, bytes_max) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            content => content.ok().and_then(|content| {
                let (known, header, position) = KnownState::parse(base, &content)?;
                let mut found = [0; HEADER_BYTES];
                let file = std::fs::File::open(&log).ok()?;
                disk::read_exact(&file, &mut found, position, DiskWait::Allowed).ok()?;
                (found == header && known.position <= size).then_some(known)
            }),
        };
        if known.is_none() {
            let path = path.display();
            tracing::warn!("{path}: this is not of the segment, which is looked through");
        }
        known
    }

    fn parse(base: i64, content: &[u8]) -> Option<(KnownState, [u8; HEADER_BYTES], u64)> {
        let (crc, content) = content.split_first_chunk::<4>()?;
        if crc32c::crc32c(content) != u32::from_be_bytes(*crc) {
            return None;
        }
        let (version, content) = content.split_first()?;
        let (header, content) = content.split_first_chunk::<HEADER_BYTES>()?;
        let (position, content) = content.split_first_chunk::<8>()?;
        let (first_timestamp, content) = content.split_first_chunk::<8>()?;
        let (length, content) = content.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (index, producers) = content.split_at_checked(length)?;
        let last = BatchHeader::parse(header).filter(|last| last.is_within(base, base))?;
        let start = u64::from_be_bytes(*position);
        let position = start.checked_add(last.size as u64)?;
        let known = KnownState {
            next_offset: last.next_offset(),
            position,
            first_timestamp: i64::from_be_bytes(*first_timestamp),
            index: SegmentIndex::of_checkpoint(base, index, position)?,
            producers: ProducerStates::of_snapshot(producers)?,
        };
        (*version == VERSION).then_some((known, *header, start))
    }
}
