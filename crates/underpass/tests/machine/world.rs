//! A kernel that does what a script says, on two ends that are byte vectors.

use std::collections::VecDeque;

use proptest::prelude::*;
use rustix::io::Errno;
use underpass::{Kind, Middle, Op, Side};

/// What a sink is full of before anything is moved; no source has such a byte.
const OLD: u8 = 0xff;

/// What becomes of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It does all that was asked.
    Full,
    /// It does this much at the most.
    Short(u64),
    /// It fails and does nothing.
    Fails(Errno),
    /// It says 0 although there is more. Only calls that are known to lie do.
    SaysNothing,
}

/// Source, sink and what is between them.
#[derive(Clone, Debug)]
pub(crate) struct World {
    kinds: (Kind, Kind),
    source: Vec<u8>,
    /// Which bytes of the source are in holes.
    holes: Vec<bool>,
    /// How far a source without offsets has been read.
    read: usize,
    sink: Vec<u8>,
    position: usize,
    pipe: VecDeque<u8>,
    /// The sink has refused the pipe.
    refused: bool,
    buffer: VecDeque<u8>,
    script: VecDeque<Fate>,
}

impl World {
    pub(crate) fn new(kinds: (Kind, Kind), runs: &[u8], old: u8, script: Vec<Fate>) -> Self {
        let (mut source, mut holes) = (Vec::new(), Vec::new());
        for (number, run) in runs.iter().enumerate() {
            let hole = number % 2 == 1;
            for _ in 0..*run {
                let byte = if hole {
                    0
                } else {
                    (source.len() % 251 + 1) as u8
                };
                source.push(byte);
                holes.push(hole);
            }
        }
        let (pipe, buffer) = (VecDeque::new(), VecDeque::new());
        let script = script.into();
        let sink = if kinds.1 == Kind::File {
            vec![OLD; old.into()]
        } else {
            Vec::new()
        };
        Self {
            kinds,
            source,
            holes,
            read: 0,
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

    /// The length of a sink that is a file.
    pub(crate) fn sink_len(&self) -> usize {
        if self.kinds.1 == Kind::File {
            self.sink.len()
        } else {
            0
        }
    }

    pub(crate) fn source_allocated(&self) -> usize {
        self.holes.iter().filter(|hole| !**hole).count()
    }

    pub(crate) fn held(&self) -> u64 {
        (self.pipe.len() + self.buffer.len()) as u64
    }

    pub(crate) fn sink_has_offsets(&self) -> bool {
        matches!(self.kinds.1, Kind::File | Kind::Block)
    }

    pub(crate) fn cut(&mut self, len: usize) {
        self.source.truncate(len.max(self.read));
        self.holes.truncate(len.max(self.read));
    }

    /// The sink's first `moved` bytes from `to` on are the source's from `from` on; a finished
    /// file is at least `end` long.
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
            // A hole at the end of what an error left is not in the file yet: it reads as nothing.
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

    /// Makes a call as the script says.
    pub(crate) fn play(&mut self, op: Op) -> Result<u64, Errno> {
        let fate = self.script.pop_front().unwrap_or(Fate::Full);
        if matches!(
            op,
            Op::Drain {
                through: Middle::Pipe,
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
            // ENXIO is no failure here: it means that there is no more data, and is believed.
            (Op::SeekData { .. }, Fate::Fails(Errno::NXIO)) => Err(Errno::INVAL),
            (_, Fate::Fails(errno)) => Err(errno),
            (op, Fate::SaysNothing) if self.may_lie(op) => Ok(0),
            (op, Fate::Short(most)) => self.make(op, most as usize),
            (op, _) => self.make(op, usize::MAX),
        }
    }

    fn may_lie(&self, op: Op) -> bool {
        let file = matches!(self.kinds.0, Kind::File | Kind::Block);
        match op {
            Op::CopyRange { .. } => true,
            Op::Sendfile { .. } | Op::Splice { .. } => file,
            Op::Fill {
                through: Middle::Pipe,
                ..
            } => file,
            Op::Drain {
                through: Middle::Pipe,
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
                assert_eq!(middle.len() as u64, len, "drains what the middle holds");
                let bytes: Vec<u8> = middle.drain(..up_to(len)).collect();
                Ok(self.put(to, &bytes))
            }
            Op::ReadOut { len } => {
                assert!(self.buffer.is_empty());
                let len = up_to(len).min(self.pipe.len());
                self.buffer.extend(self.pipe.drain(..len));
                Ok(len as u64)
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
                }
                Ok(0)
            }
            Op::SetLength { len } => {
                self.sink.resize(len as usize, 0);
                Ok(0)
            }
            Op::LastByte { at } => Ok(self.put(Some(at), &[0])),
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
            self.sink.resize(self.sink.len().max(at + bytes.len()), 0);
            self.sink[at..at + bytes.len()].copy_from_slice(bytes);
        }
        bytes.len() as u64
    }

    fn middle(&mut self, through: Middle) -> &mut VecDeque<u8> {
        match through {
            Middle::Pipe => &mut self.pipe,
            Middle::Buffer => &mut self.buffer,
        }
    }
}
