//! The reader: a state machine that is fed the bytes of headers.
//!
//! ```text
//!            ┌──────────── extension (x, g, L, K) ◄───┐
//!            ▼                                         │
//!  ──► header block ─┬─► old sparse blocks ─┐          │
//!        ▲  │        ├─► map of 1.0 ────────┼─► Member ─► content ─► padding
//!        │  │        └──────────────────────┘                           │
//!        │  └─► zero block ─► zero block ─► End ─► zeros                │
//!        └──────────────────────────────────────────────────────────────┘
//! ```

mod pending;

use crate::chain::HeaderChain;
use crate::error::{Error, TarFault};
use crate::header::{BLOCK, ReceivedHeader};
use crate::limits::EXTENSION_BYTES_MAX;
use crate::member::{Member, MemberKind};
use crate::pax::{PaxRecords, PaxScope};
use crate::read::pending::{Extensions, MapPlace, Pending};
use crate::sparse::{SparseMapReader, add_old};

/// Reads a tar stream.
///
/// The caller [feeds](TarReader::feed) bytes, moves content itself, and reports it by
/// [`advance`](TarReader::advance).
#[derive(Debug)]
pub struct TarReader {
    state: ReadState,
    /// Bytes of the stream so far.
    offset: u64,
    /// Offset of the first header of the member in progress.
    start: u64,
    /// Bytes collected for the state, and how many it wants.
    collected: Vec<u8>,
    wanted: usize,
    extensions: Extensions,
    defaults: PaxRecords,
    chain: HeaderChain,
    /// The hash of the headers of the member in progress.
    hasher: blake3::Hasher,
    /// Content of the present member that is still to come, and its padding.
    left: u64,
    padding: usize,
    cut: Option<(u64, HeaderChain)>,
}

#[derive(Debug)]
enum ReadState {
    Header,
    Extension(u8),
    OldSparse(Box<Pending>),
    Map(Box<Pending>, SparseMapReader),
    Content,
    Padding,
    ZeroBlock,
    Ended,
    Failed(Error),
}

/// What the reader has found.
#[derive(Debug)]
pub enum TarEvent {
    /// All bytes were taken. At most this many more may be fed without any being content.
    More(usize),
    /// A member begins. Its content follows, if it has any.
    Member(Box<ReadMember>),
    /// This many bytes of content come next, which are not fed.
    Content(u64),
    /// The archive has ended. Zeros may follow, which are fed, too.
    End,
}

/// A member with its place in the stream.
#[derive(Clone, Debug)]
pub struct ReadMember {
    /// The member.
    pub member: Member,
    /// Offset of its first header in the stream, in bytes.
    pub offset: u64,
    /// Bytes of its content before the part in this stream: 0, except in the first member of a
    /// continued stream.
    pub present: u64,
    /// The hash over all headers so far, its own included.
    pub chain: HeaderChain,
    /// The keys of its pax records that are not read: vendors' extensions. Not listed are access
    /// and change times and comments.
    pub ignored: Vec<Vec<u8>>,
}

impl Default for TarReader {
    fn default() -> TarReader {
        TarReader::new()
    }
}

impl TarReader {
    /// Returns a reader of a stream from its start.
    pub fn new() -> TarReader {
        TarReader::after(HeaderChain::new())
    }

    /// Returns a reader of the rest of a stream, which begins with a header after the members of
    /// `chain`. Global pax headers do not apply across the cut.
    pub fn after(chain: HeaderChain) -> TarReader {
        TarReader {
            state: ReadState::Header,
            offset: 0,
            start: 0,
            collected: Vec::new(),
            wanted: BLOCK,
            extensions: Extensions::default(),
            defaults: PaxRecords::default(),
            hasher: chain.hasher(),
            chain,
            left: 0,
            padding: 0,
            cut: None,
        }
    }

    /// Returns a reader of the rest of a stream that was cut in the content of a member: the
    /// headers of this member are repeated, and lead to the chain `cut`; its content follows from
    /// byte `present` on.
    pub fn within(chain: HeaderChain, cut: HeaderChain, present: u64) -> TarReader {
        TarReader {
            cut: Some((present, cut)),
            ..TarReader::after(chain)
        }
    }

    /// Bytes of the stream so far, content included.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of content of the present member that are still to come.
    pub fn content_left(&self) -> u64 {
        self.left
    }

    /// The hash over the headers of all members so far.
    pub fn chain(&self) -> HeaderChain {
        self.chain
    }

