//! The driver for Tokio's sockets.
//!
//! A call is made only while the socket is believed to be ready, and inside Tokio's `try_io`, so
//! that an EAGAIN and the readiness it contradicts are seen together. Files never become ready:
//! whatever of a source file is not in the page cache is read ahead on the runtime's blocking
//! threads before the call, so that one cold file does not stall the connections beside it.

mod warm;

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ::tokio::io::Interest;
use ::tokio::net::{TcpStream, UnixStream};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::drive::blocking::{Relayed, end_direction};
use crate::drive::perform::{Ends, RelayBuffers, perform};
use crate::drive::signals::raised_by;
use crate::kernel::Kernel;
use crate::outbox::{Due, FileRange, Joining, Loaded, More, Outbox, Piece};
use crate::plan::Plan;
use crate::plan::policy::Policy;
use crate::shared_file::SharedFile;
use crate::sys::signals::{Raised, Shield};
use crate::transfer::op::Op;
use crate::transfer::{Step, Transfer};
use crate::vocabulary::account::Account;
use crate::vocabulary::endpoint::{Endpoint, Kind, Sink, Source, Waits};
use crate::vocabulary::error::Error;
use crate::vocabulary::limits::{READ_AHEAD_BYTES, TURN_BYTES_MAX, TURN_BYTES_MIN};

/// A connected stream socket that does not block, in an event loop of Tokio's: [`TcpStream`],
/// [`UnixStream`], or whatever keeps one, always the same.
pub trait Stream: AsFd {
    /// Waits until one of the interests may be ready. Cancel safe.
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<()>>;

    /// Makes `call` if the interest is believed ready, and forgets the readiness if it would block:
    /// the next [`ready`](Stream::ready) then waits.
    ///
    /// # Errors
    /// `WouldBlock`, or what `call` says.
    fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
}

macro_rules! stream {
    ($($socket:ty),*) => {$(
        impl Stream for $socket {
            async fn ready(&self, interest: Interest) -> io::Result<()> {
                <$socket>::ready(self, interest).await.map(|_| ())
            }

            fn try_io<R>(
                &self,
                interest: Interest,
                call: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                <$socket>::try_io(self, interest, call)
            }
        }
    )*};
}

stream!(TcpStream, UnixStream);

/// What is left of an outbox after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More is owed. Other tasks have had their chance.
    More,
    /// Nothing is owed.
    Empty,
}

/// How the first range of an outbox is going to leave, as far as that can be said before.
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// The mechanisms that will be tried, and why not the others.
    pub plan: Plan,
    /// Whether it leaves with its head.
    pub joining: Joining,
    /// Whether its beginning is in the page cache.
    pub warmth: Warmth,
}

/// Whether a range has to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// It is in the page cache.
    Cached,
    /// The disk has to be asked.
    Cold,
}

/// Sends what an [`Outbox`] owes to one socket, in turns.
///
/// Between two turns it keeps what it has learnt of the socket, whether that is corked, and the
/// transfer of the first range with its pipe or buffer. Without a range under way that is some 64
/// bytes.
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
    /// What the socket is, once it has been looked at.
    socket: Option<SocketFacts>,
    cork: Cork,
    /// Boxed: most connections, most of the time, have none.
    range: Option<Box<RangeTransfer>>,
}

/// What is known of the socket, once for all calls.
#[derive(Clone, Copy, Debug)]
struct SocketFacts {
    end: Endpoint,
    raised: Option<Raised>,
}

/// Whether packets that aren't full wait for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cork {
    /// They leave; whether waiting would do any good has not been looked at.
    #[default]
    Untried,
    /// They leave, since waiting would do no good.
    Useless,
    /// They wait.
    In,
    /// They leave.
    Out,
}

/// The first range of an outbox on its way.
#[derive(Debug)]
struct RangeTransfer {
    file: Arc<SharedFile>,
    transfer: Transfer,
    buffers: RelayBuffers,
    /// The file is known to be in the page cache up to this offset.
    warm_until: u64,
}

