//! Finds damaged batches, and the point after them where the log continues.
//!
//! Offsets rise without gaps, unless Kafka has compacted the log. So a batch with an invalid header
//! is damaged, and so is one that does not start where the one before ended: the checksum covers
//! neither the offset of a batch nor its length.

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::AsFd;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::files::disk::{self, DiskWait};
use crate::index::BatchPlace;
use crate::segment::walk::{is_intact_at, walk};

/// A range of lost records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OffsetGap {
    pub(crate) offsets: Range<i64>,
    /// The base offset of the segment and the position where the records would start.
    pub(crate) place: (i64, u64),
}

/// The error of a read that starts among damaged batches.
#[derive(Debug)]
pub(crate) struct Damaged {
    /// The lost offsets, up to the end of the segment if no intact batch follows.
    pub(crate) offsets: Range<i64>,
    /// The base offset of the segment and the position of the invalid batch.
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
    /// Returns the cause of an I/O error, if it is damage.
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
    /// Records may be missing anywhere, because Kafka has compacted the partition.
    Compacted,
}

impl Numbering {
    /// Whether a batch or segment may start at the offset `begins` after one that ended at `ended`.
    pub(crate) fn allows(self, begins: i64, ended: i64) -> bool {
        begins == ended || self == Numbering::Compacted && begins > ended
    }
}

/// The bounds of a search for batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// The end of the bytes.
    pub(crate) limit: u64,
    /// The exclusive upper bound of the offsets.
    pub(crate) offsets_max: i64,
    /// The offset at `limit`, if known.
    pub(crate) end: Option<i64>,
    pub(crate) numbering: Numbering,
}

impl Search {
    /// Makes the bounds in a segment: up to `limit`, where the offset is `end`, if known.
    pub(crate) fn of((base, numbering): (i64, Numbering), limit: u64, end: Option<i64>) -> Search {
        Search {
            limit,
            offsets_max: end.unwrap_or(i64::MAX).min(base + i64::from(i32::MAX)),
            end,
            numbering,
        }
    }
}

/// Consecutive batches.
struct Chain {
    first: (BatchPlace, BatchHeader),
    /// The position after the last batch.
    position: u64,
    offset: i64,
}

/// The number of bytes read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The average number of times that each byte may be read for a checksum.
const CHECKED_TIMES_MAX: u64 = 8;

/// Returns the first intact batch from the byte `damaged` on that has offsets from `lost` on. Its
/// checksum is right. Since a record may contain a batch as its value, the batch must also be
/// followed by others up to the end, or precede one that is. A batch at `damaged` itself starts at
/// a wrong offset, so it must be followed by others. Gives up after reading many bytes for
/// checksums, so that records full of forged headers do not keep it busy. Waits for the disk.
///
/// # Errors
/// I/O errors.
pub(crate) fn intact_from(
    file: impl AsFd,
    damaged: u64,
    lost: i64,
    search: &Search,
) -> io::Result<Option<(BatchPlace, BatchHeader)>> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut from = damaged;
    let mut checked_max = CHECKED_TIMES_MAX * (search.limit - damaged.min(search.limit));
    while from + HEADER_BYTES as u64 <= search.limit {
        let filled = disk::read_at_least(&file, &mut piece, HEADER_BYTES, from, DiskWait::Allowed)?;
        let Some(last) = filled.checked_sub(HEADER_BYTES) else {
            break;
        };
        let mut next = from + last as u64 + 1;
        for at in 0..=last {
            let Some(header) = BatchHeader::parse(&piece[at..filled]) else {
                continue;
            };
            let place = BatchPlace::of(&header, from + at as u64);
            let is_within = header.base_offset >= lost
                && header.next_offset() <= search.offsets_max
                && place.position + place.size <= search.limit;
            if !is_within || checked_max < place.size {
                continue;
            }
            checked_max -= place.size;
            if !is_intact_at(&file, &place, &header)? {
                continue;
            }
            let chain = chain(&file, (place, header), search)?;
            let is_odd = place.position == damaged && chain.position == place.position + place.size;
            let is_last = chain.position == search.limit;
            let ends_right = search.end.is_none_or(|end| end == chain.offset);
            if is_odd && !(is_last && search.end == Some(chain.offset)) {
                continue;
            }
            next = chain.position;
            chains.push(chain);
            if is_last && ends_right {
                return Ok(first_until(&chains, chains.len() - 1, (damaged, lost)));
            }
            break;
        }
        from = next;
    }
    let longest = chains
        .iter()
        .map(|chain| chain.position - chain.first.0.position);
    let longest = longest.enumerate().max_by_key(|(_, bytes)| *bytes);
    Ok(longest.and_then(|(number, _)| first_until(&chains, number, (damaged, lost))))
}

/// Visits the headers of the batches from a position on and skips damaged ranges, until the visitor
/// stops it. Waits for the disk.
///
/// # Errors
/// I/O errors.
pub(crate) fn walk_intact(
    file: impl AsFd,
    mut from: u64,
    search: &Search,
    visit: &mut dyn FnMut(&BatchPlace, &BatchHeader) -> ControlFlow<()>,
) -> io::Result<()> {
    loop {
        let mut is_over = false;
        let mut visit = |place: &BatchPlace, header: &BatchHeader| {
            let flow = visit(place, header);
            is_over = flow.is_break();
            flow
        };
        let end = walk(&file, from, search.limit, DiskWait::Allowed, &mut visit)?;
        if is_over || end >= search.limit {
            return Ok(());
        }
        match intact_from(&file, end, 0, search)? {
            Some((place, _)) => from = place.position,
            None => return Ok(()),
        }
    }
}

/// Returns the first batch, up to that of chain `number`, that leaves lost offsets for the damaged
/// bytes before and after it: bytes without offsets were not a batch.
fn first_until(
    chains: &[Chain],
    number: usize,
    (damaged, lost): (u64, i64),
) -> Option<(BatchPlace, BatchHeader)> {
    let base = chains[number].first.1.base_offset;
    let is_between = |chain: &&Chain| {
        let (place, header) = &chain.first;
        chain.offset < base && (header.base_offset > lost || place.position == damaged)
    };
    let before = chains[..number].iter().find(is_between);
    before.or(chains.get(number)).map(|chain| chain.first)
}

/// Returns a batch with the batches that follow it.
fn chain(file: impl AsFd, first: (BatchPlace, BatchHeader), search: &Search) -> io::Result<Chain> {
    let mut chain = Chain {
        first,
        position: first.0.position,
        offset: first.1.base_offset,
    };
    let wait = DiskWait::Allowed;
    walk(
        file,
        first.0.position,
        search.limit,
        wait,
        &mut |place, header| {
            if !search.numbering.allows(header.base_offset, chain.offset)
                || header.next_offset() > search.offsets_max
            {
                return ControlFlow::Break(());
            }
            chain.position = place.position + place.size;
            chain.offset = header.next_offset();
            ControlFlow::Continue(())
        },
    )?;
    Ok(chain)
}
