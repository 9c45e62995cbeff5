//! One connection: buffered input, an outbox, and a deadline on every wait.
//!
//! ```text
//!  peer ──► fill ──► input() … consume()      the protocol reads heads and frames here
//!  peer ◄── flush ◄── outbox().push(piece)    the mover sends them
//! ```
//!
//! Every wait ends: by what it waits for, by its deadline, or because the server stops.

pub(crate) mod deadline;
pub(crate) mod input;
pub(crate) mod set;
pub(crate) mod socket;
pub(crate) mod worker_state;

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use underpass::drive::tokio::{Forecast, Sender, Turn};
use underpass::{Fault, Outbox, tcp};

use crate::connection::deadline::Deadline;
use crate::connection::input::Input;
use crate::connection::set::ConnectionSet;
use crate::connection::socket::PlainSocket;
use crate::connection::worker_state::WorkerState;
use crate::error::ConnectionError;
use crate::limits::{ConnectionLimits, FIRST_REQUEST_TIMEOUT, RESERVATION_TIMEOUT};
use crate::listen::address::PeerAddress;
use crate::quota::client_table::ClientPermit;
use crate::quota::min_rate::{MinRateMonitor, RateJudgement};
use crate::quota::rate_limiter::{RateLimiters, Reservation};
use crate::shutdown_phase::ShutdownPhase;

/// A connection that was accepted. Dropping it closes it.
pub struct Connection {
    socket: PlainSocket,
    peer: PeerAddress,
    /// Whom it is from: the peer, or whom a trusted proxy has named.
    pub(crate) client: PeerAddress,
    /// Where connections of a client are counted.
    pub(crate) permit: Option<ClientPermit>,
    activity: PeerActivity,
    input: Input,
    /// Boxed: it is the largest part by far, and a connection is moved from hand to hand.
    outbound: Box<Outbound>,
    deadline: Deadline,
    /// How the peer takes the present answer, once that has taken some time.
    min_rate_monitor: Option<MinRateMonitor>,
    pub(crate) worker: Rc<WorkerState>,
}

/// What is owed to the peer, and what sends it.
struct Outbound {
    outbox: Outbox,
    sender: Sender,
}

/// How a wait takes it that the server stops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhileDraining {
    /// It ends as soon as the server drains: nothing is under way.
    Ends,
    /// It goes on while the server drains, and ends when the server stops at once.
    Continues,
}

/// Whether the peer has sent anything at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PeerActivity {
    NothingReceived,
    Received,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadOutcome {
    /// There is more input than before.
    Bytes,
    /// The peer will send no more.
    End,
}

impl Connection {
    pub(crate) fn new(
        socket: PlainSocket,
        peer: PeerAddress,
        worker: Rc<WorkerState>,
    ) -> Connection {
        Connection {
            socket,
            peer,
            client: peer,
            permit: None,
            activity: PeerActivity::NothingReceived,
            input: Input::default(),
            outbound: Box::new(Outbound {
                outbox: Outbox::new().joined_bytes_max(worker.limits.joined_bytes_max),
                sender: Sender::new(),
            }),
            deadline: Deadline::new(worker.limits.idle_timeout),
            min_rate_monitor: None,
            worker,
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> PeerAddress {
        self.peer
    }

    /// Whom the connection is from: the peer, or the client that a trusted proxy has named by the
    /// PROXY protocol.
    pub fn client(&self) -> PeerAddress {
        self.client
    }

    /// What the peer sent and nobody consumed yet.
    pub fn input(&self) -> &[u8] {
        self.input.bytes()
    }

    /// Takes the first `count` bytes of the input away. Panics if there are fewer.
    pub fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }

    /// What is owed to the peer. [`Connection::flush`] sends it.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbound.outbox
    }

    /// The input to look at and the outbox to answer into, both at once.
    pub fn parts(&mut self) -> (&[u8], &mut Outbox) {
        (self.input.bytes(), &mut self.outbound.outbox)
    }

    /// How far the server is on its way to an end. From [`ShutdownPhase::Retiring`] on this
    /// connection should end with its answer.
    pub fn phase(&self) -> ShutdownPhase {
        self.worker.connections.phase()
    }

    /// Gives all following calls of [`fill`](Connection::fill) together `span`, counted from the
    /// first one that has to wait.
    pub fn start_deadline(&mut self, span: Duration) {
        self.deadline.start(span);
    }

