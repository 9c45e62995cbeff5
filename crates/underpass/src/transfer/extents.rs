//! Finds the ranges that become holes in the sink: those of a sparse source, and runs of zeros if
//! the caller wants them found.
//!
//! A sparse source is queried by SEEK_DATA and SEEK_HOLE, one extent at a time:
//!
//! ```text
//!  at                    data                       hole
//!  │◀── skipped: a hole ──▶│◀── moved: data ──────────▶│  … and again from there
//!  SeekData{at} ──────────▶ SeekHole{data} ───────────▶
//! ```
//!
//! If a file system returns nonsense, or does not support holes, the rest of the file is moved as
//! data: slower, never wrong.
//!
//! Zeros are searched for in the read/write buffer:
//!
//! ```text
//!  the buffer   │ zeros ─▶ a hole │ data ─▶ drained │ zeros ─▶ a hole │ …
//!  is asked     DropZeros         DropZeros: none   DropZeros
//!                                 DataAhead
//! ```
//!
//! Only whole blocks at offsets of the sink count, since nothing less can be a hole, and at the
//! very end of the transfer the rest of a block.

use rustix::io::Errno;

use crate::plan::Holes;
use crate::transfer::op::{BufferedBytes, Op};
use crate::vocabulary::endpoint::{EndpointKind, Owed, Side, Sink, Source};
use crate::vocabulary::limits::{BUFFER_BYTES, ZERO_BLOCK_BYTES_MIN};

/// The known part of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extents {
    /// All is data.
    Plain,
    /// Nothing is known from here on.
    Unknown,
    /// Data starts here; its end is not known.
    DataFrom(u64),
    /// Data up to here.
    DataUntil(u64),
    /// There is no more data, which holds only while the length of the source is unchanged.
    NoMoreData,
}

impl Extents {
    /// Returns the bytes from `at` on that may be moved in one go.
    pub(crate) fn data_after(self, at: u64) -> u64 {
        match self {
            Self::DataUntil(end) => end.saturating_sub(at),
            _ => u64::MAX,
        }
    }
}

/// The map of a sparse source. Offsets are in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceExtents(pub(crate) Extents);

impl SourceExtents {
    /// Looks for holes between files if there may be some, and only if the sink has no bytes there
    /// yet: otherwise old bytes would remain. With [`Holes::Fill`] their zeros are moved as data.
    pub(crate) fn of<F, G>(source: &Source<F>, sink: &Sink<G>, holes: Holes) -> Self {
        let between_files = source.end.kind == EndpointKind::File && sink.takes_holes();
        let known = matches!(source.owed, Owed::Exactly(_));
        Self(
            match holes != Holes::Fill && source.end.may_have_holes() && between_files && known {
                true => Extents::Unknown,
                false => Extents::Plain,
            },
        )
    }

    /// Returns the question that must be answered before the byte at `at` can be moved.
    pub(crate) fn question(&self, at: u64) -> Option<Op> {
        match self.0 {
            Extents::Plain => None,
            Extents::DataUntil(end) if at < end => None,
            Extents::Unknown | Extents::DataUntil(_) => Some(Op::SeekData { from: at }),
            Extents::DataFrom(data) => Some(Op::SeekHole { from: data }),
            Extents::NoMoreData => Some(Op::Length(Side::Source)),
        }
    }

    /// Takes the answer to `op`; `end` is the end of the range owed. Returns the length of the hole
    /// that starts at the requested offset, if one does.
    pub(crate) fn record(&mut self, op: Op, answer: Result<u64, Errno>, end: u64) -> Option<u64> {
        let mut hole = None;
        self.0 = match (op, answer) {
            (Op::SeekData { from }, Ok(data)) if data >= from => {
                let data = data.min(end);
                hole = (data > from).then(|| data - from);
                match data == end {
                    true => Extents::Unknown,
                    false => Extents::DataFrom(data),
                }
            }
            (Op::SeekData { .. }, Err(Errno::NXIO)) => Extents::NoMoreData,
            (Op::SeekHole { from }, Ok(hole)) if hole > from => Extents::DataUntil(hole),
            _ => Extents::Plain,
        };
        hole
    }
}

/// The known zeros at the beginning of the buffer. Offsets are in the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zeros {
    block_bytes: u64,
    seen: Extents,
}