/// What one call for the first range came to.
enum Moved {
    /// The socket took payload.
    Some,
    /// It was a call beside the payload.
    Nothing,
    /// The socket is full.
    Blocked,
}

impl Sender {
    /// A sender for a socket that nothing is known of.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends what an outbox owes, at most one turn's worth: `bytes_max` bytes of one range
    /// ([`TURN_BYTES_MAX`] where few connections share the event loop).
    ///
    /// Waits until the socket takes something, and until the next piece of a cold file is in the
    /// page cache. Between two turns a server looks at its deadlines. Cancel safe: what was sent is
    /// off the outbox, and a later turn goes on. Socket and policy are the same in all turns.
    ///
    /// While a TCP socket is owed more than a turn it is corked (`TCP_CORK`, tcp(7)), unless bbr
    /// paces it: a turn does not end in a packet that is nearly empty. The turn that empties the
    /// outbox pulls the cork; where none follows, the kernel does after 200 milliseconds.
    ///
    /// # Errors
    /// [`Error`]: the outbox and the connection are of no further use.
    pub async fn turn<S: Stream>(
        &mut self,
        outbox: &mut Outbox,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        loop {
            match outbox.due(policy) {
                None => break,
                Some(Due::Send(bytes, more)) => {
                    let send = || rustix::net::send(sink, bytes, send_flags(more));
                    let sent = attempt(sink, Interest::WRITABLE, || send().map(|sent| sent as u64));
                    let waits = match sent {
                        Some(result) => outbox.sent(result, Waits::Polls)?.is_some(),
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
                        Moved::Blocked => ready(sink, Interest::WRITABLE).await?,
                    }
                }
            }
        }
        if outbox.is_empty() {
            self.set_cork(sink, Cork::Out);
            return Ok(Turn::Empty);
        }
        self.set_cork(sink, Cork::In);
        ::tokio::task::yield_now().await;
        Ok(Turn::More)
    }

    /// How the first range that an outbox owes is going to leave; nothing where it owes none.
    /// `longer` is what its head will gain until then. Asks the kernel what the ends are and
    /// whether the range's beginning is in the page cache, in a few calls, none of which waits for
    /// the disk.
    pub fn forecast<S: Stream>(
        &self,
        outbox: &Outbox,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
        longer: u64,
    ) -> Option<Forecast> {
        let range = outbox.first_range()?;
        let source = range.source().ok()?;
        let sink = Sink {
            fd: (),
            end: match self.socket {
                Some(socket) => socket.end,
                None => Endpoint::of(sink).ok()?,
            },
            to: 0,
        };
        let len = range.len.min(READ_AHEAD_BYTES);
        Some(Forecast {
            plan: kernel.plan(&source, &sink, policy),
            joining: outbox.joining(policy, longer),
            warmth: match warm::is_cached(&*range.file, range.offset, len) {
                true => Warmth::Cached,
                false => Warmth::Cold,
            },
        })
    }

    /// Has the kernel keep packets back that aren't full, or lets them go.
    fn set_cork<S: Stream>(&mut self, sink: &S, wanted: Cork) {
        if self.cork == Cork::Untried && wanted == Cork::In {
            let kind = self.socket.map(|socket| socket.end.kind);
            let fills = matches!(kind, Some(Kind::Tcp | Kind::TcpKernelTls)) && !is_paced(sink);
            self.cork = if fills { Cork::Out } else { Cork::Useless };
        }
        if matches!(self.cork, Cork::In | Cork::Out) && self.cork != wanted {
            // A socket that refuses sends the same bytes in more packets.
            let _ = rustix::net::sockopt::set_tcp_cork(sink, wanted == Cork::In);
            self.cork = wanted;
        }
    }

    /// Has a transfer of the range that is due, whose next bytes are in the page cache. Answers how
    /// long the disk took, if it was waited for.
    async fn prepare<S: Stream>(
        &mut self,
        range: &FileRange,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
        bytes_max: u64,
    ) -> Result<Option<Duration>, Errno> {
        let moving = match &mut self.range {
            Some(moving) if moving.continues(range) => moving,
            _ => {
                let moving = self.begin(range, sink, kernel, policy)?;
                self.range.insert(Box::new(moving))
            }
        };
        moving.transfer.limit_calls(bytes_max);
        Ok(moving.warm_up(range).await)
    }

