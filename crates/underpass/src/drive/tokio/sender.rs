//! Sends the contents of an outbox.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tokio::io::Interest;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::cork::Cork;
use super::residency;
use super::stream::{AlwaysReady, Stream, attempt, ready, send_parts};
use super::transfer::StreamTransfer;
use crate::drive::perform::raised_by;
use crate::kernel::Kernel;
use crate::outbox::buffered::Gathered;
use crate::outbox::{Due, FileRange, Joining, Loaded, MsgMore, Outbox};
use crate::plan::{Plan, Policy};
use crate::probe::source_end;
use crate::shared_file::SharedFile;
use crate::sys::UnignoredSignal;
use crate::transfer::Step;
use crate::transfer::op::Op;
use crate::vocabulary::account::Mechanism;
use crate::vocabulary::endpoint::{Endpoint, EndpointKind, Sink, Waits};
use crate::vocabulary::error::{Error, Fault};
use crate::vocabulary::limits::{BUFFER_BYTES, CORKED_BYTES_MIN, READ_AHEAD_BYTES};

/// The state of the outbox after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More is owed. Other tasks have had a chance to run.
    More,
    /// Nothing is owed.
    Empty,
}

/// A prediction of how the first range of an outbox will leave.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Forecast {
    /// The mechanisms that will be tried, and the reasons against the others.
    pub plan: Plan,
    /// Whether it leaves with its head.
    pub joining: Joining,
    /// Whether its beginning is in the page cache.
    pub residency: Residency,
}

/// Whether a range is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// It is in the page cache.
    Cached,
    /// It must be read from the disk.
    Cold,
}

/// Sends the contents of an [`Outbox`] to one socket, in turns.
///
/// Between two turns it keeps the facts about the socket, its cork, and the transfer of the first
/// range with its pipe or buffer. Without a range in progress, that is some 64 bytes.
///
/// ```
/// use underpass::drive::tokio::{Sender, Turn};
/// use underpass::limits::TURN_BYTES_MAX;
/// use underpass::{FileRange, Kernel, Outbox, Piece, Policy, SharedFile};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let kernel = Kernel::probe();
/// let (socket, _peer) = tokio::net::TcpListener::bind("[::]:4000").await?.accept().await?;
/// let file = std::fs::File::open("big.iso")?;
/// let len = file.metadata()?.len();
///
/// let mut outbox = Outbox::new();
/// outbox.push(Piece::Bytes(format!("{len}\n").into_bytes()));
/// let file = SharedFile::new(file.into());
/// outbox.push(Piece::Range(FileRange { file, offset: 0, len }));
///
/// let (mut sender, policy) = (Sender::new(), Policy::default());
/// while sender.turn(&mut outbox, &socket, &kernel, &policy, TURN_BYTES_MAX).await? == Turn::More {
///     // Other connections have had their turns; a server looks at its deadlines here.
/// }
/// println!("{}", outbox.take_account());
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Sender {
    /// `None` until a range is sent; boxed since connections that only send bytes never need it.
    socket: Option<Box<SocketState>>,
    /// The caller shuts the socket down when everything is sent.
    is_last: bool,
}

/// The facts about the socket that ranges need, queried once for all calls.
#[derive(Debug)]
struct SocketState {
    end: Endpoint,
    raised: Option<UnignoredSignal>,
    cork: Cork,
    /// Boxed: most connections, most of the time, have no range in progress.
    range: Option<Box<RangeTransfer>>,
}

/// The transfer of the first range of an outbox.
#[derive(Debug)]
struct RangeTransfer {
    file: Arc<SharedFile>,
    transfer: StreamTransfer,
    /// The file is known to be in the page cache up to this offset.
    resident_until: u64,
}

/// The result of one call for the first range.
enum Moved {
    /// The socket took payload.
    Some,
    /// The call moved no payload.
    Nothing,
    /// The socket is full.
    Blocked,
}

impl Forecast {
    /// Predicts how the first range of an outbox will leave through a sink known only by its kind,
    /// as by [`gather`]; otherwise as [`Sender::forecast`].
    pub fn through(
        sink: EndpointKind,
        outbox: &Outbox,
        (kernel, policy): (&Kernel, &Policy),
        longer: u64,
    ) -> Option<Forecast> {
        Forecast::of(outbox, Sink::sample(sink).end, kernel, policy, longer)
    }

