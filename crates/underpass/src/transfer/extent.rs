//! Data and holes of a sparse source, found by SEEK_DATA and SEEK_HOLE one extent at a time.
//!
//! ```text
//!  at                    data                       hole
//!  │◀── skipped: a hole ──▶│◀── moved: data ──────────▶│  … and again from there
//!  SeekData{at} ──────────▶ SeekHole{data} ───────────▶
//! ```
//!
//! Where a file system returns nonsense, or does not support holes, the rest of the file is moved
//! as data: slower, never wrong.

use rustix::io::Errno;

use crate::plan::policy::Holes;
use crate::transfer::op::Op;
use crate::vocabulary::endpoint::{EndpointKind, Owed, Side, Sink, Source};

/// How far the map is known. Offsets are the source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentMap {
    /// All is data.
    Plain,
    /// Nothing is known from here on.
    Unknown,
    /// Data begins here; its end is not known.
    DataFrom(u64),
    /// Data up to here.
    DataUntil(u64),
    /// The source reports no more data, which holds only while its length is unchanged.
    NoMoreData,
}

/// What an answer of the kernel means for the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentAnswer {
    /// Ask on, or move on.
    Nothing,
    /// A hole of this many bytes begins at the requested offset.
    Hole(u64),
}

impl ExtentMap {
    /// Holes are looked for between files where there must be some, and only towards a place where
    /// the sink has no bytes yet: elsewhere old bytes would remain. With
    /// [`Holes::Fill`] their zeros are moved as data.
    pub(crate) fn of<F, G>(source: &Source<F>, sink: &Sink<G>, holes: Holes) -> Self {
        let sparse = source.end.allocated < source.end.size;
        let between_files = source.end.kind == EndpointKind::File && sink.takes_holes();
        let known = matches!(source.owed, Owed::Exactly(_));
        if holes != Holes::Fill && sparse && between_files && known {
            Self::Unknown
        } else {
            Self::Plain
        }
    }

    /// The question that must be answered before the byte at `at` can be moved.
    pub(crate) fn question(&self, at: u64) -> Option<Op> {
        match *self {
            Self::Plain => None,
            Self::DataUntil(end) if at < end => None,
            Self::Unknown | Self::DataUntil(_) => Some(Op::SeekData { from: at }),
            Self::DataFrom(data) => Some(Op::SeekHole { from: data }),
            Self::NoMoreData => Some(Op::Length(Side::Source)),
        }
    }

    /// Bytes from `at` on that may be moved in one go.
    pub(crate) fn data_after(&self, at: u64) -> u64 {
        match *self {
            Self::DataUntil(end) => end.saturating_sub(at),
            _ => u64::MAX,
        }
    }

    /// Takes the answer to `op`; `end` is where the range owed ends.
    pub(crate) fn record(&mut self, op: Op, answer: Result<u64, Errno>, end: u64) -> ExtentAnswer {
        match (op, answer) {
            (Op::SeekData { from }, Ok(data)) if data >= from => {
                let data = data.min(end);
                *self = if data == end {
                    Self::Unknown
                } else {
                    Self::DataFrom(data)
                };
                return if data > from {
                    ExtentAnswer::Hole(data - from)
                } else {
                    ExtentAnswer::Nothing
                };
            }
            (Op::SeekData { .. }, Err(Errno::NXIO)) => *self = Self::NoMoreData,
            (Op::SeekHole { from }, Ok(hole)) if hole > from => *self = Self::DataUntil(hole),
            _ => *self = Self::Plain,
        }
        ExtentAnswer::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_hole_data_hole() {
        let mut extents = ExtentMap::Unknown;
        let ask = extents.question(0).expect("unknown");
        assert_eq!(ask, Op::SeekData { from: 0 });
        assert_eq!(extents.record(ask, Ok(8), 100), ExtentAnswer::Hole(8));
        let ask = extents.question(8).expect("the data's end is unknown");
        assert_eq!(extents.record(ask, Ok(20), 100), ExtentAnswer::Nothing);
        assert_eq!((extents.question(8), extents.data_after(8)), (None, 12));
        let ask = extents.question(20).expect("past the data");
        extents.record(ask, Err(Errno::NXIO), 100);
        assert_eq!(extents.question(20), Some(Op::Length(Side::Source)));
    }

    #[test]
    fn nonsense_makes_the_rest_plain() {
        for (op, answer) in [
            (Op::SeekData { from: 50 }, Ok(7)),
            (Op::SeekData { from: 50 }, Err(Errno::INVAL)),
            (Op::SeekHole { from: 50 }, Ok(50)),
            (Op::SeekHole { from: 50 }, Err(Errno::NXIO)),
        ] {
            let mut extents = ExtentMap::Unknown;
            assert_eq!(extents.record(op, answer, 100), ExtentAnswer::Nothing);
            assert_eq!(extents, ExtentMap::Plain, "{op:?} {answer:?}");
        }
    }
}