    fn begin<S: Stream>(
        &mut self,
        range: &FileRange,
        sink: &S,
        kernel: &Kernel,
        policy: &Policy,
    ) -> Result<RangeTransfer, Errno> {
        let socket = match self.socket {
            Some(socket) => socket,
            None => *self.socket.insert(SocketFacts::of(Endpoint::of(sink)?)),
        };
        let source = range.source()?;
        let sink = Sink {
            fd: (),
            end: socket.end,
            to: 0,
        };
        let plan = kernel.plan(&source, &sink, policy);
        Ok(RangeTransfer {
            file: Arc::clone(&range.file),
            transfer: Transfer::new(&source, &sink, plan),
            buffers: RelayBuffers::default(),
            warm_until: 0,
        })
    }

    /// Makes the next call for the range under way.
    fn move_on<S: Stream>(
        &mut self,
        outbox: &mut Outbox,
        sink: &S,
        kernel: &Kernel,
    ) -> Result<Moved, Error> {
        let raised = self.socket.and_then(|socket| socket.raised);
        let Some(moving) = self.range.as_deref_mut() else {
            return Ok(Moved::Nothing);
        };
        let RangeTransfer {
            file,
            transfer,
            buffers,
            ..
        } = moving;
        let Some(op) = transfer.next_op() else {
            // The policy allows nothing.
            self.end_range(outbox, kernel)?;
            return Ok(Moved::Nothing);
        };
        let (source, sink_end) = transfer.ends();
        let ends = Ends {
            input: file.as_fd(),
            output: sink.as_fd(),
            source,
            sink: sink_end,
        };
        let result = if op.writes() {
            attempt(sink, Interest::WRITABLE, || {
                let _shield = Shield::against(raised);
                perform(op, &ends, buffers, kernel)
            })
        } else {
            Some(perform(op, &ends, buffers, kernel))
        };
        let Some(result) = result else {
            return Ok(Moved::Blocked);
        };
        let step = transfer.record(result);
        outbox.moved(&transfer.take_account());
        if let Step::Refused(refusal) = step {
            kernel.learn(&refusal, &source, &sink_end);
        }
        if transfer.next_op().is_none() {
            self.end_range(outbox, kernel)?;
        }
        Ok(match step {
            Step::Wait(_) => Moved::Blocked,
            Step::Again | Step::Done if op.writes() => Moved::Some,
            _ => Moved::Nothing,
        })
    }

    /// The transfer is over.
    fn end_range(&mut self, outbox: &mut Outbox, kernel: &Kernel) -> Result<(), Error> {
        let Some(moving) = self.range.take() else {
            return Ok(());
        };
        moving.buffers.give_back(kernel, &moving.transfer);
        outbox.ended(moving.transfer.finish())
    }
}

impl SocketFacts {
    fn of(end: Endpoint) -> Self {
        let raised = raised_by(end.kind);
        Self { end, raised }
    }
}

impl RangeTransfer {
    /// Whether this range is what the transfer has not moved yet: another driver may have gone on.
    fn continues(&self, range: &FileRange) -> bool {
        Arc::ptr_eq(&self.file, &range.file) && self.transfer.is_at(range.offset, range.len)
    }

    /// Has the next bytes of the range read into the page cache, if they aren't there: those of the
    /// next call and, since one question answers for many calls, of some more. What was asked a
    /// moment ago for another peer is not asked again. Answers how long the disk took.
    async fn warm_up(&mut self, range: &FileRange) -> Option<Duration> {
        let (from, len) = self.transfer.next_op().and_then(Op::reads)?;
        if from + len <= self.warm_until {
            return None;
        }
        let range_end = range.offset + range.len;
        let len = READ_AHEAD_BYTES
            .min(range_end.saturating_sub(from))
            .max(len);
        let (until, file) = (from + len, &self.file);
        let mut waited = None;
        if !file.was_cached(from, until, Instant::now()) {
            if !warm::is_cached(file, from, len) {
                waited = Some(wait_for_disk(file, from, len).await);
            }
            file.is_cached(from, until, Instant::now());
        }
        self.warm_until = until;
        waited
    }
}