    /// Like [`start_deadline`](Connection::start_deadline) with the time a connection may be idle.
    pub fn start_idle_deadline(&mut self) {
        self.deadline.start(self.worker.limits.idle_timeout);
    }

    /// Reads once, what is there or what comes first. Cancel-safe.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `PeerGone`, `Read`; `InputFull` if nothing consumes the input.
    pub async fn fill(
        &mut self,
        while_draining: WhileDraining,
    ) -> Result<ReadOutcome, ConnectionError> {
        let bytes_max = self.worker.limits.input_bytes_max;
        if self.input.bytes().len() >= bytes_max {
            return Err(ConnectionError::InputFull);
        }
        let (socket, input, spare) = (&self.socket, &mut self.input, &self.worker.spare_input);
        // Whoever waits has no buffer: it is the worker's until there is something to read.
        let read = poll_fn(|task| {
            let polled = socket.poll_read(task, input.room(spare));
            if polled.is_pending() {
                input.lend_to(spare);
            }
            polled
        });
        let wait = BoundedWait {
            deadline: &mut self.deadline,
            connections: &self.worker.connections,
            while_draining,
            activity: self.activity,
        };
        match wait.until(read).await? {
            Ok(0) => Ok(ReadOutcome::End),
            Ok(_) => {
                self.activity = PeerActivity::Received;
                Ok(ReadOutcome::Bytes)
            }
            Err(error) => Err(read_error(error)),
        }
    }

    /// Sends everything that is owed, in turns, letting other connections go on in between. The
    /// deadline counts from the last turn that moved something. Not cancel-safe in the sense that
    /// what was sent stays sent; the outbox knows what is left.
    ///
    /// # Errors
    /// `TimedOut`, `TooSlow`, `Stopped`, `PeerGone`, `Move`. The peer has got a part of what was
    /// owed, and the connection is of no more use.
    pub async fn flush(&mut self) -> Result<(), ConnectionError> {
        let worker = Rc::clone(&self.worker);
        let _sending = ActiveSender::on(&worker);
        self.min_rate_monitor = None;
        let mut reservation = Reservation::First;
        while !self.outbound.outbox.is_empty() {
            let reserved = self.await_reservation(reservation).await?;
            reservation = Reservation::Next;
            match self.turn(reserved).await? {
                Turn::Empty => break,
                Turn::More => self.check_between_turns()?,
            }
        }
        Ok(())
    }

    /// Waits for `work` that the peer asked for, unless the peer closes its side meanwhile. One
    /// that only half-closes is taken for gone too: the two look the same until something is sent.
    /// Bytes that it sends wait. Cancel-safe, as far as `work` is.
    ///
    /// # Errors
    /// `PeerGone`, `Stopped`; `work` is dropped.
    pub async fn unless_peer_closes<F: Future>(
        &self,
        work: F,
    ) -> Result<F::Output, ConnectionError> {
        // Readable it may be all the time; out-of-band data, which nobody sends, wakes for the end
        // of reading alike and for nothing else.
        let closed = async {
            loop {
                match self.socket.readiness(Interest::PRIORITY).await {
                    Ok(ready) if !ready.is_read_closed() => tokio::task::yield_now().await,
                    _ => return,
                }
            }
        };
        let (mut work, mut closed) = (pin!(work), pin!(closed));
        poll_fn(|task| {
            if let Poll::Ready(output) = work.as_mut().poll(task) {
                return Poll::Ready(Ok(output));
            }
            if self.phase() >= ShutdownPhase::Now {
                return Poll::Ready(Err(ConnectionError::Stopped));
            }
            closed
                .as_mut()
                .poll(task)
                .map(|()| Err(ConnectionError::PeerGone))
        })
        .await
    }

    /// How the first range that is owed is going to leave, if its head becomes so much `longer`:
    /// for those who debug. A few system calls.
    pub fn forecast(&self, longer: u64) -> Option<Forecast> {
        let worker = &*self.worker;
        let (kernel, policy) = (&worker.kernel, &worker.policy);
        let Outbound { outbox, sender } = &*self.outbound;
        sender.forecast(outbox, &self.socket, kernel, policy, longer)
    }

