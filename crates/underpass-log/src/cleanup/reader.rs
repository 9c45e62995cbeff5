//! Reads the batches of a closed segment one after another.

use std::io;
use std::sync::Arc;

use crate::batch::{BatchHeader, CRC_FROM, HEADER_BYTES};
use crate::cleanup::error::CleanError;
use crate::cleanup::pace::Pace;
use crate::cleanup::plan::SourceSegment;
use crate::files::disk::{self, DiskWait};
use crate::segment::OpenSegment;

/// The number of bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The largest batch that is read, in bytes.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// The batches of a segment. Each one is intact and follows the one before.
#[derive(Debug)]
pub(crate) struct SegmentReader<'s> {
    source: &'s SourceSegment,
    pub(crate) open: Arc<OpenSegment>,
    /// The bytes from `buffered_from` on.
    buffer: Vec<u8>,
    buffered_from: u64,
    position: u64,
    next_offset: i64,
}

/// A batch of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBatch<'b> {
    pub(crate) header: BatchHeader,
    pub(crate) bytes: &'b [u8],
    /// Whether it is the last one of its segment.
    pub(crate) is_last: bool,
}

impl<'s> SegmentReader<'s> {
    /// Starts with the first batch that has an offset from `offset` on.
    ///
    /// # Errors
    /// [`CleanError`].
    pub(crate) fn from(
        source: &'s SourceSegment,
        offset: i64,
    ) -> Result<SegmentReader<'s>, CleanError> {
        let segment = &source.segment;
        let open = segment.open_once()?;
        let bounds = (segment.size(), Some(source.end));
        let place = match offset > segment.base {
            true => {
                let found = open.find(offset, bounds, DiskWait::Allowed);
                found.map_err(CleanError::of)?
            }
            false => None,
        };
        let (position, next_offset) = match (place, offset > segment.base) {
            (Some(place), _) => (place.position, place.base_offset),
            (None, true) => (segment.size(), source.end),
            (None, false) => (0, segment.base),
        };
        Ok(SegmentReader {
            source,
            open,
            buffer: Vec::new(),
            buffered_from: position,
            position,
            next_offset,
        })
    }

    /// Whether all batches were read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.position >= self.source.segment.size()
    }

    /// Reads the next batch; `None` at the end of the segment.
    ///
    /// # Errors
    /// [`CleanError::Damaged`] if there is no intact batch with the next offset; others.
    pub(crate) fn next(
        &mut self,
        pace: &mut Pace<'_>,
    ) -> Result<Option<ReadBatch<'_>>, CleanError> {
        if self.is_at_end() {
            return Ok(None);
        }
        let (base, position) = (self.source.segment.base, self.position);
        let damaged = CleanError::Damaged { base, position };
        let numbering = self.source.segment.numbering;
        let head = self.filled(HEADER_BYTES, pace)?;
        let header = BatchHeader::parse(head).filter(|header| {
            header.size as u64 <= self.source.segment.size() - position
                && header.size <= BATCH_BYTES_MAX
                && numbering.allows(header.base_offset, self.next_offset)
                && header.next_offset() <= self.source.end
        });
        let Some(header) = header else {
            return Err(damaged);
        };
        self.filled(header.size, pace)?;
        let at = self.at();
        let bytes = &self.buffer[at..at + header.size];
        if crc32c::crc32c(&bytes[CRC_FROM as usize..]) != header.crc {
            return Err(damaged);
        }
        self.position += header.size as u64;
        self.next_offset = header.next_offset();
        let is_last = self.position == self.source.segment.size();
        Ok(Some(ReadBatch {
            header,
            bytes,
            is_last,
        }))
    }

    /// Returns the place of the position in the buffer.
    fn at(&self) -> usize {
        (self.position - self.buffered_from) as usize
    }

    /// Returns the next bytes, at least `least` of them unless the file ends.
    fn filled(&mut self, least: usize, pace: &mut Pace<'_>) -> Result<&[u8], CleanError> {
        if self.buffer.len() - self.at() < least {
            self.buffer.drain(..self.at());
            self.buffered_from = self.position;
            let kept = self.buffer.len();
            let left = self.source.segment.size() - self.position;
            let wanted = (least.max(READ_BYTES) as u64).min(left) as usize;
            self.buffer.resize(wanted.max(kept), 0);
            let room = &mut self.buffer[kept..];
            let from = self.position + kept as u64;
            let read = disk::read_exact(&*self.open.file, room, from, DiskWait::Allowed);
            pace.step(room.len())?;
            match read {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let base = self.source.segment.base;
                    let position = self.position;
                    return Err(CleanError::Damaged { base, position });
                }
                read => read?,
            }
            if self.buffer.len() < least {
                let (base, position) = (self.source.segment.base, self.position);
                return Err(CleanError::Damaged { base, position });
            }
        }
        Ok(&self.buffer[self.at()..])
    }
}