fn send_flags(more: More) -> SendFlags {
    match more {
        More::Follows => SendFlags::NOSIGNAL | SendFlags::MORE,
        More::Nothing => SendFlags::NOSIGNAL,
    }
}

/// Whether packets wait for a timer before they leave.
// QUIRK(cork-under-bbr): bbr paces what it sends by a timer, during which packets fill up anyway;
// a cork on top costs half as much processor time again. Seen on Linux 6.18, loopback.
fn is_paced<S: Stream>(sink: &S) -> bool {
    let congestion = rustix::net::sockopt::tcp_congestion(sink);
    congestion.is_ok_and(|name| name.starts_with("bbr"))
}

/// The first `len` bytes of a file, for [`Piece::Joined`]; none where the disk would have to be
/// waited for, where there are fewer, or where reading fails: whoever sends the range meets that.
///
/// Does not block.
pub fn read_cached(file: &SharedFile, len: usize) -> Option<Vec<u8>> {
    let mut content = vec![0; len];
    let read = warm::read_cached(file, &mut content, 0)?.ok()?;
    (read == len).then_some(content)
}

/// Reads a small body behind its head: at once if it is in the page cache, else on another thread.
async fn load_behind(outbox: &mut Outbox) -> Result<(), Error> {
    if let Loaded::Cold(range) = outbox.load(warm::read_cached)? {
        let span = wait_for_disk(&range.file, range.offset, range.len).await;
        outbox.waited_for_disk(span);
        outbox.load(|file, buffer, from| Some(rustix::io::pread(file, buffer, from)))?;
    }
    Ok(())
}

/// Has a range read into the page cache by another thread. Answers how long that took.
async fn wait_for_disk(file: &Arc<SharedFile>, from: u64, len: u64) -> Duration {
    let start = Instant::now();
    warm::read_ahead(file, from, len).await;
    start.elapsed()
}

/// Makes `call` if the socket is believed ready; none where it was not made.
fn attempt<S: Stream>(
    stream: &S,
    interest: Interest,
    call: impl FnOnce() -> Result<u64, Errno>,
) -> Option<Result<u64, Errno>> {
    let mut made = None;
    let outcome = stream.try_io(interest, || {
        let result = call();
        made = Some(result);
        result.map_err(io::Error::from)
    });
    match (made, outcome) {
        (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
            Some(Err(errno_of(&error)))
        }
        (made, _) => made,
    }
}

async fn ready<S: Stream>(stream: &S, interest: Interest) -> Result<(), Errno> {
    stream
        .ready(interest)
        .await
        .map_err(|error| errno_of(&error))
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Sends `len` bytes of a file from `offset` on to a connected socket.
///
/// Does not block the runtime: cold parts of the file are read on its blocking threads. The bytes
/// leave as references to the page cache: see [`Aliasing`](crate::Aliasing). Not cancel safe: a
/// future that is dropped does not tell how much it has sent.
///
/// # Errors
/// As [`send_file`](crate::send_file); `EMFILE` where the file's descriptor can't be duplicated.
pub async fn send_file<S: Stream>(
    kernel: &Kernel,
    file: impl AsFd,
    offset: u64,
    len: u64,
    socket: &S,
) -> Result<Account, Error> {
    let file = file
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| errno_of(&error))?;
    let (mut outbox, mut sender) = (Outbox::new(), Sender::new());
    outbox.push(Piece::Range(FileRange {
        file: SharedFile::new(file),
        offset,
        len,
    }));
    let policy = Policy::default();
    while sender
        .turn(&mut outbox, socket, kernel, &policy, TURN_BYTES_MAX)
        .await?
        == Turn::More
    {}
    Ok(outbox.take_account())
}