    fn of(
        outbox: &Outbox,
        end: Endpoint,
        kernel: &Kernel,
        policy: &Policy,
        longer: u64,
    ) -> Option<Forecast> {
        let range = outbox.first_range()?;
        let source = range.source().ok()?;
        let len = range.len.min(READ_AHEAD_BYTES);
        Some(Forecast {
            plan: kernel.plan(&source, &Sink::of((), end), policy),
            joining: outbox.joining(policy, longer),
            residency: match residency::is_cached(&*range.file, range.offset, len) {
                true => Residency::Cached,
                false => Residency::Cold,
            },
        })
    }
}

impl Sender {
    /// Creates a sender for a socket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces that the caller shuts down or closes the socket as soon as the outbox is empty:
    /// the rest then leaves with the end of the stream, in one packet, and not before.
    pub fn end_follows(&mut self) {
        self.is_last = true;
    }

    /// Sends the contents of an outbox, at most one turn's worth: `bytes_max` bytes of one range
    /// ([`TURN_BYTES_MAX`](crate::limits::TURN_BYTES_MAX) if few connections share the event loop).
    ///
    /// Waits until the socket accepts data, and until the next piece of a cold file is in the page
    /// cache. A server checks its deadlines between two turns. Cancel safe: sent bytes are removed
    /// from the outbox, and a later turn continues. Use the same socket and policy in all turns.
    ///
    /// A TCP socket is corked (`TCP_CORK`, tcp(7)) before a large range and its head, and between
    /// turns: no call ends in a nearly empty packet. If bbr paces the socket, only very large
    /// ranges are corked; if the peer is also on this machine, turns are short and the bytes
    /// buffered in the socket are limited (`TCP_NOTSENT_LOWAT`) from the first large range on. The
    /// turn that empties the outbox uncorks, unless the [end follows](Sender::end_follows); if none
    /// does, the kernel does after 200 milliseconds.
    ///
    /// # Errors
    /// [`Error`]: the outbox and the connection cannot be used further.
    pub async fn turn<S: Stream>(
        &mut self,
        outbox: &mut Outbox,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let turn = self.scheduled_turn(outbox, sink, kernel, policy, bytes_max);
        let turned = turn.await?;
        if turned == Turn::More {
            // Yielding wakes tasks in reverse order: twice, to run after all others.
            ::tokio::task::yield_now().await;
            ::tokio::task::yield_now().await;
        }
        Ok(turned)
    }

    /// Does the same for a caller that schedules its turns: between them other tasks run only if it
    /// yields.
    ///
    /// # Errors
    /// As [`turn`](Sender::turn).
    pub async fn scheduled_turn<S: Stream>(
        &mut self,
        outbox: &mut Outbox,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        if let Some(range) = outbox.first_range() {
            self.cork(sink, range.len);
        }
        for calls in 0_u64.. {
            if calls > 0 {
                // Many small parts, as in a response with ranges, must not keep other tasks waiting
                // either.
                ::tokio::task::consume_budget().await;
            }
            match outbox.due(policy) {
                None => break,
                Some(Due::Send(parts, more)) => {
                    let flags = send_flags(more, self.is_last);
                    let len = parts.map(|part| part.len() as u64).iter().sum();
                    let send = || send_parts(sink.descriptor(), parts, flags);
                    let sent = attempt(sink, Interest::WRITABLE, len, send);
                    let waits = match sent {
                        Some((result, _)) => outbox.sent(result, Waits::Polls)?.is_some(),
                        None => true,
                    };
                    if waits {
                        ready(sink, Interest::WRITABLE).await?;
                    }
                }
                Some(Due::Load) => load_behind(outbox).await?,
                Some(Due::Range(range)) => {
                    match self.prepare(range, sink, kernel, policy, bytes_max).await {
                        Ok(Some(span)) => outbox.waited_for_disk(span),
                        Ok(None) => (),
                        Err(errno) => outbox.ended(Err(errno.into()))?,
                    }
                    match self.move_on(outbox, sink, kernel)? {
                        Moved::Some => break,
                        Moved::Nothing => (),
                        Moved::Blocked => {
                            if let Some(socket) = &self.socket {
                                socket.cork.push(sink);
                            }
                            ready(sink, Interest::WRITABLE).await?;
                        }
                    }
                }
            }
        }
        if outbox.is_empty() {
            if let (Some(socket), false) = (&mut self.socket, self.is_last) {
                socket.cork.pull(sink);
            }
            return Ok(Turn::Empty);
        }
        self.cork(sink, CORKED_BYTES_MIN);
        Ok(Turn::More)
    }

