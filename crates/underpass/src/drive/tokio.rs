//! The driver for Tokio's sockets.
//!
//! A call is made only while the socket is believed to be ready, and inside Tokio's `try_io`, so
//! that an EAGAIN and the readiness it contradicts are seen together. Files never become ready:
//! whatever of a source file is not in the page cache is read ahead on the runtime's blocking
//! threads before the call, so that one cold file does not stall the connections beside it.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use ::tokio::io::Interest;
use ::tokio::net::{TcpStream, UnixStream};
use rustix::io::Errno;

use crate::account::Account;
use crate::drive::blocking::{Relayed, end_direction, send_flags};
use crate::drive::perform::{Ends, Middles, perform};
use crate::drive::warm;
use crate::endpoint::{Endpoint, Kind, Sink, Source};
use crate::error::Error;
use crate::kernel::Kernel;
use crate::limits::{READ_AHEAD_BYTES, TURN_BYTES_MAX, TURN_BYTES_MIN};
use crate::op::Op;
use crate::outbox::{Cork, Due, FileRange, Forecast, Known, Loaded, Outbox, Piece, Warmth};
use crate::plan::{Policy, plan};
use crate::shared_file::SharedFile;
use crate::sys::signals::{Raised, Shield};
use crate::transfer::{Step, Transfer};

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

/// Sends what an outbox owes, at most one turn's worth: `bytes_max` bytes of one range
/// ([`TURN_BYTES_MAX`] where few connections share the event loop).
///
/// Waits until the socket takes something, and until the next piece of a cold file is in the page
/// cache. Between two turns a server looks at its deadlines. Cancel safe: what was sent is off the
/// outbox, and a later turn goes on.
///
/// While a TCP socket is owed more than a turn it is corked (`TCP_CORK`, tcp(7)), unless bbr paces
/// it: a turn does not end in a packet that is nearly empty. The turn that empties the outbox pulls
/// the cork; where none follows, the kernel does after 200 milliseconds.
///
/// # Errors
/// [`Error`]: the outbox and the connection are of no further use.
pub async fn turn<S: Stream>(
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
                    Some(result) => outbox.sent(result)?.is_some(),
                    None => true,
                };
                if waits {
                    ready(sink, Interest::WRITABLE).await?;
                }
            }
            Some(Due::Load) => load_behind(outbox).await?,
            Some(Due::Begin(range)) => begin(outbox, &range, sink, kernel, policy)?,
            Some(Due::Move(transfer, _, file)) => {
                transfer.limit_calls(bytes_max);
                let reads = transfer.next_op().and_then(Op::reads);
                warm_up(outbox, &file, reads).await;
                match move_on(outbox, sink, kernel, policy)? {
                    Moved::Some => break,
                    Moved::Nothing => (),
                    Moved::Blocked => ready(sink, Interest::WRITABLE).await?,
                }
            }
        }
    }
    if outbox.is_empty() {
        cork(outbox, sink, Cork::Out);
        return Ok(Turn::Empty);
    }
    cork(outbox, sink, Cork::In);
    ::tokio::task::yield_now().await;
    Ok(Turn::More)
}

/// How the first range that an outbox owes is going to leave; nothing where it owes none. `longer`
/// is what its head will gain until then. Asks the kernel what the ends are and whether the range's
/// beginning is in the page cache, in a few calls, none of which waits for the disk.
pub fn forecast<S: Stream>(
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
        end: Endpoint::of(sink).ok()?,
        to: 0,
    };
    let len = range.len.min(READ_AHEAD_BYTES);
    Some(Forecast {
        plan: plan(&source, &sink, kernel, policy),
        joining: outbox.joining(policy, longer),
        warmth: match warm::is_cached(&*range.file, range.offset, len) {
            true => Warmth::Cached,
            false => Warmth::Cold,
        },
    })
}

