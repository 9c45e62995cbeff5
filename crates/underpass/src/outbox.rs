//! What a socket is still owed, in order: heads that are bytes, and ranges of files.
//!
//! ```text
//!  push ──▶ [ Bytes head │ Range body │ Bytes part head │ Range … ] ──▶ one socket
//! ```
//!
//! Like the transfer it drives for each range it is a state machine without system calls. It
//! decides what leaves together: a small body is read behind its head and both leave in one call;
//! before a large one the head leaves with `MSG_MORE`; and nothing that is followed by nothing
//! ever does, since the kernel would hold it back for 200 ms.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::account::Account;
use crate::drive::perform::Middles;
use crate::endpoint::{Endpoint, Kind, Source, Waits};
use crate::error::{Error, Fault};
use crate::kernel::Kernel;
use crate::limits::{JOINED_BYTES_MAX, SPARE_BYTES_MAX};
use crate::mechanism::Mechanism;
#[cfg(feature = "tokio")]
use crate::plan::Plan;
use crate::plan::Policy;
use crate::shared_file::SharedFile;
use crate::sys::signals::Raised;
use crate::transfer::{Step, Transfer};
use crate::verdict::{Call, Situation, Verdict, Wait, verdict};

/// A range of an open regular file.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<SharedFile>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl FileRange {
    pub(crate) fn source(&self) -> Result<Source<&SharedFile>, Errno> {
        Source::range_of(&*self.file, self.file.end()?, self.offset, self.len)
    }
}

/// Something a socket is owed.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A protocol head: small, and already in memory.
    Bytes(Vec<u8>),
    /// A head with a small body behind it, both in memory: whoever pushes it has read the body, and
    /// knows that it is still that of the file.
    Joined {
        /// Both.
        bytes: Vec<u8>,
        /// How many of them are head. The others count as moved by [`Mechanism::ReadWrite`].
        head: usize,
    },
    /// Payload: never in memory, but for small bodies that are cheaper that way.
    Range(FileRange),
}

impl Piece {
    /// The buffer of a head that a body is being read behind.
    fn joining(&mut self) -> Option<&mut Vec<u8>> {
        if let Piece::Bytes(bytes) = self {
            let bytes = std::mem::take(bytes);
            let head = bytes.len();
            *self = Piece::Joined { bytes, head };
        }
        match self {
            Piece::Joined { bytes, .. } => Some(bytes),
            _ => None,
        }
    }
}

/// What a socket is still owed, in order. It belongs to one socket for as long as it lives.
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    front: Front,
    account: Account,
    pub(crate) beside: Beside,
    spare: Vec<u8>,
    joined_max: JoinedMax,
    /// What the socket is, once a driver has looked.
    pub(crate) sink: Option<Known>,
    /// What the first range's transfer is relayed through, kept between turns.
    pub(crate) middles: Middles,
    /// The first range is known to be in the page cache up to this offset.
    pub(crate) warm_until: u64,
    /// Whether a driver has corked the socket.
    #[cfg(feature = "tokio")]
    pub(crate) cork: Cork,
}

/// What happened beside the payload that the [`Account`] tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Bytes of heads that the socket took.
    pub bytes: u64,
    /// How often a range was not in the page cache and had to be waited for.
    pub cold_reads: u64,
    /// How long that took, with the wait for a thread that reads.
    pub cold_time: Duration,
}

/// How the first range of an outbox is going to leave, as far as that can be said before.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// The mechanisms that will be tried, and why not the others.
    pub plan: Plan,
    /// Whether it leaves with its head.
    pub joining: Joining,
    /// Whether its beginning is in the page cache.
    pub warmth: Warmth,
}

/// Whether a body leaves with its head in one call.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// It is read behind its head.
    Joined,
    /// It leaves on its own.
    Apart,
}

/// Whether a range has to be waited for.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// It is in the page cache.
    Cached,
    /// The disk has to be asked.
    Cold,
}

/// What head and body may come to together, in bytes, to leave in one call.
#[derive(Clone, Copy, Debug)]
struct JoinedMax(u64);

impl Default for JoinedMax {
    fn default() -> Self {
        Self(JOINED_BYTES_MAX)
    }
}