    /// Returns the bytes that the socket took in the latest turn of a range, if that left it full:
    /// a turn started before the event loop runs sends nothing, and waits for room.
    pub fn filled_by(&self) -> Option<u64> {
        self.socket.as_ref()?.range.as_ref()?.transfer.filled_by
    }

    /// Predicts how the first range of an outbox will leave; `None` if it has no range. `longer` is
    /// the number of bytes its head will grow until then. Makes a few system calls; none waits for
    /// the disk.
    pub fn forecast<S: Stream>(
        &self,
        outbox: &Outbox,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
        longer: u64,
    ) -> Option<Forecast> {
        let end = match &self.socket {
            Some(socket) => socket.end,
            None => stream_end(sink).ok()?,
        };
        Forecast::of(outbox, end, kernel, policy, longer)
    }

    /// Corks the socket if that pays for `owed` bytes.
    fn cork<S: Stream>(&mut self, sink: &S, owed: u64) {
        if owed >= CORKED_BYTES_MIN
            && let Ok(socket) = self.socket(sink)
        {
            socket.cork.put_in(sink, socket.end.kind, owed);
        }
    }

    /// Queries the socket, the first time.
    fn socket<S: Stream>(&mut self, sink: &S) -> Result<&mut SocketState, Errno> {
        match &mut self.socket {
            Some(socket) => Ok(socket),
            none => Ok(none.insert(Box::new(SocketState::of(sink)?))),
        }
    }

    /// Starts or continues the transfer of the range that is due, and waits until its next bytes
    /// are in the page cache. Returns the time spent waiting for the disk, if any.
    async fn prepare<S: Stream>(
        &mut self,
        range: &FileRange,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
        bytes_max: u64,
    ) -> Result<Option<Duration>, Errno> {
        let socket = self.socket(sink)?;
        let moving = match &mut socket.range {
            Some(moving) if moving.continues(range) => moving,
            other => {
                let (end, raised) = (socket.end, socket.raised);
                let moving = RangeTransfer::new(range, (end, raised), kernel, policy)?;
                other.insert(Box::new(moving))
            }
        };
        let bytes_max = bytes_max.min(socket.cork.turn_bytes_max());
        moving.transfer.machine.limit_calls(bytes_max);
        Ok(moving.make_resident(range).await)
    }

    /// Makes the next call for the range in progress.
    fn move_on<S: Stream>(
        &mut self,
        outbox: &mut Outbox,
        sink: &S,
        kernel: &Kernel,
    ) -> Result<Moved, Error> {
        let socket = self.socket.as_deref_mut();
        let range = socket.and_then(|socket| socket.range.as_deref_mut());
        let Some(RangeTransfer { file, transfer, .. }) = range else {
            return Ok(Moved::Nothing);
        };
        let step = transfer.step(&AlwaysReady(file.as_fd()), sink, kernel);
        let moved = transfer.machine.take_account();
        outbox.moved(&moved);
        if transfer.machine.next_op().is_none() {
            self.end_range(outbox, kernel)?;
        }
        Ok(match step {
            Some(Step::Wait(_)) => Moved::Blocked,
            _ if moved.bytes() > 0 => Moved::Some,
            _ => Moved::Nothing,
        })
    }

    /// Ends the transfer.
    fn end_range(&mut self, outbox: &mut Outbox, kernel: &Kernel) -> Result<(), Error> {
        let socket = self.socket.as_deref_mut();
        let Some(moving) = socket.and_then(|socket| socket.range.take()) else {
            return Ok(());
        };
        outbox.ended(moving.transfer.finish(kernel))
    }
}

impl SocketState {
    fn of<S: Stream>(socket: &S) -> Result<Self, Errno> {
        let end = stream_end(socket)?;
        Ok(Self {
            end,
            raised: raised_by(end.kind),
            cork: Cork::default(),
            range: None,
        })
    }
}

impl RangeTransfer {
    /// Starts a transfer to a socket; `raised` is the signal that calls to it may raise.
    fn new(
        range: &FileRange,
        (end, raised): (Endpoint, Option<UnignoredSignal>),
        kernel: &Kernel,
        policy: &Policy,
    ) -> Result<Self, Errno> {
        let (source, sink) = (range.source()?, Sink::of((), end));
        let plan = kernel.plan(&source, &sink, policy);
        Ok(Self {
            file: Arc::clone(&range.file),
            transfer: StreamTransfer::new(&source, &sink, plan, raised),
            resident_until: 0,
        })
    }