impl Zeros {
    pub(crate) fn of<F>(sink: &Sink<F>, holes: Holes) -> Self {
        let block_bytes = sink.end.block_bytes;
        Self {
            block_bytes: block_bytes.clamp(ZERO_BLOCK_BYTES_MIN, BUFFER_BYTES as u64),
            seen: match holes == Holes::Find && sink.takes_holes() {
                true => Extents::Unknown,
                false => Extents::Plain,
            },
        }
    }

    /// Returns the question that must be answered before the `held` bytes that go to `to` may be
    /// drained. `end` is the end of the transfer, if known.
    pub(crate) fn question(&self, to: u64, held: u64, end: Option<u64>) -> Option<Op> {
        let ahead = BufferedBytes {
            to,
            len: held,
            block_bytes: self.block_bytes,
            end,
        };
        match self.seen {
            _ if held == 0 => None,
            Extents::Plain => None,
            Extents::DataUntil(end) if to < end => None,
            Extents::DataFrom(_) => Some(Op::DataAhead(ahead)),
            _ => Some(Op::DropZeros(ahead)),
        }
    }

    /// Returns the bytes from `to` on that may be drained in one go.
    pub(crate) fn data_after(&self, to: u64) -> u64 {
        self.seen.data_after(to)
    }

    /// Returns the length of a read for `to` if it cannot get all of `owed`: at most up to where
    /// the next read starts at a block boundary.
    pub(crate) fn fill_bytes(&self, to: u64, owed: u64, most: u64) -> u64 {
        let most = owed.min(most).min(BUFFER_BYTES as u64);
        let beyond = (to + most) % self.block_bytes;
        if self.seen == Extents::Plain || most == owed || beyond >= most {
            most
        } else {
            most - beyond
        }
    }

    /// Takes the answer to `op`. Unexamined bytes are data. Returns the length of the hole at the
    /// beginning of the buffer, if there is one.
    pub(crate) fn record(&mut self, op: Op, answer: Result<u64, Errno>) -> Option<u64> {
        let (Op::DropZeros(held) | Op::DataAhead(held)) = op else {
            return None;
        };
        let mut hole = None;
        self.seen = match (op, answer) {
            (Op::DropZeros(_), Ok(0)) => Extents::DataFrom(held.to),
            (Op::DropZeros(_), Ok(len)) if len <= held.len => {
                hole = Some(len);
                Extents::Unknown
            }
            (Op::DataAhead(_), Ok(len @ 1..)) if len <= held.len => {
                Extents::DataUntil(held.to + len)
            }
            _ => Extents::DataUntil(held.to + held.len),
        };
        hole
    }
}

/// The content of a block of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockContent {
    Zeros,
    Data,
}

impl BufferedBytes {
    /// Returns the length of the run of one content at the beginning of `bytes`, the held bytes.
    pub(crate) fn run_of(&self, content: BlockContent, bytes: &[u8]) -> usize {
        let mut run = 0;
        while let Some(len) = self.block_at(run, bytes.len()) {
            if self.content(run, &bytes[run..run + len]) != content {
                break;
            }
            run += len;
        }
        run
    }

    /// Returns the number of held bytes of the block at `at`; `None` past the end.
    fn block_at(&self, at: usize, held: usize) -> Option<usize> {
        let into_block = (self.to + at as u64) % self.block_bytes;
        let rest = held.checked_sub(at).filter(|rest| *rest > 0)?;
        let block = usize::try_from(self.block_bytes - into_block).unwrap_or(usize::MAX);
        Some(rest.min(block))
    }

    fn content(&self, at: usize, block: &[u8]) -> BlockContent {
        let (start, len) = (self.to + at as u64, block.len() as u64);
        let last = self.end == Some(start + len);
        let whole = start % self.block_bytes == 0 && (len == self.block_bytes || last);
        if whole && is_zero(block) {
            BlockContent::Zeros
        } else {
            BlockContent::Data
        }
    }
}

