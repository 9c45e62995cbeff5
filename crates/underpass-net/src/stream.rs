//! One connection: buffered input, an outbox, and a deadline on every wait.
//!
//! ```text
//!  peer ──► fill ──► input() … consume()      the protocol reads heads and frames here
//!  peer ◄── flush ◄── outbox().push(piece)    the mover sends them
//! ```
//!
//! Every wait ends: by what it waits for, by its deadline, or because the server stops.

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

use crate::address::Peer;
use crate::addresses::Seat;
use crate::bandwidth::{Claim, Shares};
use crate::deadline::Deadline;
use crate::error::StreamError;
use crate::input::Input;
use crate::limits::{FIRST_REQUEST_TIMEOUT, Limits, SLOT_TIMEOUT};
use crate::pace::{Judgement, Pace};
use crate::roster::Roster;
use crate::shutdown::Phase;
use crate::socket::Socket;
use crate::workers::Ground;

/// A connection that was accepted. Dropping it closes it.
pub struct Stream {
    socket: Socket,
    peer: Peer,
    /// Whom it is from: the peer, or whom a trusted proxy has named.
    pub(crate) client: Peer,
    /// Where connections of a client are counted.
    pub(crate) seat: Option<Seat>,
    heard: Heard,
    input: Input,
    /// Boxed: it is the largest part by far, and a connection is moved from hand to hand.
    outbound: Box<Outbound>,
    deadline: Deadline,
    /// How the peer takes the present answer, once that has taken some time.
    pace: Option<Pace>,
    pub(crate) ground: Rc<Ground>,
}

/// What is owed to the peer, and what sends it.
struct Outbound {
    outbox: Outbox,
    sender: Sender,
}

/// How a wait takes it that the server stops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// It ends as soon as the server drains: nothing is under way.
    Idle,
    /// It goes on while the server drains, and ends when the server stops at once.
    Busy,
}

/// Whether the peer has sent anything at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Heard {
    Nothing,
    Something,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Filled {
    /// There is more input than before.
    Bytes,
    /// The peer will send no more.
    End,
}

