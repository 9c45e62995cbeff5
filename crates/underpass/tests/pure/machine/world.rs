//! A kernel that follows a script, on two ends that are byte vectors.

use std::collections::VecDeque;

use proptest::prelude::*;
use rustix::io::Errno;
use underpass::{BufferedBytes, EndpointKind, Op, RelayBuffer, Side};

/// The initial content of a sink; no source has such a byte.
const OLD: u8 = 0xff;

/// The scripted outcome of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It does everything requested.
    Full,
    /// It moves at most this much.
    Short(u64),
    /// It fails and does nothing.
    Fails(Errno),
    /// It returns 0 although there is more, as only some calls do.
    SaysNothing,
}

/// A part of the source: its kind and length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    Data(usize),
    /// Data consisting of zeros.
    Zeros(usize),
    Hole(usize),
}

impl Run {
    pub(crate) fn times(self, factor: usize) -> Self {
        match self {
            Self::Data(len) => Self::Data(len * factor),
            Self::Zeros(len) => Self::Zeros(len * factor),
            Self::Hole(len) => Self::Hole(len * factor),
        }
    }
}

/// Source, sink and the bytes between them.
#[derive(Clone, Debug)]
pub(crate) struct World {
    kinds: (EndpointKind, EndpointKind),
    source: Vec<u8>,
    /// For each byte of the source, whether it is in a hole.
    holes: Vec<bool>,
    /// The read position of a source without offsets.
    read: usize,
    sink: Vec<u8>,
    /// For each byte of the sink, whether it was not written.
    unwritten: Vec<bool>,
    position: usize,
    pipe: VecDeque<u8>,
    /// The sink has refused the pipe.
    refused: bool,
    buffer: VecDeque<u8>,
    script: VecDeque<Fate>,
}

impl World {
    pub(crate) fn new(
        kinds: (EndpointKind, EndpointKind),
        runs: &[Run],
        old: usize,
        script: Vec<Fate>,
    ) -> Self {
        let (mut source, mut holes) = (Vec::new(), Vec::new());
        for run in runs {
            let (Run::Data(len) | Run::Zeros(len) | Run::Hole(len)) = *run;
            for _ in 0..len {
                let byte = match run {
                    Run::Data(_) => (source.len() % 251 + 1) as u8,
                    Run::Zeros(_) | Run::Hole(_) => 0,
                };
                source.push(byte);
                holes.push(matches!(run, Run::Hole(_)));
            }
        }
        let (pipe, buffer) = (VecDeque::new(), VecDeque::new());
        let script = script.into();
        let sink = if kinds.1 == EndpointKind::File {
            vec![OLD; old]
        } else {
            Vec::new()
        };
        Self {
            kinds,
            source,
            holes,
            read: 0,
            unwritten: vec![false; sink.len()],
            sink,
            position: 0,
            pipe,
            refused: false,
            buffer,
            script,
        }
    }

    pub(crate) fn source_len(&self) -> usize {
        self.source.len()
    }

    /// Returns the length of a sink that is a file.
    pub(crate) fn sink_len(&self) -> usize {
        if self.kinds.1 == EndpointKind::File {
            self.sink.len()
        } else {
            0
        }
    }

    pub(crate) fn source_allocated(&self) -> usize {
        self.holes.iter().filter(|hole| !**hole).count()
    }

    /// Returns the bytes read from a source without offsets.
    pub(crate) fn read(&self) -> Option<u64> {
        let has_offsets = matches!(self.kinds.0, EndpointKind::File | EndpointKind::Block);
        (!has_offsets).then_some(self.read as u64)
    }

    /// Returns start and end of the sink's holes from `to` up to `end`.
    pub(crate) fn sink_holes(&self, to: u64, end: u64) -> Vec<(u64, u64)> {
        let mut holes: Vec<(u64, u64)> = Vec::new();
        for at in (to..end).filter(|at| self.unwritten[*at as usize]) {
            match holes.last_mut() {
                Some((_, until)) if *until == at => *until += 1,
                _ => holes.push((at, at + 1)),
            }
        }
        holes
    }

    /// Returns whether all these bytes of the sink are zeros.
    pub(crate) fn is_zero(&self, from: u64, until: u64) -> bool {
        self.sink[from as usize..until as usize]
            .iter()
            .all(|byte| *byte == 0)
    }

    pub(crate) fn held(&self) -> u64 {
        (self.pipe.len() + self.buffer.len()) as u64
    }

    pub(crate) fn sink_has_offsets(&self) -> bool {
        matches!(self.kinds.1, EndpointKind::File | EndpointKind::Block)
    }