/// Returns whether all bytes are 0: bytes that equal themselves shifted by one are all alike, and
/// the C library compares many at a time.
fn is_zero(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == 0 && *rest == bytes[..rest.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::endpoint::EndpointKind;

    #[test]
    fn walks_hole_data_hole() {
        let mut extents = SourceExtents(Extents::Unknown);
        let ask = extents.question(0).expect("unknown");
        assert_eq!(ask, Op::SeekData { from: 0 });
        assert_eq!(extents.record(ask, Ok(8), 100), Some(8));
        let ask = extents.question(8).expect("the data's end is unknown");
        assert_eq!(extents.record(ask, Ok(20), 100), None);
        assert_eq!((extents.question(8), extents.0.data_after(8)), (None, 12));
        let ask = extents.question(20).expect("past the data");
        extents.record(ask, Err(Errno::NXIO), 100);
        assert_eq!(extents.question(20), Some(Op::Length(Side::Source)));
    }

    #[test]
    fn where_data_begins_there_is_no_hole() {
        let mut extents = SourceExtents(Extents::Unknown);
        assert_eq!(extents.record(Op::SeekData { from: 8 }, Ok(8), 100), None);
        assert_eq!(extents.0, Extents::DataFrom(8));
    }

    #[test]
    fn holes_are_looked_for_in_sparse_files_of_which_so_much_is_owed() {
        let mut sparse = Source::sample(EndpointKind::File);
        sparse.end.allocated = sparse.end.size - 1;
        let (mut full, mut to_end, mut block) = (sparse, sparse, sparse);
        full.end.allocated = full.end.size;
        to_end.owed = Owed::ToEnd;
        block.end.kind = EndpointKind::Block;
        let sink = Sink::sample(EndpointKind::File);
        let of = |source, holes| SourceExtents::of(&source, &sink, holes).0;
        for holes in [Holes::Keep, Holes::Find] {
            assert_eq!(of(sparse, holes), Extents::Unknown);
            for plain in [full, to_end, block] {
                assert_eq!(of(plain, holes), Extents::Plain, "{:?}", plain.end);
            }
        }
        assert_eq!(of(sparse, Holes::Fill), Extents::Plain);
        let tcp = Sink::sample(EndpointKind::Tcp);
        let to_tcp = SourceExtents::of(&sparse, &tcp, Holes::Keep);
        assert_eq!(to_tcp.0, Extents::Plain);
    }

    #[test]
    fn nonsense_makes_the_rest_plain() {
        for (op, answer) in [
            (Op::SeekData { from: 50 }, Ok(7)),
            (Op::SeekData { from: 50 }, Err(Errno::INVAL)),
            (Op::SeekHole { from: 50 }, Ok(50)),
            (Op::SeekHole { from: 50 }, Err(Errno::NXIO)),
        ] {
            let mut extents = SourceExtents(Extents::Unknown);
            assert_eq!(extents.record(op, answer, 100), None);
            assert_eq!(extents.0, Extents::Plain, "{op:?} {answer:?}");
        }
    }

    fn held(to: u64, len: usize, end: Option<u64>) -> BufferedBytes {
        BufferedBytes {
            to,
            len: len as u64,
            block_bytes: 512,
            end,
        }
    }

    /// Returns the lengths of the runs from the beginning on, zeros first.
    fn runs(to: u64, bytes: &[u8], end: Option<u64>) -> Vec<usize> {
        let (mut runs, mut at, mut content) = (Vec::new(), 0, BlockContent::Zeros);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let run = held(to + at as u64, rest.len(), end).run_of(content, rest);
            runs.push(run);
            at += run;
            content = match content {
                BlockContent::Zeros => BlockContent::Data,
                BlockContent::Data => BlockContent::Zeros,
            };
        }
        runs
    }

    fn with_data(len: usize, data: &[usize]) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for at in data {
            bytes[*at] = 1;
        }
        bytes
    }

    #[test]
    fn whole_blocks_at_the_offsets_of_the_sink_are_holes() {
        for (to, bytes, end, expected) in [
            (0, with_data(2048, &[]), None, &[2048][..]),
            (0, with_data(2048, &[0]), None, &[0, 512, 1536]),
            (0, with_data(2048, &[511]), None, &[0, 512, 1536]),
            (0, with_data(2048, &[512]), None, &[512, 512, 1024]),
            (0, with_data(2048, &[2047]), None, &[1536, 512]),
            (0, with_data(511, &[]), None, &[0, 511]),
            (0, with_data(511, &[]), Some(511), &[511]),
            (0, with_data(511, &[]), Some(512), &[0, 511]),
            (0, with_data(1000, &[600]), Some(1000), &[512, 488]),
            (1, with_data(2048, &[]), None, &[0, 511, 1536, 1]),
            (1, with_data(2048, &[]), Some(2049), &[0, 511, 1537]),
            (1, with_data(100, &[]), Some(101), &[0, 100]),
            (512, with_data(600, &[599]), Some(1112), &[512, 88]),
        ] {
            assert_eq!(runs(to, &bytes, end), expected, "{} at {to}", bytes.len());
        }
    }

    #[test]
    fn a_byte_anywhere_makes_data() {
        assert!(is_zero(&[]) && is_zero(&[0]) && !is_zero(&[1]));
        for len in [2, 7, 8, 9, 512, 4099] {
            assert!(is_zero(&with_data(len, &[])), "{len}");
            for at in [0, 1, len / 2, len - 1] {
                assert!(!is_zero(&with_data(len, &[at])), "{at} of {len}");
            }
            assert!(!is_zero(&vec![7; len]), "all alike, {len}");
        }
    }

    #[test]
    fn the_buffer_is_asked_for_zeros_then_for_data() {
        let sink = Sink::sample(EndpointKind::File);
        let mut zeros = Zeros::of(&sink, Holes::Find);
        assert_eq!(zeros.question(0, 0, None), None, "nothing is held");
        let ask = zeros.question(0, 9000, None).expect("unknown");
        assert_eq!(zeros.record(ask, Ok(4096)), Some(4096));
        let ask = zeros.question(4096, 4904, None).expect("unknown again");
        assert_eq!(zeros.record(ask, Ok(0)), None);
        let ask = zeros.question(4096, 4904, None).expect("how much data");
        assert!(matches!(ask, Op::DataAhead(BufferedBytes { to: 4096, .. })));
        assert_eq!(zeros.record(ask, Ok(4096)), None);
        let asked = zeros.question(5000, 4000, None);
        assert_eq!((asked, zeros.data_after(5000)), (None, 3192));
        assert!(zeros.question(8192, 808, None).is_some());
        assert_eq!(
            Zeros::of(&sink, Holes::Keep).question(0, 9000, None),
            None,
            "not asked for"
        );
    }

    #[test]
    fn what_could_not_be_looked_at_is_data() {
        let mut zeros = Zeros::of(&Sink::sample(EndpointKind::File), Holes::Find);
        for answer in [Err(Errno::IO), Ok(9001)] {
            let ask = zeros.question(0, 9000, None).expect("unknown");
            assert_eq!(zeros.record(ask, answer), None);
            assert_eq!(zeros.data_after(0), 9000);
            zeros.seen = Extents::Unknown;
        }
        zeros.seen = Extents::DataFrom(0);
        let ask = zeros.question(0, 9000, None).expect("how much data");
        assert_eq!(zeros.record(ask, Ok(9001)), None);
        assert_eq!(zeros.data_after(0), 9000, "more than is held");
    }

    #[test]
    fn reads_end_where_blocks_do() {
        let buffer = BUFFER_BYTES as u64;
        let zeros = Zeros::of(&Sink::sample(EndpointKind::File), Holes::Find);
        assert_eq!(zeros.fill_bytes(0, u64::MAX, u64::MAX), buffer);
        assert_eq!(zeros.fill_bytes(100, u64::MAX, u64::MAX), buffer - 100);
        assert_eq!(zeros.fill_bytes(100, 5000, u64::MAX), 5000, "all there is");
        assert_eq!(zeros.fill_bytes(100, u64::MAX, 5000), 4096 - 100);
        assert_eq!(zeros.fill_bytes(100, u64::MAX, 70), 70, "no block at all");
        let plain = Zeros::of(&Sink::sample(EndpointKind::Tcp), Holes::Find);
        assert_eq!(plain.fill_bytes(100, u64::MAX, u64::MAX), buffer);
    }

    #[test]
    fn blocks_are_neither_too_small_nor_larger_than_the_buffer() {
        for (says, is) in [(0, 512), (4096, 4096), (1 << 30, BUFFER_BYTES as u64)] {
            let mut sink = Sink::sample(EndpointKind::File);
            sink.end.block_bytes = says;
            assert_eq!(Zeros::of(&sink, Holes::Find).block_bytes, is);
        }
    }
}