impl Stream {
    pub(crate) fn new(socket: Socket, peer: Peer, ground: Rc<Ground>) -> Stream {
        Stream {
            socket,
            peer,
            client: peer,
            seat: None,
            heard: Heard::Nothing,
            input: Input::default(),
            outbound: Box::new(Outbound {
                outbox: Outbox::new().joined_bytes_max(ground.limits.joined_bytes_max),
                sender: Sender::new(),
            }),
            deadline: Deadline::new(ground.limits.idle_timeout),
            pace: None,
            ground,
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whom the connection is from: the peer, or the client that a trusted proxy has named by the
    /// PROXY protocol.
    pub fn client(&self) -> Peer {
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

    /// What is owed to the peer. [`Stream::flush`] sends it.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbound.outbox
    }

    /// The input to look at and the outbox to answer into, both at once.
    pub fn parts(&mut self) -> (&[u8], &mut Outbox) {
        (self.input.bytes(), &mut self.outbound.outbox)
    }

    /// How far the server is on its way to an end. From [`Phase::Retiring`] on this connection
    /// should end with its answer.
    pub fn phase(&self) -> Phase {
        self.ground.roster.phase()
    }

    /// Gives all the following [`fill`](Stream::fill)s together `span`, counted from the first one
    /// that has to wait.
    pub fn expect_within(&mut self, span: Duration) {
        self.deadline.start(span);
    }

    /// Like [`expect_within`](Stream::expect_within) with the time a connection may be idle.
    pub fn expect_when_idle(&mut self) {
        self.deadline.start(self.ground.limits.idle_timeout);
    }

    /// Reads once, what is there or what comes first. Cancel-safe.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `PeerGone`, `Read`; `InputFull` if nothing consumes the input.
    pub async fn fill(&mut self, patience: Patience) -> Result<Filled, StreamError> {
        let bytes_max = self.ground.limits.input_bytes_max;
        if self.input.bytes().len() >= bytes_max {
            return Err(StreamError::InputFull);
        }
        let (socket, input, spare) = (&self.socket, &mut self.input, &self.ground.spare_input);
        // Whoever waits has no buffer: it is the worker's until there is something to read.
        let read = poll_fn(|task| {
            let polled = socket.poll_read(task, input.room(spare));
            if polled.is_pending() {
                input.lend_to(spare);
            }
            polled
        });
        let wait = Wait {
            deadline: &mut self.deadline,
            roster: &self.ground.roster,
            patience,
            heard: self.heard,
        };
        match wait.until(read).await? {
            Ok(0) => Ok(Filled::End),
            Ok(_) => {
                self.heard = Heard::Something;
                Ok(Filled::Bytes)
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
    pub async fn flush(&mut self) -> Result<(), StreamError> {
        let ground = Rc::clone(&self.ground);
        let _sending = Sending::on(&ground);
        self.pace = None;
        let mut claim = Claim::First;
        while !self.outbound.outbox.is_empty() {
            let paid = self.await_slot(claim).await?;
            claim = Claim::Next;
            match self.turn(paid).await? {
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
    pub async fn unless_gone<F: Future>(&self, work: F) -> Result<F::Output, StreamError> {
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
            if self.phase() >= Phase::Now {
                return Poll::Ready(Err(StreamError::Stopped));
            }
            closed
                .as_mut()
                .poll(task)
                .map(|()| Err(StreamError::PeerGone))
        })
        .await
    }

    /// How the first range that is owed is going to leave, if its head becomes so much `longer`:
    /// for those who debug. A few system calls.
    pub fn forecast(&self, longer: u64) -> Option<Forecast> {
        let ground = &*self.ground;
        let (kernel, policy) = (&ground.kernel, &ground.policy);
        let Outbound { outbox, sender } = &*self.outbound;
        sender.forecast(outbox, &self.socket, kernel, policy, longer)
    }

    /// Waits for this connection's share of its client's bandwidth and of that of all, where they
    /// are limited, and says what it has paid for.
    async fn await_slot(&mut self, claim: Claim) -> Result<Option<u64>, StreamError> {
        let shares = shares(self.seat.as_ref(), &self.ground);
        let Some(bytes) = shares.slot_bytes() else {
            return Ok(None);
        };
        for (earlier, bandwidth) in shares.each().enumerate() {
            let span = bandwidth.sell(bytes, claim);
            if span == Duration::ZERO {
                continue;
            }
            self.deadline.start(span);
            let wait = Wait {
                deadline: &mut self.deadline,
                roster: &self.ground.roster,
                patience: Patience::Busy,
                heard: self.heard,
            };
            match wait.until(pending::<Infallible>()).await {
                Ok(never) => match never {},
                Err(StreamError::TimedOut) => {}
                Err(error) => {
                    let bought = shares.each().take(earlier + 1);
                    bought.for_each(|bandwidth| bandwidth.settle(bytes, 0));
                    return Err(error);
                }
            }
            if let Some(pace) = &mut self.pace {
                pace.leave_out(span);
            }
        }
        Ok(Some(bytes))
    }

    /// One turn, of what is `paid` where bandwidth is limited. The slot of a peer that takes
    /// nothing goes back, and what it takes later is paid then.
    async fn turn(&mut self, mut paid: Option<u64>) -> Result<Turn, StreamError> {
        let ground = &*self.ground;
        let shares = shares(self.seat.as_ref(), ground);
        let before = paid.map(|_| self.outbound.outbox.sent_bytes());
        let turn_bytes = ground.turn_bytes();
        let turned = {
            let bytes_max = paid.map_or(turn_bytes, |paid| paid.min(turn_bytes));
            let Outbound { outbox, sender } = &mut *self.outbound;
            let (socket, kernel, policy) = (&self.socket, &ground.kernel, &ground.policy);
            let mut turn = pin!(sender.turn(outbox, socket, kernel, policy, bytes_max));
            let mut left = ground.limits.stall_timeout;
            loop {
                let span = until_look(&ground.limits, self.pace.as_ref()).min(left);
                let span = paid.map_or(span, |_| span.min(SLOT_TIMEOUT));
                self.deadline.start(span);
                let wait = Wait {
                    deadline: &mut self.deadline,
                    roster: &ground.roster,
                    patience: Patience::Busy,
                    heard: self.heard,
                };
                match wait.until(turn.as_mut()).await {
                    Err(StreamError::TimedOut) if span < left => {}
                    outcome => break outcome,
                }
                left -= span;
                if let Some(paid) = paid.take() {
                    shares.settle(paid, 0);
                }
                if let Err(error) = look(&ground.limits, socket, &mut self.pace, span) {
                    break Err(error);
                }
            }
        };
        if let Some(before) = before {
            shares.settle(
                paid.unwrap_or(0),
                self.outbound.outbox.sent_bytes() - before,
            );
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
        self.deadline.start(self.ground.limits.linger_timeout);
        let mut left = self.ground.limits.linger_bytes_max;
        loop {
            left = left.saturating_sub(self.input.bytes().len());
            self.input.clear();
            if left == 0 || !matches!(self.fill(Patience::Busy).await, Ok(Filled::Bytes)) {
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
    fn check_between_turns(&mut self) -> Result<(), StreamError> {
        self.input.release();
        look(
            &self.ground.limits,
            &self.socket,
            &mut self.pace,
            Duration::ZERO,
        )?;
        match self.phase() {
            Phase::Now => Err(StreamError::Stopped),
            Phase::Running | Phase::Retiring | Phase::Draining => Ok(()),
        }
    }
}

/// Somebody who is being sent something, for as long as this lives.
struct Sending<'g>(&'g Ground);

impl Sending<'_> {
    fn on(ground: &Ground) -> Sending<'_> {
        ground.sending.set(ground.sending.get() + 1);
        Sending(ground)
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.sending.set(self.0.sending.get() - 1);
    }
}

/// The bandwidths that a connection takes part in.
fn shares<'b>(seat: Option<&'b Seat>, ground: &'b Ground) -> Shares<'b> {
    let client = seat.and_then(Seat::bandwidth);
    Shares([client, ground.gate.shared.bandwidth.as_ref()])
}

/// How long until a peer is looked at; for ever where none has to be.
fn until_look(limits: &Limits, pace: Option<&Pace>) -> Duration {
    match (limits.least(), pace) {
        (None, _) => Duration::MAX,
        (Some(least), None) => least.window,
        (Some(_), Some(pace)) => pace.until_due(Instant::now()),
    }
}

/// Looks whether a peer takes its least, if a window is over. Of an answer that nobody has looked
/// at yet, `passed` is known to have passed.
fn look(
    limits: &Limits,
    socket: &Socket,
    pace: &mut Option<Pace>,
    passed: Duration,
) -> Result<(), StreamError> {
    let Some(least) = limits.least() else {
        return Ok(());
    };
    let now = Instant::now();
    let began = now.checked_sub(passed).unwrap_or(now);
    let pace = pace.get_or_insert_with(|| Pace::new(least, began));
    if pace.until_due(now) > Duration::ZERO {
        return Ok(());
    }
    match tcp::reached(socket).map(|reached| pace.judge(reached, now)) {
        Ok(Judgement::TooSlow) => Err(StreamError::TooSlow),
        // Where it is no TCP connection, nobody can tell.
        Ok(Judgement::GoesOn) | Err(_) => Ok(()),
    }
}

/// What bounds a wait.
struct Wait<'s> {
    deadline: &'s mut Deadline,
    roster: &'s Roster,
    patience: Patience,
    heard: Heard,
}

impl Wait<'_> {
    /// Waits for `work`. Neither clock nor timer is touched if it is ready at once.
    async fn until<F: Future>(self, work: F) -> Result<F::Output, StreamError> {
        let mut work = pin!(work);
        poll_fn(|task| {
            if let Poll::Ready(output) = work.as_mut().poll(task) {
                return Poll::Ready(Ok(output));
            }
            match self.ending() {
                Ending::AtOnce => return Poll::Ready(Err(StreamError::Stopped)),
                Ending::Soon => self.deadline.cut(FIRST_REQUEST_TIMEOUT),
                Ending::None => {}
            }
            self.deadline
                .poll(task)
                .map(|()| Err(StreamError::TimedOut))
        })
        .await
    }

    fn ending(&self) -> Ending {
        let (phase, patience) = (self.roster.phase(), self.patience);
        match (phase, patience, self.heard) {
            (Phase::Now, ..) => Ending::AtOnce,
            (Phase::Draining, Patience::Idle, Heard::Something) => Ending::AtOnce,
            // It may have connected, and even asked, before the stop.
            (Phase::Draining, Patience::Idle, Heard::Nothing) => Ending::Soon,
            _ => Ending::None,
        }
    }
}

/// How a wait ends because the server does.
enum Ending {
    None,
    Soon,
    AtOnce,
}

fn read_error(error: io::Error) -> StreamError {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::TimedOut => StreamError::PeerGone,
        _ => StreamError::Read(error),
    }
}

fn move_error(error: underpass::Error) -> StreamError {
    match error.fault {
        Fault::PeerGone | Fault::TimedOut => StreamError::PeerGone,
        _ => StreamError::Move(error),
    }
}