/// Whether packets that aren't full wait for more.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cork {
    /// They leave; nobody knows yet whether waiting would do any good.
    #[default]
    Untried,
    /// They leave, since waiting would do no good.
    Useless,
    /// They wait.
    In,
    /// They leave.
    Out,
}

/// What a driver has found out about the socket, once for all calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) end: Endpoint,
    pub(crate) raised: Option<Raised>,
}

impl Known {
    pub(crate) fn of(end: Endpoint) -> Self {
        let raised = Raised::by(end.kind);
        Self { end, raised }
    }
}

/// What is known of the first piece beyond itself.
#[derive(Debug, Default)]
struct Front {
    /// Bytes of it that are sent.
    sent: usize,
    /// Boxed: most connections, most of the time, have none.
    transfer: Option<Box<Transfer>>,
}

/// Whether more follows at once, so that the kernel may wait with a packet that isn't full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Follows,
    Nothing,
}

/// What has to be done next.
#[derive(Debug)]
pub(crate) enum Due<'a> {
    /// Send these bytes.
    Send(&'a [u8], More),
    /// Read the body behind its head ([`Outbox::load`]).
    Load,
    /// Make a transfer of this range ([`Outbox::begin`]).
    Begin(FileRange),
    /// Make the call that this transfer of this file asks for, through these middles.
    Move(&'a mut Transfer, &'a mut Middles, Arc<SharedFile>),
}

/// What reading a body behind its head came to.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// Some of it, or all.
    Some,
    /// Nothing: this range is not in the page cache.
    #[cfg_attr(
        not(feature = "tokio"),
        expect(dead_code, reason = "the blocking driver waits for the disk")
    )]
    Cold(FileRange),
}

impl Outbox {
    /// Owes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has a body be read behind its head, and leave with it in one call, where both together are
    /// at most so many bytes, instead of [`JOINED_BYTES_MAX`]; 0 for never. As many bytes may be in
    /// memory for as long as a slow peer takes them.
    pub fn joined_bytes_max(mut self, bytes: u64) -> Self {
        self.joined_max = JoinedMax(bytes);
        self
    }

    /// Owes one more piece, after all others. Empty ones are nothing.
    pub fn push(&mut self, piece: Piece) {
        let empty = match &piece {
            Piece::Bytes(bytes) | Piece::Joined { bytes, .. } => bytes.is_empty(),
            Piece::Range(range) => range.len == 0,
        };
        if !empty {
            self.pieces.push_back(piece);
        }
    }

    /// Whether all is sent.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// What has been sent of the ranges, and how, up to now. Heads are not counted.
    pub fn account(&self) -> Account {
        let mut account = self.account.clone();
        if let Some(transfer) = &self.front.transfer {
            account.add(transfer.account());
        }
        account
    }

    /// Bytes that the socket took since account and [`Beside`] began, heads and ranges.
    pub fn sent_bytes(&self) -> u64 {
        let transfer = self.front.transfer.as_ref();
        let under_way = transfer.map_or(0, |transfer| transfer.account().bytes());
        self.beside.bytes + self.account.bytes() + under_way
    }

    /// The account up to now, and a new one begins: for those who count per answer.
    pub fn take_account(&mut self) -> Account {
        let mut account = std::mem::take(&mut self.account);
        if let Some(transfer) = &mut self.front.transfer {
            account.add(&transfer.take_account());
        }
        account
    }

    /// What happened beside the payload up to now, and a new count begins.
    pub fn take_beside(&mut self) -> Beside {
        std::mem::take(&mut self.beside)
    }

    /// What is still owed, in order. Of the first piece a part may have been sent.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    /// Has something added to the first piece, if that has a head and nothing of it has been sent.
    /// What is added is head, and goes in front of a body that is in the piece.
    pub fn amend_head(&mut self, amend: impl FnOnce(&mut Vec<u8>)) {
        match self.pieces.front_mut() {
            Some(Piece::Bytes(head)) if self.front.sent == 0 => amend(head),
            Some(Piece::Joined { bytes, head }) if self.front.sent == 0 => {
                let before = bytes.len();
                amend(bytes);
                *head += bytes.len().saturating_sub(before);
            }
            _ => (),
        }
    }