    pub(crate) fn cut(&mut self, len: usize) {
        self.source.truncate(len.max(self.read));
        self.holes.truncate(len.max(self.read));
    }

    /// Checks that the sink's first `moved` bytes from `to` on are the source's from `from` on, and
    /// that a finished file is at least `end` long.
    pub(crate) fn compare(
        &self,
        before: &World,
        from: u64,
        to: u64,
        moved: u64,
        end: u64,
    ) -> Result<(), TestCaseError> {
        let (from, to, moved) = (from as usize, to as usize, moved as usize);
        let mut got = self.sink.clone();
        if self.sink_has_offsets() {
            prop_assert!(
                got.len() as u64 >= end || moved == 0,
                "the sink has its full length"
            );
            // After an error, a hole at the end is not in the file yet.
            got.resize(got.len().max(to + moved), 0);
            got.drain(..to.min(got.len()));
            got.truncate(moved);
        }
        prop_assert_eq!(
            got,
            &before.source[from.min(before.source.len())..][..moved]
        );
        Ok(())
    }

    /// Makes a call with the script's next result.
    pub(crate) fn play(&mut self, op: Op) -> Result<u64, Errno> {
        let fate = self.script.pop_front().unwrap_or(Fate::Full);
        if matches!(
            op,
            Op::Drain {
                through: RelayBuffer::Pipe,
                ..
            }
        ) {
            assert!(
                !self.refused,
                "a sink that refused the pipe is not asked again"
            );
            self.refused = match fate {
                Fate::Fails(errno) => ![Errno::INTR, Errno::AGAIN].contains(&errno),
                Fate::SaysNothing => true,
                Fate::Full | Fate::Short(_) => false,
            };
        }
        match (op, fate) {
            (Op::Probe(_), Fate::Fails(errno)) => Err(errno),
            (Op::Probe(_), _) => Err(Errno::BADF),
            // ENXIO is not a failure here: it means the end of the data, and is believed.
            (Op::SeekData { .. }, Fate::Fails(Errno::NXIO)) => Err(Errno::INVAL),
            (_, Fate::Fails(errno)) => Err(errno),
            (op, Fate::SaysNothing) if self.may_lie(op) => Ok(0),
            (op, Fate::Short(most)) => self.make(op, most as usize),
            (op, _) => self.make(op, usize::MAX),
        }
    }

    fn may_lie(&self, op: Op) -> bool {
        let file = matches!(self.kinds.0, EndpointKind::File | EndpointKind::Block);
        match op {
            Op::CopyRange { .. } => true,
            Op::Sendfile { .. } | Op::Splice { .. } => file,
            Op::Fill {
                through: RelayBuffer::Pipe,
                ..
            } => file,
            Op::Drain {
                through: RelayBuffer::Pipe,
                ..
            } => true,
            _ => false,
        }
    }

    fn make(&mut self, op: Op, most: usize) -> Result<u64, Errno> {
        let up_to = |len: u64| (len as usize).min(most);
        match op {
            Op::Clone => {
                assert!(self.sink.is_empty(), "FICLONE would keep the tail");
                self.sink = self.source.clone();
                self.unwritten = vec![false; self.sink.len()];
                Ok(0)
            }
            Op::CloneRange { from, to, len } => {
                if from + len > self.source.len() as u64 {
                    return Err(Errno::INVAL);
                }
                let bytes = self.take(Some(from), len as usize);
                self.put(Some(to), &bytes);
                Ok(0)
            }
            Op::CopyRange { from, to, len } => {
                let bytes = self.take(Some(from), up_to(len));
                Ok(self.put(Some(to), &bytes))
            }
            Op::Sendfile { from, len } => {
                let bytes = self.take(from, up_to(len));
                let at = self.sink_has_offsets().then_some(self.position as u64);
                self.position += bytes.len();
                Ok(self.put(at, &bytes))
            }
            Op::Splice { from, to, len } => {
                let bytes = self.take(from, up_to(len));
                Ok(self.put(to, &bytes))
            }
            Op::Fill { through, from, len } => {
                let bytes = self.take(from, up_to(len));
                let middle = self.middle(through);
                assert!(middle.is_empty(), "a middle is empty before it is filled");
                middle.extend(&bytes);
                Ok(bytes.len() as u64)
            }
            Op::Drain { through, to, len } => {
                let middle = self.middle(through);
                assert!(
                    len > 0 && len <= middle.len() as u64,
                    "drains what the middle holds"
                );
                let bytes: Vec<u8> = middle.drain(..up_to(len)).collect();
                Ok(self.put(to, &bytes))
            }
            Op::ReadOut { len } => {
                assert!(self.buffer.is_empty());
                let len = up_to(len).min(self.pipe.len());
                self.buffer.extend(self.pipe.drain(..len));
                Ok(len as u64)
            }
            Op::DropZeros(held) => {
                let zeros = self.zeros_ahead(held, 0);
                self.buffer.drain(..zeros);
                Ok(zeros as u64)
            }
            Op::DataAhead(held) => {
                let starts = |at: &usize| self.zeros_ahead(held, *at) > 0;
                let data = (0..self.buffer.len()).find(starts);
                Ok(data.unwrap_or(self.buffer.len()) as u64)
            }
            aside => self.answer(aside),
        }
    }