    /// Returns whether this range is the rest of the transfer: another driver may have moved some.
    fn continues(&self, range: &FileRange) -> bool {
        Arc::ptr_eq(&self.file, &range.file) && self.transfer.machine.is_at(range.offset, range.len)
    }

    /// Reads the next bytes of the range into the page cache, if they are missing: those of the
    /// next call and some more, so that one query serves many calls. A recent query by another
    /// connection is not repeated. Returns the time spent waiting for the disk.
    async fn make_resident(&mut self, range: &FileRange) -> Option<Duration> {
        let (from, len) = self.transfer.machine.next_op().and_then(Op::reads)?;
        if from + len <= self.resident_until {
            return None;
        }
        let range_end = range.offset + range.len;
        let len = READ_AHEAD_BYTES
            .min(range_end.saturating_sub(from))
            .max(len);
        let (until, file) = (from + len, &self.file);
        let mut waited = None;
        if !file.was_cached(from, until, Instant::now()) {
            if !residency::is_cached(file, from, len) {
                // Boxed: it is rare, and every sender's future would reserve space for it.
                waited = Some(Box::pin(wait_for_disk(file, from, len)).await);
            }
            file.is_cached(from, until, Instant::now());
        }
        self.resident_until = until;
        waited
    }
}

/// Queries a stream. Pipes and devices are not streams: waiting for one of two ends, both of which
/// may be the reason for an EAGAIN, takes more than this driver knows about them.
pub(super) fn stream_end<S: Stream>(stream: &S) -> Result<Endpoint, Errno> {
    let end = source_end(stream.descriptor())?;
    match end.kind.is_socket() || end.kind == EndpointKind::Other {
        true => Ok(end),
        false => Err(Errno::NOTSOCK),
    }
}

fn send_flags(more: MsgMore, is_last: bool) -> SendFlags {
    match (more, is_last) {
        (MsgMore::Unset, false) => SendFlags::NOSIGNAL,
        _ => SendFlags::NOSIGNAL | SendFlags::MORE,
    }
}

/// Returns the first `len` bytes of a file, for [`Piece::Content`](crate::Piece::Content); `None`
/// if that would have to wait for the disk, if there are fewer, or if reading fails: the driver
/// that sends the range meets the error again.
///
/// Does not block.
pub fn read_cached(file: &SharedFile, len: usize) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    while content.len() < len {
        let start = content.len();
        content.resize(len.min(start + BUFFER_BYTES), 0);
        let read = residency::read_cached(file, &mut content[start..], start as u64)?.ok()?;
        content.truncate(start + read);
        if read == 0 {
            return None;
        }
    }
    Some(content)
}

/// Reads a small body to follow its head: immediately if cached, otherwise on another thread.
async fn load_behind(outbox: &mut Outbox) -> Result<(), Error> {
    if let Loaded::Cold(range) = outbox.load(residency::read_cached)? {
        let span = Box::pin(wait_for_disk(&range.file, range.offset, range.len)).await;
        outbox.waited_for_disk(span);
        outbox.load(|file, buffer, from| Some(rustix::io::pread(file, buffer, from)))?;
    }
    Ok(())
}

/// Reads the contents of an outbox into the buffer of a driver, without waiting for the disk:
/// [`Outbox::gather`] with the calls of this driver. A range that is [`Gathered::Cold`] is waited
/// for by [`await_disk`].
///
/// # Errors
/// As [`Outbox::gather`]; [`Fault::Refused`](crate::Fault::Refused) if the policy forbids
/// [`Mechanism::ReadWrite`](crate::Mechanism::ReadWrite) and a range is owed.
pub fn gather(
    outbox: &mut Outbox,
    policy: &Policy,
    skipped: u64,
    buffer: &mut [u8],
) -> Result<Gathered, Error> {
    let has_range = || outbox.first_range().is_some();
    if !policy.allows(Mechanism::ReadWrite) && has_range() {
        return Err(outbox.error(Fault::Refused, None));
    }
    outbox.gather(skipped, buffer, residency::read_cached)
}

/// Waits until the beginning of a range, up to one read-ahead, is in the page cache.
pub async fn await_disk(outbox: &mut Outbox, range: &FileRange) {
    let len = range.len.min(READ_AHEAD_BYTES);
    let span = wait_for_disk(&range.file, range.offset, len).await;
    outbox.waited_for_disk(span);
}

/// Reads a range into the page cache on another thread. Returns the time that took.
async fn wait_for_disk(file: &Arc<SharedFile>, from: u64, len: u64) -> Duration {
    let start = Instant::now();
    residency::read_ahead(file, from, len).await;
    start.elapsed()
}