    /// Takes bytes until something is found: returns how many it has taken, and what it has found.
    ///
    /// # Errors
    /// The stream is refused; every later call returns the same error.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, TarEvent), Error> {
        let mut used = 0;
        loop {
            let step = self.step(&bytes[used..]);
            let (taken, event) = step.map_err(|error| self.fail(error))?;
            used += taken;
            self.offset = self.offset.saturating_add(taken as u64);
            if let Some(event) = event {
                return Ok((used, event));
            }
        }
    }

    /// Reports content that the caller has moved.
    ///
    /// # Panics
    /// If it is more than is left.
    pub fn advance(&mut self, bytes: u64) {
        assert!(bytes <= self.left, "content beyond the end of the member");
        self.left -= bytes;
        self.offset = self.offset.saturating_add(bytes);
    }

    /// Reports the end of the stream.
    ///
    /// # Errors
    /// [`TarFault::Truncated`] before the end of the archive, or the former error.
    pub fn finish(&mut self) -> Result<(), Error> {
        match &self.state {
            ReadState::Ended => Ok(()),
            ReadState::Failed(error) => Err(error.clone()),
            _ => Err(self.fail(self.error(Vec::new(), TarFault::Truncated))),
        }
    }

    fn error(&self, path: Vec<u8>, fault: TarFault) -> Error {
        let path = if path.is_empty() {
            self.extensions.path()
        } else {
            path
        };
        Error {
            offset: self.start,
            path,
            fault,
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.collected = Vec::new();
        self.state = ReadState::Failed(error.clone());
        error
    }

    /// Takes bytes for the present state.
    fn step(&mut self, bytes: &[u8]) -> Result<(usize, Option<TarEvent>), Error> {
        match &self.state {
            ReadState::Content if self.left > 0 => {
                return Ok((0, Some(TarEvent::Content(self.left))));
            }
            ReadState::Content | ReadState::Padding => return Ok(self.pad(bytes)),
            ReadState::Ended => return self.after_end(bytes),
            ReadState::Failed(error) => return Err(error.clone()),
            _ => {}
        }
        let taken = bytes.len().min(self.wanted - self.collected.len());
        self.collected.extend_from_slice(&bytes[..taken]);
        if self.collected.len() < self.wanted {
            let more = self.wanted - self.collected.len();
            return Ok((taken, Some(TarEvent::More(more))));
        }
        let mut collected = std::mem::take(&mut self.collected);
        let event = self.complete(&collected)?;
        // A long extension does not keep its memory.
        collected.clear();
        collected.shrink_to(BLOCK);
        self.collected = collected;
        Ok((taken, event))
    }

    /// Skips the padding of a content, and expects a header after it.
    fn pad(&mut self, bytes: &[u8]) -> (usize, Option<TarEvent>) {
        let taken = bytes.len().min(self.padding);
        self.padding -= taken;
        self.state = ReadState::Padding;
        if self.padding > 0 {
            return (taken, Some(TarEvent::More(self.padding)));
        }
        self.expect(ReadState::Header, BLOCK);
        self.start = self.offset.saturating_add(taken as u64);
        self.hasher = self.chain.hasher();
        (taken, None)
    }

    fn after_end(&mut self, bytes: &[u8]) -> Result<(usize, Option<TarEvent>), Error> {
        match bytes.iter().position(|&byte| byte != 0) {
            None => Ok((bytes.len(), Some(TarEvent::End))),
            Some(at) => {
                self.start = self.offset.saturating_add(at as u64);
                Err(self.error(Vec::new(), TarFault::AfterEnd))
            }
        }
    }

    fn expect(&mut self, state: ReadState, wanted: usize) {
        self.state = state;
        self.wanted = wanted;
    }

    /// Interprets what was collected.
    fn complete(&mut self, collected: &[u8]) -> Result<Option<TarEvent>, Error> {
        let state = std::mem::replace(&mut self.state, ReadState::Header);
        let is_zero = || collected.iter().all(|&byte| byte == 0);
        match state {
            ReadState::Header if is_zero() => {
                if !self.extensions.is_empty() {
                    return Err(self.error(Vec::new(), TarFault::StrayExtension));
                }
                self.expect(ReadState::ZeroBlock, BLOCK);
                return Ok(None);
            }
            ReadState::ZeroBlock => {
                if !is_zero() {
                    return Err(self.error(Vec::new(), TarFault::LoneZeroBlock));
                }
                self.state = ReadState::Ended;
                return Ok(Some(TarEvent::End));
            }
            _ => {}
        }
        self.hasher.update(collected);
        match state {
            ReadState::Extension(flag) => self.extension(flag, collected),
            ReadState::OldSparse(pending) => self.old_sparse(pending, collected),
            ReadState::Map(pending, map) => self.map(pending, map, collected),
            _ => self.header(collected),
        }
    }

    fn header(&mut self, block: &[u8]) -> Result<Option<TarEvent>, Error> {
        let plain = |fault| self.error(Vec::new(), fault);
        let block = block.try_into().map_err(|_| plain(TarFault::Checksum))?;
        let header = ReceivedHeader::parse(block).map_err(plain)?;
        let flag = header.flag();
        if matches!(flag, b'x' | b'g' | b'L' | b'K') {
            let size = header.size().map_err(plain)?;
            if size > EXTENSION_BYTES_MAX {
                return Err(plain(TarFault::ExtensionTooLong));
            }
            self.extensions.announce(flag).map_err(plain)?;
            self.extensions.size = size as usize;
            let wanted = (size as usize).next_multiple_of(BLOCK);
            if wanted == 0 {
                return self.extension(flag, &[]);
            }
            self.expect(ReadState::Extension(flag), wanted);
            return Ok(None);
        }
        let extensions = std::mem::take(&mut self.extensions);
        let pending = Pending::new(&header, extensions, &self.defaults);
        let pending = pending.map_err(|(path, fault)| self.error(path, fault))?;
        let pending = Box::new(pending);
        match pending.map {
            MapPlace::Blocks { more: true } => {
                self.expect(ReadState::OldSparse(pending), BLOCK);
                Ok(None)
            }
            MapPlace::Content => self.more_map(pending, SparseMapReader::default()),
            MapPlace::Blocks { more: false } | MapPlace::Known => self.member(pending),
        }
    }

    fn extension(&mut self, flag: u8, collected: &[u8]) -> Result<Option<TarEvent>, Error> {
        let text = &collected[..self.extensions.size.min(collected.len())];
        let added = match flag {
            b'g' => PaxRecords::parse(text, PaxScope::Global)
                .map(|records| self.defaults.replace_by(records)),
            _ => self.extensions.add(flag, text),
        };
        added.map_err(|fault| self.error(Vec::new(), fault))?;
        self.expect(ReadState::Header, BLOCK);
        Ok(None)
    }

    fn old_sparse(
        &mut self,
        mut pending: Box<Pending>,
        block: &[u8],
    ) -> Result<Option<TarEvent>, Error> {
        // 21 extents, and whether another block follows.
        let ended = add_old(&mut pending.extents, &block[..504]);
        let ended = ended.map_err(|fault| self.error(pending.path(), fault))?;
        match (block[504] != 0, ended) {
            (true, true) => Err(self.error(pending.path(), TarFault::SparseMap)),
            (true, false) => {
                self.expect(ReadState::OldSparse(pending), BLOCK);
                Ok(None)
            }
            (false, _) => self.member(pending),
        }
    }

    /// Waits for the next block of a map, which is a part of the content.
    fn more_map(
        &mut self,
        pending: Box<Pending>,
        map: SparseMapReader,
    ) -> Result<Option<TarEvent>, Error> {
        if map.read.saturating_add(BLOCK as u64) > pending.stored {
            return Err(self.error(pending.path(), TarFault::SparseMap));
        }
        self.expect(ReadState::Map(pending, map), BLOCK);
        Ok(None)
    }

    fn map(
        &mut self,
        mut pending: Box<Pending>,
        mut map: SparseMapReader,
        block: &[u8],
    ) -> Result<Option<TarEvent>, Error> {
        let extents = map.add(block);
        match extents.map_err(|fault| self.error(pending.path(), fault))? {
            None => self.more_map(pending, map),
            Some(extents) => {
                pending.stored -= map.read;
                pending.extents = extents;
                self.member(pending)
            }
        }
    }

    fn member(&mut self, pending: Box<Pending>) -> Result<Option<TarEvent>, Error> {
        let stored = pending.stored;
        // With room for headers.
        let end = self
            .offset
            .checked_add(stored)
            .and_then(|end| end.checked_add(1 << 20));
        let checked = match end.is_some_and(|end| i64::try_from(end).is_ok()) {
            true => pending.check(),
            false => Err(TarFault::SizeOverflow),
        };
        checked.map_err(|fault| self.error(pending.path(), fault))?;
        let (member, ignored) = pending.finish();
        self.chain = HeaderChain::of(&self.hasher);
        let present = match self.cut.take() {
            Some((present, chain)) if chain == self.chain && present <= stored => present,
            Some(_) => return Err(self.error(member.path, TarFault::Changed)),
            None => 0,
        };
        self.left = stored - present;
        self.padding = crate::write::padding(stored).len();
        self.state = ReadState::Content;
        let read = ReadMember {
            member,
            offset: self.start,
            present,
            chain: self.chain,
            ignored,
        };
        Ok(Some(TarEvent::Member(Box::new(read))))
    }
}

impl MemberKind {
    /// Whether content may follow.
    pub(crate) fn has_content(&self) -> bool {
        match self {
            MemberKind::File { .. } | MemberKind::SparseFile { .. } | MemberKind::Other { .. } => {
                true
            }
            MemberKind::Folder
            | MemberKind::Symlink(_)
            | MemberKind::HardLink(_)
            | MemberKind::CharacterDevice
            | MemberKind::BlockDevice
            | MemberKind::Fifo => false,
        }
    }
}

#[cfg(test)]
mod tests;
