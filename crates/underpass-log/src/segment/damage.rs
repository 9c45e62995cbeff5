//! Where batches are damaged, and where the log goes on behind them.
//!
//! Offsets rise without gaps, except where Kafka has compacted. So a batch whose header makes no
//! sense is damage, and so is one that does not go on where the one before has ended: neither the
//! offset of a batch nor its length is covered by its checksum.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::files::disk::{self, DiskWait};
use crate::index::BatchPlace;
use crate::segment::walk::is_intact_at;

/// Records that are lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OffsetGap {
    pub(crate) offsets: Range<i64>,
    /// The base of the segment in which they would begin, and where.
    pub(crate) place: (i64, u64),
}

/// An error of a read that begins among damaged batches.
#[derive(Debug)]
pub(crate) struct Damaged {
    /// Up to the end of the segment where none is intact behind.
    pub(crate) offsets: Range<i64>,
    /// The base of the segment, and where in it there is no batch, or another one.
    pub(crate) place: (i64, u64),
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (segment, position) = self.place;
        write!(f, "segment {segment}: there is no batch at byte {position}")
    }
}

impl std::error::Error for Damaged {}

impl Damaged {
    /// The one of which an error is.
    pub(crate) fn of(error: &io::Error) -> Option<&Damaged> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Damaged> for io::Error {
    fn from(damaged: Damaged) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, damaged)
    }
}

/// How the offsets of a partition rise.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Numbering {
    /// By one.
    #[default]
    Consecutive,
    /// Records may be missing anywhere: Kafka has compacted the partition.
    Compacted,
}

impl Numbering {
    /// Whether a batch, or a segment, may begin with an offset where the one before has ended.
    pub(crate) fn allows(self, begins: i64, ended: i64) -> bool {
        begins == ended || self == Numbering::Compacted && begins > ended
    }
}

/// How many bytes are looked through at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The first batch of the file from `damaged` on, up to `limit`, that has offsets within `offsets`
/// and is what it was: its checksum is right, and what follows goes on behind it. One at `damaged`
/// itself does not begin where the one before has ended: it has to be followed. Waits for the disk.
///
/// # Errors
/// Of the kernel.
pub(crate) fn intact_from(
    file: impl AsFd,
    damaged: u64,
    limit: u64,
    (offsets, numbering): (&Range<i64>, Numbering),
) -> io::Result<Option<(BatchPlace, BatchHeader)>> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut from = damaged;
    while from + HEADER_BYTES as u64 <= limit {
        let filled = disk::read_at_least(&file, &mut piece, HEADER_BYTES, from, DiskWait::Allowed)?;
        let Some(last) = filled.checked_sub(HEADER_BYTES) else {
            break;
        };
        for at in 0..=last {
            let Some(header) = BatchHeader::parse(&piece[at..filled]) else {
                continue;
            };
            let place = BatchPlace::of(&header, from + at as u64);
            let end = place.position + place.size;
            let is_within =
                header.base_offset >= offsets.start && header.next_offset() <= offsets.end;
            if !is_within || end > limit {
                continue;
            }
            let is_followed = match end == limit {
                true => place.position > damaged || header.next_offset() == offsets.end,
                false => header_at(&file, end)?.is_some_and(|behind| {
                    numbering.allows(behind.base_offset, header.next_offset())
                }),
            };
            if is_followed && is_intact_at(&file, &place, &header)? {
                return Ok(Some((place, header)));
            }
        }
        from += last as u64 + 1;
    }
    Ok(None)
}

fn header_at(file: impl AsFd, position: u64) -> io::Result<Option<BatchHeader>> {
    let mut bytes = [0; HEADER_BYTES];
    let wait = DiskWait::Allowed;
    let filled = disk::read_at_least(file, &mut bytes, HEADER_BYTES, position, wait)?;
    Ok(BatchHeader::parse(&bytes[..filled]))
}