    /// Waits for this connection's share of its client's bandwidth and of that of all, where they
    /// are limited, and says what it has paid for.
    async fn await_reservation(
        &mut self,
        reservation: Reservation,
    ) -> Result<Option<u64>, ConnectionError> {
        let rate_limiters = rate_limiters(self.permit.as_ref(), &self.worker);
        let Some(bytes) = rate_limiters.reservation_bytes() else {
            return Ok(None);
        };
        for (earlier, rate_limiter) in rate_limiters.each().enumerate() {
            let span = rate_limiter.reserve(bytes, reservation);
            if span == Duration::ZERO {
                continue;
            }
            self.deadline.start(span);
            let wait = BoundedWait {
                deadline: &mut self.deadline,
                connections: &self.worker.connections,
                while_draining: WhileDraining::Continues,
                activity: self.activity,
            };
            match wait.until(pending::<Infallible>()).await {
                Ok(never) => match never {},
                Err(ConnectionError::TimedOut) => {}
                Err(error) => {
                    let bought = rate_limiters.each().take(earlier + 1);
                    bought.for_each(|rate_limiter| rate_limiter.settle(bytes, 0));
                    return Err(error);
                }
            }
            if let Some(min_rate_monitor) = &mut self.min_rate_monitor {
                min_rate_monitor.exclude(span);
            }
        }
        Ok(Some(bytes))
    }

    /// One turn, of what is `reserved` where bandwidth is limited. The slot of a peer that takes
    /// nothing goes back, and what it takes later is paid then.
    async fn turn(&mut self, mut reserved: Option<u64>) -> Result<Turn, ConnectionError> {
        let worker = &*self.worker;
        let rate_limiters = rate_limiters(self.permit.as_ref(), worker);
        let before = reserved.map(|_| self.outbound.outbox.sent_bytes());
        let turn_bytes = worker.turn_bytes();
        let turned = {
            let bytes_max = reserved.map_or(turn_bytes, |reserved| reserved.min(turn_bytes));
            let Outbound { outbox, sender } = &mut *self.outbound;
            let (socket, kernel, policy) = (&self.socket, &worker.kernel, &worker.policy);
            let mut turn = pin!(sender.turn(outbox, socket, kernel, policy, bytes_max));
            let mut left = worker.limits.stall_timeout;
            loop {
                let span =
                    until_min_rate_check(&worker.limits, self.min_rate_monitor.as_ref()).min(left);
                let span = reserved.map_or(span, |_| span.min(RESERVATION_TIMEOUT));
                self.deadline.start(span);
                let wait = BoundedWait {
                    deadline: &mut self.deadline,
                    connections: &worker.connections,
                    while_draining: WhileDraining::Continues,
                    activity: self.activity,
                };
                match wait.until(turn.as_mut()).await {
                    Err(ConnectionError::TimedOut) if span < left => {}
                    outcome => break outcome,
                }
                left -= span;
                if let Some(reserved) = reserved.take() {
                    rate_limiters.settle(reserved, 0);
                }
                if let Err(error) =
                    check_min_rate(&worker.limits, socket, &mut self.min_rate_monitor, span)
                {
                    break Err(error);
                }
            }
        };
        if let Some(before) = before {
            let sent = self.outbound.outbox.sent_bytes() - before;
            rate_limiters.settle(reserved.unwrap_or(0), sent);
        }
        turned?.map_err(move_error)
    }

    /// Half-closes, so that the peer sees the end of what it got, and reads what it still sends, a
    /// bounded amount for a bounded time. Closing with unread input would send a reset, which can
    /// destroy the last answer on its way.
    pub async fn close(mut self) {
        if self.socket.shutdown().is_err() {
            return;
        }
        self.deadline.start(self.worker.limits.linger_timeout);
        let mut left = self.worker.limits.linger_bytes_max;
        loop {
            left = left.saturating_sub(self.input.bytes().len());
            self.input.clear();
            if left == 0
                || !matches!(
                    self.fill(WhileDraining::Continues).await,
                    Ok(ReadOutcome::Bytes)
                )
            {
                return;
            }
        }
    }

    /// Resets the connection: the peer must not take what it got for complete.
    pub fn abort(self) {
        // Where even this fails the connection is gone already.
        let _ = self.socket.set_reset();
    }

    /// Long answers come here between two turns, which is also when their input buffer is not
    /// needed for a while.
    fn check_between_turns(&mut self) -> Result<(), ConnectionError> {
        self.input.release();
        check_min_rate(
            &self.worker.limits,
            &self.socket,
            &mut self.min_rate_monitor,
            Duration::ZERO,
        )?;
        match self.phase() {
            ShutdownPhase::Now => Err(ConnectionError::Stopped),
            ShutdownPhase::Running | ShutdownPhase::Retiring | ShutdownPhase::Draining => Ok(()),
        }
    }
}