    fn answer(&mut self, op: Op) -> Result<u64, Errno> {
        match op {
            Op::Peek { from } => Ok(u64::from((from as usize) < self.source.len())),
            Op::SeekSink { to } => {
                self.position = to as usize;
                Ok(to)
            }
            Op::SeekData { from } => self.seek(from, false),
            Op::SeekHole { from } => self.seek(from, true),
            Op::Punch { to, len } => {
                let end = ((to + len) as usize).min(self.sink.len());
                if let Some(hole) = self.sink.get_mut(to as usize..end) {
                    hole.fill(0);
                    self.unwritten[to as usize..end].fill(true);
                }
                Ok(0)
            }
            Op::SetLength { len } => {
                self.lengthen(len as usize);
                Ok(0)
            }
            // One byte is written; the world lengthens the file accordingly.
            Op::LastByte { at } => {
                assert!(at as usize >= self.sink.len(), "only a hole is at the end");
                self.lengthen(at as usize + 1);
                Ok(1)
            }
            Op::Length(Side::Source) => Ok(self.source.len() as u64),
            Op::Length(Side::Sink) => Ok(self.sink.len() as u64),
            other => panic!("{other:?} moves payload"),
        }
    }

    fn seek(&self, from: u64, hole: bool) -> Result<u64, Errno> {
        let from = from as usize;
        if from >= self.source.len() {
            return Err(Errno::NXIO);
        }
        match (from..self.source.len()).find(|at| self.holes[*at] == hole) {
            Some(at) => Ok(at as u64),
            None if hole => Ok(self.source.len() as u64),
            None => Err(Errno::NXIO),
        }
    }

    fn take(&mut self, from: Option<u64>, len: usize) -> Vec<u8> {
        let at = from
            .map_or(self.read, |from| from as usize)
            .min(self.source.len());
        let end = at.saturating_add(len).min(self.source.len());
        if from.is_none() {
            self.read = end;
        }
        self.source[at..end].to_vec()
    }

    fn put(&mut self, to: Option<u64>, bytes: &[u8]) -> u64 {
        let at = to.map_or(self.sink.len(), |to| to as usize);
        assert_eq!(
            to.is_some(),
            self.sink_has_offsets(),
            "offsets where there are offsets"
        );
        if !bytes.is_empty() {
            let end = at + bytes.len();
            self.lengthen(self.sink.len().max(end));
            self.sink[at..end].copy_from_slice(bytes);
            self.unwritten[at..end].fill(false);
        }
        bytes.len() as u64
    }

    fn lengthen(&mut self, len: usize) {
        assert!(len >= self.sink.len(), "nothing is cut off");
        self.sink.resize(len, 0);
        self.unwritten.resize(len, true);
    }

    /// Returns the bytes of whole blocks of zeros in the buffer from `at` on.
    fn zeros_ahead(&self, held: BufferedBytes, mut at: usize) -> usize {
        assert_eq!(held.len, self.buffer.len() as u64, "looks at all of it");
        let (start, block) = (at, held.block_bytes as usize);
        loop {
            let rest = self.buffer.len() - at;
            let last = held.end == Some(held.to + held.len);
            let aligned = (held.to as usize + at).is_multiple_of(block);
            let whole = aligned && (rest >= block || rest > 0 && last);
            let len = rest.min(block);
            if !whole || self.buffer.range(at..at + len).any(|byte| *byte != 0) {
                return at - start;
            }
            at += len;
        }
    }

    fn middle(&mut self, through: RelayBuffer) -> &mut VecDeque<u8> {
        match through {
            RelayBuffer::Pipe => &mut self.pipe,
            RelayBuffer::Buffer => &mut self.buffer,
        }
    }
}