    /// The first range that is owed.
    #[cfg(feature = "tokio")]
    pub(crate) fn first_range(&self) -> Option<&FileRange> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Range(range) => Some(range),
            Piece::Bytes(_) | Piece::Joined { .. } => None,
        })
    }

    /// Whether the body leaves with its head, should that become so much longer.
    #[cfg(feature = "tokio")]
    pub(crate) fn joining(&self, policy: &Policy, longer: u64) -> Joining {
        match policy.allows(Mechanism::ReadWrite) && self.joins_with(longer) {
            true => Joining::Joined,
            false => Joining::Apart,
        }
    }

    /// An empty buffer for the next head, with the room of one that is sent.
    pub fn spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// What has to be done next under the same policy as ever; `None` when nothing is owed.
    pub(crate) fn due(&mut self, policy: &Policy) -> Option<Due<'_>> {
        let joins = policy.allows(Mechanism::ReadWrite) && self.joins();
        let more = if self.pieces.len() > 1 {
            More::Follows
        } else {
            More::Nothing
        };
        match self.pieces.front()? {
            Piece::Bytes(_) | Piece::Joined { .. } if joins => Some(Due::Load),
            Piece::Bytes(bytes) | Piece::Joined { bytes, .. } => {
                Some(Due::Send(&bytes[self.front.sent..], more))
            }
            Piece::Range(range) => match &mut self.front.transfer {
                Some(transfer) => Some(Due::Move(
                    transfer,
                    &mut self.middles,
                    Arc::clone(&range.file),
                )),
                None => Some(Due::Begin(range.clone())),
            },
        }
    }

    /// Whether the first two pieces are a head and a body that leave in one call.
    fn joins(&self) -> bool {
        self.joins_with(0)
    }

    fn joins_with(&self, longer: u64) -> bool {
        let Some(Piece::Range(body)) = self.pieces.get(1) else {
            return false;
        };
        let Some(Piece::Bytes(head) | Piece::Joined { bytes: head, .. }) = self.pieces.front()
        else {
            return false;
        };
        // While a body is being read, what the head gains the body loses: the answer stays.
        let joined = (head.len() as u64 + longer).saturating_add(body.len);
        self.front.sent == 0 && joined <= self.joined_max.0
    }

    /// Reads the body behind its head, where [`Due::Load`] was due, by one call of `read`, which
    /// may answer `None`: not without blocking.
    pub(crate) fn load(
        &mut self,
        read: impl FnOnce(&SharedFile, &mut [u8], u64) -> Option<Result<usize, Errno>>,
    ) -> Result<Loaded, Error> {
        let Some(Piece::Range(range)) = self.pieces.get(1).cloned() else {
            return Ok(Loaded::Some);
        };
        let Some(buffer) = self.pieces.front_mut().and_then(Piece::joining) else {
            return Ok(Loaded::Some);
        };
        let start = buffer.len();
        buffer.resize(start + usize::try_from(range.len).unwrap_or(0), 0);
        let result = read(&range.file, &mut buffer[start..], range.offset);
        buffer.truncate(start + result.and_then(Result::ok).unwrap_or(0));
        let Some(result) = result else {
            return Ok(Loaded::Cold(range));
        };
        self.loaded(result.map(|read| read as u64))?;
        Ok(Loaded::Some)
    }

    fn loaded(&mut self, result: Result<u64, Errno>) -> Result<(), Error> {
        self.account.called(Mechanism::ReadWrite);
        match verdict(Call::FillBuffer, result, &self.situation()) {
            Verdict::Moved(bytes) => self.shorten_body(bytes),
            Verdict::Again => (),
            Verdict::Ended => return Err(self.error(Fault::Truncated, None)),
            Verdict::Fatal(fault) => return Err(self.error(fault, result.err())),
            _ => return Err(self.error(Fault::Source, result.err())),
        }
        Ok(())
    }

    fn shorten_body(&mut self, bytes: u64) {
        let Some(Piece::Range(range)) = self.pieces.get_mut(1) else {
            return;
        };
        range.offset += bytes;
        range.len = range.len.saturating_sub(bytes);
        if range.len == 0 {
            self.pieces.remove(1);
        }
    }

    /// So many bytes of the head were sent, or why not.
    pub(crate) fn sent(&mut self, result: Result<u64, Errno>) -> Result<Option<Wait>, Error> {
        if matches!(self.pieces.front(), Some(Piece::Joined { .. })) {
            self.account.called(Mechanism::ReadWrite);
        }
        match verdict(Call::DrainBuffer, result, &self.situation()) {
            Verdict::Moved(bytes) => self.advance(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Verdict::Wait(wait) => return Ok(Some(wait)),
            Verdict::Again => (),
            Verdict::Fatal(fault) => return Err(self.error(fault, result.err())),
            _ => return Err(self.error(Fault::Sink, result.err())),
        }
        Ok(None)
    }

    fn advance(&mut self, bytes: usize) {
        let (total, payload_from) = match self.pieces.front() {
            Some(Piece::Bytes(bytes)) => (bytes.len(), bytes.len()),
            Some(Piece::Joined { bytes, head }) => (bytes.len(), *head),
            _ => return,
        };
        let sent = self.front.sent;
        self.front.sent = sent.saturating_add(bytes).min(total);
        let payload = self.front.sent.max(payload_from) - sent.max(payload_from);
        self.account.moved(Mechanism::ReadWrite, payload as u64);
        self.beside.bytes += (self.front.sent - sent - payload) as u64;
        if self.front.sent == total {
            self.pop();
        }
    }

    fn pop(&mut self) {
        self.front = Front::default();
        self.warm_until = 0;
        if let Some(Piece::Bytes(mut bytes) | Piece::Joined { mut bytes, .. }) =
            self.pieces.pop_front()
        {
            bytes.clear();
            if bytes.capacity() <= SPARE_BYTES_MAX {
                self.spare = bytes;
            }
        }
    }

    /// The offset at which the first range ends; 0 where the first piece is none.
    #[cfg(feature = "tokio")]
    pub(crate) fn range_end(&self) -> u64 {
        match self.pieces.front() {
            Some(Piece::Range(range)) => range.offset + range.len,
            _ => 0,
        }
    }

    /// The transfer of the first range, made from its descriptor.
    pub(crate) fn begin(&mut self, transfer: Transfer) {
        self.front.transfer = Some(Box::new(transfer));
    }

    /// What the range's transfer made of its last result.
    pub(crate) fn stepped(&mut self, step: Step, kernel: &Kernel) -> Result<(), Error> {
        let over = matches!(step, Step::Done | Step::Failed)
            || self
                .front
                .transfer
                .as_ref()
                .is_some_and(|transfer| transfer.next_op().is_none());
        if !over {
            return Ok(());
        }
        let Some(transfer) = self.front.transfer.take() else {
            return Ok(());
        };
        std::mem::take(&mut self.middles).give_back(kernel, transfer.held());
        match transfer.finish() {
            Ok(account) => {
                self.account.add(&account);
                self.pop();
                Ok(())
            }
            Err(mut error) => {
                self.account.add(&error.account);
                *error.account = self.account.clone();
                Err(error)
            }
        }
    }

    /// A call beside the payload failed; what was sent stays told.
    pub(crate) fn failed(&self, errno: Errno) -> Error {
        Error {
            account: Box::new(self.account.clone()),
            ..Error::of_call(errno)
        }
    }

    fn situation(&self) -> Situation {
        Situation {
            source: Kind::File,
            sink: self.sink.map_or(Kind::Tcp, |known| known.end.kind),
            source_waits: Waits::Blocks,
            sink_waits: self.sink.map_or(Waits::Polls, |known| known.end.waits),
            done: self.account.bytes(),
        }
    }

    fn error(&self, fault: Fault, errno: Option<Errno>) -> Error {
        let mechanism = Some(Mechanism::ReadWrite);
        Error {
            fault,
            mechanism,
            errno,
            lost: 0,
            account: Box::new(self.account.clone()),
        }
    }
}
