//! The send queue of a socket, in order: protocol heads (bytes) and ranges of files.
//!
//! ```text
//!  push ──▶ [ Bytes head │ Range body │ Bytes part head │ Range … ] ──▶ a driver ──▶ one socket
//! ```
//!
//! An outbox is a queue with its account. It makes no system calls and knows nothing of the socket,
//! whose state is kept by a driver, for instance `drive::tokio::Sender`. The outbox decides which
//! pieces leave together: a small body, or one in memory, leaves with its head in one call; before
//! a large one the head leaves with `MSG_MORE`. The last piece never does, since the kernel would
//! hold it back for 200 ms.

pub(crate) mod buffered;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::plan::Policy;
use crate::shared_file::SharedFile;
use crate::transfer::op::Op;
use crate::transfer::verdict::{Situation, Verdict, Wait, verdict};
use crate::vocabulary::account::{Account, Mechanism};
use crate::vocabulary::endpoint::{EndpointKind, Waits};
use crate::vocabulary::error::{Error, Fault};
use crate::vocabulary::limits::{BUFFER_BYTES, JOINED_BYTES_MAX, SPARE_BYTES_MAX};

/// A range of an open regular file or block device.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<SharedFile>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A piece of a send queue.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A protocol head: small, and already in memory.
    Bytes(Vec<u8>),
    /// Payload in memory, shared and not copied again: the caller has read it and knows that it is
    /// the current content of the file. Leaves with the head before it, and counts as moved by
    /// [`Mechanism::ReadWrite`], which the caller's [`Policy`] should allow: it is not checked.
    Content(Arc<Vec<u8>>),
    /// Payload: never in memory, except for small bodies that are cheaper that way.
    Range(FileRange),
}

impl Piece {
    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.len,
            _ => self.bytes().len() as u64,
        }
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_content(&self) -> bool {
        matches!(self, Self::Content(_))
    }

    /// Returns its bytes; empty if they are not in memory.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Content(content) => content,
            Self::Range(_) => &[],
        }
    }
}

/// The send queue of a socket, in order, and the account of the bytes sent.
///
/// The protocol pushes [`Piece`]s; a driver sends them. The drivers of this crate are in
/// [`drive`](super::drive). A driver of another crate uses one of two interfaces:
///
/// - **By the kernel.** [`due`](Self::due) returns the next step: bytes for `sendmsg(2)`, a small
///   body to read after its head, or a range to move by a [`Transfer`](crate::Transfer). The driver
///   makes the call and records its result: [`sent`](Self::sent), [`load`](Self::load),
///   [`moved`](Self::moved) and [`ended`](Self::ended).
/// - **Through a buffer of the driver**, which encrypts or compresses, for instance.
///   [`unsent`](Self::unsent) lists the pieces owed, and [`gather`](Self::gather) reads as much as
///   the driver has room for. When the socket has taken the result of the first `n` bytes,
///   [`advance`](Self::advance) or [`sent_from_buffer`](Self::sent_from_buffer) records them. Bytes
///   read and not recorded stay owed, so that the account never runs ahead of the socket.
///
/// A driver may be dropped at any time, and another one may continue from the outbox.
///
/// ```
/// use std::os::unix::net::UnixStream;
/// use std::io::{Read, Write};
/// use std::os::unix::fs::FileExt;
/// use underpass::{FileRange, Outbox, Piece, SharedFile, Unsent};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("a"), "the body")?;
/// let file = std::fs::File::open(dir.path().join("a"))?;
/// let mut outbox = Outbox::new();
/// outbox.push(Piece::Bytes(b"head: ".to_vec()));
/// let shared = SharedFile::new(file.try_clone()?.into());
/// outbox.push(Piece::Range(FileRange { file: shared, offset: 0, len: 8 }));
///
/// // A driver with a buffer: all that is owed leaves upside down, in one call.
/// let (mut ours, mut theirs) = UnixStream::pair()?;
/// let mut buffer = Vec::new();
/// for unsent in outbox.unsent(0) {
///     match unsent {
///         Unsent::Bytes(bytes) => buffer.extend_from_slice(bytes),
///         Unsent::Range { offset, len, .. } => {
///             let mut body = vec![0; len as usize];
///             file.read_exact_at(&mut body, offset)?;
///             buffer.extend_from_slice(&body);
///         }
///     }
/// }
/// buffer.iter_mut().for_each(|byte| *byte = !*byte);
/// ours.write_all(&buffer)?;
/// outbox.advance(buffer.len() as u64, 2);
///
/// assert!(outbox.is_empty());
/// assert_eq!(outbox.account().bytes(), 8); // the head is no payload
/// # drop(ours);
/// # let mut got = Vec::new();
/// # theirs.read_to_end(&mut got)?;
/// # assert_eq!(got.iter().map(|byte| !byte).collect::<Vec<_>>(), b"head: the body");
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent, if it has bytes. A range shrinks instead.
    front_sent: usize,
    account: Account,
    stats: SendStats,
    spare: Vec<u8>,
    /// A limit other than [`JOINED_BYTES_MAX`].
    joined_bytes_max: Option<u64>,
}