/// Somebody who is being sent something, for as long as this lives.
struct ActiveSender<'g>(&'g WorkerState);

impl ActiveSender<'_> {
    fn on(worker: &WorkerState) -> ActiveSender<'_> {
        worker.sending.set(worker.sending.get() + 1);
        ActiveSender(worker)
    }
}

impl Drop for ActiveSender<'_> {
    fn drop(&mut self) {
        self.0.sending.set(self.0.sending.get() - 1);
    }
}

/// The bandwidths that a connection takes part in.
fn rate_limiters<'b>(
    permit: Option<&'b ClientPermit>,
    worker: &'b WorkerState,
) -> RateLimiters<'b> {
    let client = permit.and_then(ClientPermit::rate_limiter);
    RateLimiters([client, worker.shared.rate_limiter.as_ref()])
}

/// How long until a peer is looked at; for ever where none has to be.
fn until_min_rate_check(
    limits: &ConnectionLimits,
    min_rate_monitor: Option<&MinRateMonitor>,
) -> Duration {
    match (limits.min_rate(), min_rate_monitor) {
        (None, _) => Duration::MAX,
        (Some(min_rate), None) => min_rate.window,
        (Some(_), Some(min_rate_monitor)) => min_rate_monitor.until_due(Instant::now()),
    }
}

/// Looks whether a peer takes its least, if a window is over. Of an answer that nobody has looked
/// at yet, `passed` is known to have passed.
fn check_min_rate(
    limits: &ConnectionLimits,
    socket: &PlainSocket,
    min_rate_monitor: &mut Option<MinRateMonitor>,
    passed: Duration,
) -> Result<(), ConnectionError> {
    let Some(min_rate) = limits.min_rate() else {
        return Ok(());
    };
    let now = Instant::now();
    let began = now.checked_sub(passed).unwrap_or(now);
    let min_rate_monitor =
        min_rate_monitor.get_or_insert_with(|| MinRateMonitor::new(min_rate, began));
    if min_rate_monitor.until_due(now) > Duration::ZERO {
        return Ok(());
    }
    match tcp::reached(socket).map(|reached| min_rate_monitor.judge(reached, now)) {
        Ok(RateJudgement::TooSlow) => Err(ConnectionError::TooSlow),
        // Where it is no TCP connection, nobody can tell.
        Ok(RateJudgement::Acceptable) | Err(_) => Ok(()),
    }
}

/// What bounds a wait.
struct BoundedWait<'s> {
    deadline: &'s mut Deadline,
    connections: &'s ConnectionSet,
    while_draining: WhileDraining,
    activity: PeerActivity,
}

impl BoundedWait<'_> {
    /// Waits for `work`. Neither clock nor timer is touched if it is ready at once.
    async fn until<F: Future>(self, work: F) -> Result<F::Output, ConnectionError> {
        let mut work = pin!(work);
        poll_fn(|task| {
            if let Poll::Ready(output) = work.as_mut().poll(task) {
                return Poll::Ready(Ok(output));
            }
            match self.ending() {
                WaitEnd::AtOnce => return Poll::Ready(Err(ConnectionError::Stopped)),
                WaitEnd::Soon => self.deadline.cut(FIRST_REQUEST_TIMEOUT),
                WaitEnd::None => {}
            }
            self.deadline
                .poll(task)
                .map(|()| Err(ConnectionError::TimedOut))
        })
        .await
    }

    fn ending(&self) -> WaitEnd {
        let (phase, while_draining) = (self.connections.phase(), self.while_draining);
        match (phase, while_draining, self.activity) {
            (ShutdownPhase::Now, ..) => WaitEnd::AtOnce,
            (ShutdownPhase::Draining, WhileDraining::Ends, PeerActivity::Received) => {
                WaitEnd::AtOnce
            }
            // It may have connected, and even asked, before the stop.
            (ShutdownPhase::Draining, WhileDraining::Ends, PeerActivity::NothingReceived) => {
                WaitEnd::Soon
            }
            _ => WaitEnd::None,
        }
    }
}

/// How a wait ends because the server does.
enum WaitEnd {
    None,
    Soon,
    AtOnce,
}

fn read_error(error: io::Error) -> ConnectionError {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::TimedOut => ConnectionError::PeerGone,
        _ => ConnectionError::Read(error),
    }
}

fn move_error(error: underpass::Error) -> ConnectionError {
    match error.fault {
        Fault::PeerGone | Fault::TimedOut => ConnectionError::PeerGone,
        _ => ConnectionError::Move(error),
    }
}