/// Receives `len` bytes from a connected socket into a file, from `offset` on.
///
/// Waits for the socket on the event loop. Writing to the file may block it for as long as the
/// kernel throttles writers. Not cancel safe: a future that is dropped does not tell how much has
/// arrived, and what was between socket and file is lost.
///
/// # Errors
/// As [`recv_file`](crate::recv_file).
pub async fn recv_file<S: Stream>(
    kernel: &Kernel,
    socket: &S,
    file: impl AsFd,
    offset: u64,
    len: u64,
) -> Result<Account, Error> {
    let source = Source::range(socket.as_fd(), 0, len)?;
    let sink = Sink::at(file.as_fd(), offset)?;
    run(
        kernel,
        &Ends::of(&source, &sink),
        transfer(kernel, &source, &sink),
        socket,
        None::<&S>,
    )
    .await
}

/// Relays two connected sockets, both directions at once, until both have ended.
///
/// A half-close is kept, as by [`relay_streams`](crate::relay_streams). A direction that fails
/// shuts both sockets down, so that the other one ends too.
pub async fn relay_streams<S: Stream, T: Stream>(kernel: &Kernel, one: &S, other: &T) -> Relayed {
    let mut there = pin!(relay_one_way(kernel, one, other));
    let mut back = pin!(relay_one_way(kernel, other, one));
    let (mut went, mut came) = (None, None);
    poll_fn(|context| {
        if went.is_none() {
            went = ready_value(there.as_mut().poll(context));
        }
        if came.is_none() {
            came = ready_value(back.as_mut().poll(context));
        }
        match (went.take(), came.take()) {
            (Some(went), Some(came)) => Poll::Ready((went, came)),
            (half, other_half) => {
                (went, came) = (half, other_half);
                Poll::Pending
            }
        }
    })
    .await
}

fn ready_value<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

async fn relay_one_way<S: Stream, T: Stream>(
    kernel: &Kernel,
    from: &S,
    to: &T,
) -> Result<Account, Error> {
    let relayed = async {
        let (source, sink) = (Source::whole(from.as_fd())?, Sink::new(to.as_fd())?);
        run(
            kernel,
            &Ends::of(&source, &sink),
            transfer(kernel, &source, &sink),
            from,
            Some(to),
        )
        .await
    };
    let relayed = relayed.await;
    end_direction(&relayed, from, to);
    relayed
}

fn transfer<F, G>(kernel: &Kernel, source: &Source<F>, sink: &Sink<G>) -> Transfer {
    let mut transfer = Transfer::new(source, sink, kernel.plan(source, sink, &Policy::default()));
    transfer.limit_calls(TURN_BYTES_MIN);
    transfer
}

/// Runs a transfer whose source is a socket; its sink is one too, or never waits.
async fn run<S: Stream, T: Stream>(
    kernel: &Kernel,
    ends: &Ends<'_>,
    mut transfer: Transfer,
    source: &S,
    sink: Option<&T>,
) -> Result<Account, Error> {
    let mut buffers = RelayBuffers::default();
    let raised = raised_by(ends.sink.kind);
    while let Some(op) = transfer.next_op() {
        let mut call = || {
            let _shield = Shield::against(raised);
            perform(op, ends, &mut buffers, kernel)
        };
        let result = match sink {
            _ if op.fills() => attempt(source, Interest::READABLE, &mut call),
            Some(sink) if op.writes() => attempt(sink, Interest::WRITABLE, &mut call),
            _ => Some(call()),
        };
        let step = result.map(|result| transfer.record(result));
        match step {
            Some(Step::Refused(refusal)) => kernel.learn(&refusal, &ends.source, &ends.sink),
            Some(Step::Wait(_)) | None => match sink {
                Some(sink) if op.writes() => ready(sink, Interest::WRITABLE).await?,
                _ => ready(source, Interest::READABLE).await?,
            },
            _ => (),
        }
        ::tokio::task::consume_budget().await;
    }
    buffers.give_back(kernel, &transfer);
    transfer.finish()
}