/// Bytes and waits that are not part of the payload of the [`Account`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendStats {
    /// Bytes of heads that the socket took.
    pub bytes: u64,
    /// Number of waits for a range that was not in the page cache.
    pub cold_reads: u64,
    /// Total time of these waits, including the wait for a thread that reads.
    pub cold_time: Duration,
}

/// Whether a body leaves with its head in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// It is read after its head.
    Joined,
    /// It leaves separately.
    Apart,
}

/// Whether more follows immediately, so that the kernel may hold a packet that isn't full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsgMore {
    /// Another piece follows: send with `MSG_MORE`.
    Set,
    /// Nothing follows.
    Unset,
}

/// The next step of a driver ([`Outbox::due`]).
#[derive(Debug)]
pub enum Due<'a> {
    /// Send these bytes, of which the second slice may be empty, in one call, and record its result
    /// by [`Outbox::sent`].
    Send([&'a [u8]; 2], MsgMore),
    /// Read the body after its head, by [`Outbox::load`].
    Load,
    /// Move this range by a [`Transfer`](crate::Transfer), and record the bytes moved by
    /// [`Outbox::moved`]. Recorded bytes are no longer part of the range that is due next.
    Range(&'a FileRange),
}

/// The result of reading a body after its head.
#[derive(Debug)]
pub enum Loaded {
    /// Some or all of it was read.
    Some,
    /// Nothing was read: this range is not in the page cache.
    Cold(FileRange),
}

impl Outbox {
    /// Returns an empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a range with its head in one call if both together are at most `bytes`, instead of
    /// [`JOINED_BYTES_MAX`]; 0 for never. The body is then read into memory, where it stays until
    /// the peer has taken it.
    pub fn joined_bytes_max(mut self, bytes: u64) -> Self {
        self.joined_bytes_max = Some(bytes);
        self
    }

    /// Appends a piece. Empty pieces are ignored.
    pub fn push(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    /// Returns whether everything is sent.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns whether nothing is owed and nothing was sent since account and [`SendStats`] were
    /// reset: another connection may use it, and its buffers.
    pub fn is_unused(&self) -> bool {
        self.pieces.is_empty()
            && self.stats == SendStats::default()
            && self.account == Account::default()
    }

    /// Returns the account of the ranges sent so far. Heads are not counted.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the bytes that the socket took since account and [`SendStats`] were reset, heads and
    /// ranges.
    pub fn sent_bytes(&self) -> u64 {
        self.stats.bytes.saturating_add(self.account.bytes())
    }

    /// Returns the account so far and starts a new one, for accounts per response.
    pub fn take_account(&mut self) -> Account {
        std::mem::take(&mut self.account)
    }

    /// Returns the statistics so far and resets them.
    pub fn take_send_stats(&mut self) -> SendStats {
        std::mem::take(&mut self.stats)
    }

    /// Returns the pieces still owed, in order. The first one, if it has bytes, may be partly sent;
    /// a range is the rest that is left to send.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    /// Extends the first piece, if that is a head and nothing of it has been sent. Bytes may
    /// change; if the head is shorter afterwards, the change is discarded.
    pub fn amend_head(&mut self, amend: impl FnOnce(&mut Vec<u8>)) {
        if let (Some(Piece::Bytes(head)), 0) = (self.pieces.front_mut(), self.front_sent) {
            let mut amended = head.clone();
            amend(&mut amended);
            if amended.len() >= head.len() {
                *head = amended;
            }
        }
    }

    /// Returns the first range that is owed.
    #[cfg(feature = "tokio")]
    pub(crate) fn first_range(&self) -> Option<&FileRange> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Range(range) => Some(range),
            _ => None,
        })
    }

    /// Returns whether the body leaves with its head, if that becomes longer by `longer` bytes.
    pub(crate) fn joining(&self, policy: &Policy, longer: u64) -> Joining {
        match self.joined_body(longer).is_some() && policy.allows(Mechanism::ReadWrite) {
            true => Joining::Joined,
            false => Joining::Apart,
        }
    }

    fn joined_body(&self, longer: u64) -> Option<&FileRange> {
        let Piece::Bytes(head) = self.pieces.front()? else {
            return None;
        };
        let (read, body) = match (self.pieces.get(1)?, self.pieces.get(2)) {
            (Piece::Range(body), _) => (0, body),
            (Piece::Content(read), Some(Piece::Range(body))) => (read.len(), body),
            _ => return None,
        };
        // Reading the body moves bytes from range to content: the result is the same.
        let bytes = (head.len() as u64).saturating_add(read as u64);
        let joined = bytes.saturating_add(longer).saturating_add(body.len);
        let joined_max = self.joined_bytes_max.unwrap_or(JOINED_BYTES_MAX);
        (self.front_sent == 0 && joined <= joined_max).then_some(body)
    }

    /// Returns an empty buffer for the next head, reusing the capacity of a sent one.
    pub fn spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// Returns the next step of a driver, under the policy that it keeps for the whole outbox;
    /// `None` if nothing is owed.
    pub fn due(&self, policy: &Policy) -> Option<Due<'_>> {
        match self.pieces.front()? {
            Piece::Range(range) => Some(Due::Range(range)),
            _ if self.joining(policy, 0) == Joining::Joined => Some(Due::Load),
            first => {
                let together = self.sent_together();
                let content = self.pieces.get(1).filter(|_| together > 1);
                let more = match self.pieces.len() > together {
                    true => MsgMore::Set,
                    false => MsgMore::Unset,
                };
                let first = &first.bytes()[self.front_sent..];
                Some(Due::Send([first, content.map_or(&[], Piece::bytes)], more))
            }
        }
    }

    /// Returns the number of pieces that leave together: a head and the content after it, or one.
    fn sent_together(&self) -> usize {
        match (self.pieces.front(), self.pieces.get(1)) {
            (Some(Piece::Bytes(_)), Some(Piece::Content(_))) => 2,
            _ => 1,
        }
    }

    /// Reads the body after its head, or the next [`BUFFER_BYTES`] of it, by one call of `read`:
    /// into the buffer, from this offset of the file on. `read` returns `None` if it would block;
    /// then nothing is read, and the driver has the range read into the page cache first. Does
    /// nothing if head and body do not leave together: then [`Due::Load`] is not due.
    ///
    /// # Errors
    /// The body cannot be read, or the file ends before it: the outbox cannot be used further.
    pub fn load(
        &mut self,
        read: impl FnOnce(&SharedFile, &mut [u8], u64) -> Option<Result<usize, Errno>>,
    ) -> Result<Loaded, Error> {
        let Some(range) = self.joined_body(0).cloned() else {
            return Ok(Loaded::Some);
        };
        let mut body = vec![0; range.len.min(BUFFER_BYTES as u64) as usize];
        let Some(result) = read(&range.file, &mut body, range.offset) else {
            return Ok(Loaded::Cold(range));
        };
        self.account.called(Mechanism::ReadWrite);
        let read = self.read(result.map(|read| read.min(body.len()) as u64))?;
        body.truncate(read as usize);
        if read > 0 {
            match self.pieces.get_mut(1) {
                Some(Piece::Content(content)) => Arc::make_mut(content).append(&mut body),
                _ => self.pieces.insert(1, Piece::Content(Arc::new(body))),
            }
            self.pass_range(2, read);
        }
        Ok(Loaded::Some)
    }

    /// Interprets the result of a file read: the bytes read, 0 if it is to be repeated.
    fn read(&self, result: Result<u64, Errno>) -> Result<u64, Error> {
        match verdict(Op::READ, result, &self.situation(Waits::Polls)) {
            Verdict::Moved(bytes) => Ok(bytes),
            Verdict::Again => Ok(0),
            Verdict::Ended => Err(self.error(Fault::Truncated, None)),
            Verdict::Fatal(fault) => Err(self.error(fault, result.err())),
            _ => Err(self.error(Fault::Source, result.err())),
        }
    }

    /// Records the result of the call that sent the bytes due. `waits` is the behaviour of the
    /// socket when it is full. Returns the side that the driver has to wait for.
    ///
    /// # Errors
    /// The socket cannot be written: the outbox cannot be used further.
    pub fn sent(
        &mut self,
        result: Result<u64, Errno>,
        waits: Waits,
    ) -> Result<Option<Wait>, Error> {
        let together = self.sent_together();
        if self.pieces.iter().take(together).any(Piece::is_content) {
            self.account.called(Mechanism::ReadWrite);
        }
        let (mut bytes, wait) = self.written(result, waits)?;
        for _ in 0..together {
            bytes -= self.pass_bytes(bytes);
        }
        Ok(wait)
    }

    /// Interprets the result of a write to the socket: the bytes taken, and the side to wait for.
    fn written(
        &self,
        result: Result<u64, Errno>,
        waits: Waits,
    ) -> Result<(u64, Option<Wait>), Error> {
        match verdict(Op::WRITE, result, &self.situation(waits)) {
            Verdict::Moved(bytes) => Ok((bytes, None)),
            Verdict::Wait(wait) => Ok((0, Some(wait))),
            Verdict::Again => Ok((0, None)),
            Verdict::Fatal(fault) => Err(self.error(fault, result.err())),
            _ => Err(self.error(Fault::Sink, result.err())),
        }
    }

    /// Records the bytes that a transfer of the range due has moved since this was last recorded
    /// ([`Transfer::take_account`](crate::Transfer::take_account)).
    pub fn moved(&mut self, account: &Account) {
        self.account.add(account);
        self.pass_range(0, account.bytes().saturating_add(account.holes));
    }

    /// Records a wait for the disk, for a range that was not in the page cache.
    pub fn waited_for_disk(&mut self, span: Duration) {
        self.stats.cold_reads += 1;
        self.stats.cold_time = self.stats.cold_time.saturating_add(span);
    }

    /// Returns an error of the driver with the account so far. `errno` is that of the failed call,
    /// if any.
    pub fn error(&self, fault: Fault, errno: Option<Errno>) -> Error {
        Error::of_writing(fault, errno, &self.account)
    }

    /// Records how the transfer of a range ended ([`Transfer::finish`](crate::Transfer::finish)),
    /// or that it could not start.
    ///
    /// # Errors
    /// The transfer's error, with the account of this outbox instead of the transfer's.
    pub fn ended(&mut self, outcome: Result<Account, Error>) -> Result<(), Error> {
        match outcome {
            Ok(account) => {
                self.moved(&account);
                Ok(())
            }
            Err(mut error) => {
                self.moved(&error.account);
                *error.account = self.account.clone();
                Err(error)
            }
        }
    }

    /// Counts at most `most` further bytes of the first piece, which has bytes, as sent. Returns
    /// the number of bytes counted.
    fn pass_bytes(&mut self, most: u64) -> u64 {
        let Some(piece @ (Piece::Bytes(_) | Piece::Content(_))) = self.pieces.front() else {
            return 0;
        };
        let (left, is_content) = (piece.bytes().len() - self.front_sent, piece.is_content());
        let passed = usize::try_from(most).unwrap_or(usize::MAX).min(left);
        match is_content {
            true => self.account.moved(Mechanism::ReadWrite, passed as u64),
            false => self.stats.bytes += passed as u64,
        }
        self.front_sent += passed;
        if passed == left {
            self.pop();
        }
        passed as u64
    }

    /// Takes `bytes` off the piece at `place`, if that is a range.
    fn pass_range(&mut self, place: usize, bytes: u64) {
        if let Some(Piece::Range(range)) = self.pieces.get_mut(place) {
            range.offset = range.offset.saturating_add(bytes);
            range.len = range.len.saturating_sub(bytes);
            if range.len == 0 {
                self.pieces.remove(place);
            }
        }
    }

    fn pop(&mut self) {
        self.front_sent = 0;
        if let Some(Piece::Bytes(mut bytes)) = self.pieces.pop_front() {
            bytes.clear();
            // The pieces after it may take long, and keep the buffer as long.
            if bytes.capacity() <= SPARE_BYTES_MAX && self.pieces.iter().all(Piece::is_content) {
                self.spare = bytes;
            }
        }
    }

    fn situation(&self, sink_waits: Waits) -> Situation {
        Situation {
            source: EndpointKind::File,
            sink: EndpointKind::Tcp,
            source_waits: Waits::Blocks,
            sink_waits,
            done: self.account.bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
