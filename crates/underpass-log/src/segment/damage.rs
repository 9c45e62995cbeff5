//! Where batches are damaged, and where the log goes on behind them.
//!
//! Offsets rise without gaps, except where Kafka has compacted. So a batch whose header makes no
//! sense is damage, and so is one that does not go on where the one before has ended: neither the
//! offset of a batch nor its length is covered by its checksum.

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::AsFd;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::files::disk::{self, DiskWait};
use crate::index::BatchPlace;
use crate::segment::walk::{is_intact_at, walk};

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

/// Where batches are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// The bytes end there.
    pub(crate) limit: u64,
    /// Offsets are below.
    pub(crate) offsets_max: i64,
    /// The offset at `limit`, where it is known.
    pub(crate) end: Option<i64>,
    pub(crate) numbering: Numbering,
}

impl Search {
    /// In a segment, up to `limit`, at which is the offset `end`, if that is known.
    pub(crate) fn of((base, numbering): (i64, Numbering), limit: u64, end: Option<i64>) -> Search {
        Search {
            limit,
            offsets_max: end.unwrap_or(i64::MAX).min(base + i64::from(i32::MAX)),
            end,
            numbering,
        }
    }
}

/// Batches one behind the other.
struct Chain {
    first: (BatchPlace, BatchHeader),
    /// What is behind the last one.
    position: u64,
    offset: i64,
}

/// How many bytes are looked through at a time.
const PIECE_BYTES: usize = 256 << 10;

/// How often each byte is looked at for a checksum, on average.
const CHECKED_TIMES_MAX: u64 = 8;

/// The first batch from the byte `damaged` on that is what it was, and has offsets from `lost` on.
/// Its checksum is right; and since the value of a record may be a batch as well, it is followed
/// by others up to the end, or lies between what is lost before one that is. One at `damaged`
/// itself does not begin where the one before has ended: it has to be followed. Gives up where
/// records are full of headers, so that whoever wrote them does not keep it busy. Waits for the
/// disk.
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

/// Visits the headers of the batches from a position on that are whole, until the visitor ends it.
/// Waits for the disk.
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

/// The first one, up to the one with this number, that may be between what is lost before and
/// behind it: bytes without offsets are no batch.
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

/// The batches that follow a batch.
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