/// Has the kernel keep packets back that aren't full, or lets them go.
fn cork<S: Stream>(outbox: &mut Outbox, sink: &S, wanted: Cork) {
    if outbox.cork == Cork::Untried && wanted == Cork::In {
        let kind = outbox.sink.map(|known| known.end.kind);
        let fills = matches!(kind, Some(Kind::Tcp | Kind::TcpKernelTls)) && !is_paced(sink);
        outbox.cork = if fills { Cork::Out } else { Cork::Useless };
    }
    if matches!(outbox.cork, Cork::In | Cork::Out) && outbox.cork != wanted {
        // A socket that refuses sends the same bytes in more packets.
        let _ = rustix::net::sockopt::set_tcp_cork(sink, wanted == Cork::In);
        outbox.cork = wanted;
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
        wait_for_disk(outbox, &range.file, range.offset, range.len).await;
        outbox.load(|file, buffer, from| Some(rustix::io::pread(file, buffer, from)))?;
    }
    Ok(())
}

fn begin<S: Stream>(
    outbox: &mut Outbox,
    range: &FileRange,
    sink: &S,
    kernel: &Kernel,
    policy: &Policy,
) -> Result<(), Error> {
    let sink_end = match outbox.sink {
        Some(known) => known.end,
        None => outbox.sink.insert(Known::of(Endpoint::of(sink)?)).end,
    };
    let source = range.source().map_err(|errno| outbox.failed(errno))?;
    let sink = Sink {
        fd: (),
        end: sink_end,
        to: 0,
    };
    outbox.begin(Transfer::new(
        &source,
        &sink,
        plan(&source, &sink, kernel, policy),
    ));
    Ok(())
}

/// Has the next bytes of the range read into the page cache, if they aren't there: those of the
/// next call and, since one question answers for many calls, of some more. What was asked a moment
/// ago for another peer is not asked again.
async fn warm_up(outbox: &mut Outbox, file: &Arc<SharedFile>, reads: Option<(u64, u64)>) {
    let Some((from, len)) = reads else { return };
    if from + len <= outbox.warm_until {
        return;
    }
    let len = READ_AHEAD_BYTES
        .min(outbox.range_end().saturating_sub(from))
        .max(len);
    let until = from + len;
    if !file.was_cached(from, until, Instant::now()) {
        if !warm::is_cached(file, from, len) {
            wait_for_disk(outbox, file, from, len).await;
        }
        file.is_cached(from, until, Instant::now());
    }
    outbox.warm_until = until;
}

/// Has a range read into the page cache by another thread, and tells the outbox.
async fn wait_for_disk(outbox: &mut Outbox, file: &Arc<SharedFile>, from: u64, len: u64) {
    let start = Instant::now();
    outbox.beside.cold_reads += 1;
    warm::read_ahead(file, from, len).await;
    outbox.beside.cold_time += start.elapsed();
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

fn move_on<S: Stream>(
    outbox: &mut Outbox,
    sink: &S,
    kernel: &Kernel,
    policy: &Policy,
) -> Result<Moved, Error> {
    let raised = outbox.sink.and_then(|known| known.raised);
    let Some(Due::Move(transfer, middles, file)) = outbox.due(policy) else {
        return Ok(Moved::Nothing);
    };
    let Some(op) = transfer.next_op() else {
        // The policy allows nothing.
        outbox.stepped(Step::Failed, kernel)?;
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
            perform(op, &ends, middles, kernel)
        })
    } else {
        Some(perform(op, &ends, middles, kernel))
    };
    let Some(result) = result else {
        return Ok(Moved::Blocked);
    };
    let step = transfer.record(result);
    if let Step::Refused(refusal) = step {
        kernel.learn(&refusal, &source, &sink_end);
    }
    outbox.stepped(step, kernel)?;
    Ok(match step {
        Step::Wait(_) => Moved::Blocked,
        Step::Again | Step::Done if op.writes() => Moved::Some,
        _ => Moved::Nothing,
    })
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
    let mut outbox = Outbox::new();
    outbox.push(Piece::Range(FileRange {
        file: SharedFile::new(file),
        offset,
        len,
    }));
    let policy = Policy::default();
    while turn(&mut outbox, socket, kernel, &policy, TURN_BYTES_MAX).await? == Turn::More {}
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
    let mut transfer = Transfer::new(source, sink, plan(source, sink, kernel, &Policy::default()));
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
    let mut middles = Middles::default();
    let raised = Raised::by(ends.sink.kind);
    while let Some(op) = transfer.next_op() {
        let mut call = || {
            let _shield = Shield::against(raised);
            perform(op, ends, &mut middles, kernel)
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
    middles.give_back(kernel, transfer.held());
    transfer.finish()
}
