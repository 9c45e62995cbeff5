//! A plan in progress: a state machine without system calls.
//!
//! ```text
//!            ┌──────────── next() ───────────▶ Op ──────────┐
//!       Transfer                                        a driver
//!            └── Again, Wait, Refused, Done ◀── record(result)
//! ```
//!
//! One cursor outlives every fallback: a refused mechanism leaves it unchanged, and the next one
//! continues from there. Bytes count as done when the sink has taken them.

mod asides;
pub(crate) mod extents;
pub(crate) mod op;
pub(crate) mod verdict;

use rustix::io::Errno;

use crate::plan::{Plan, is_whole};
use crate::vocabulary::account::{Account, Cause, Mechanism, Refusal, Scope};
use crate::vocabulary::endpoint::{
    Endpoint, EndpointKind, Owed, Sink, Source, Writes, within_offsets,
};
use crate::vocabulary::error::{Error, Fault};
use crate::vocabulary::limits::{
    FILE_CALL_BYTES_MAX, KERNEL_CALL_BYTES_MAX, SPLICED_WRITE_BYTES_MAX, STREAM_CALL_BYTES_MAX,
};
use extents::{SourceExtents, Zeros};
use op::{Op, Relay, RelayBuffer};
use verdict::{Situation, Verdict, Wait, verdict};

/// The next step of the driver after a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Request the next call.
    Again,
    /// Request the next call when this side is ready.
    Wait(Wait),
    /// A mechanism was refused and the next one takes over.
    /// [`Kernel::learn`](crate::Kernel::learn) remembers it.
    Refused(Refusal),
    /// Everything has reached the sink.
    Done,
    /// The transfer failed; [`Transfer::finish`] returns the reason.
    Failed,
}

/// A plan in progress.
#[derive(Clone, Debug)]
pub struct Transfer {
    plan: Plan,
    source: Endpoint,
    sink: Endpoint,
    from: u64,
    to: u64,
    owed: Owed,
    /// The whole source goes into an empty sink.
    whole: bool,
    /// Bytes that have reached the sink, holes included: the cursor.
    done: u64,
    phase: Phase,
    relay: Relay,
    extents: SourceExtents,
    zeros: Zeros,
    /// Whether to punch holes into blocks that the file system may have allocated in advance.
    punches: bool,
    /// The end of the last hole; equals the cursor while nothing has been written after it.
    hole_until: u64,
    /// The sink's own file position, if known: sendfile writes there.
    sink_position: Option<u64>,
    call_bytes_max: u64,
    account: Account,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Moving by this mechanism.
    Moving(Mechanism),
    /// Asking a question that must be answered first.
    Asking(Mechanism, Question),
    Done,
    Failed(Option<Mechanism>, Fault, Option<Errno>),
}

/// A call that must be made before the transfer continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// The mechanism failed with this errno: does the call exist at all?
    Probe(Errno),
    /// The mechanism moved 0 bytes: has the source ended?
    Peek,
    /// A clone succeeded: how long is the sink now?
    Cloned,
    /// A hole of this length was found after the cursor.
    Punch(u64),
    /// Everything is moved, and the sink ends in a hole.
    Lengthen,
}

impl Transfer {
    /// Creates a transfer at its beginning. An empty plan and offsets that no file has fail at the
    /// first step.
    pub fn new<F, G>(source: &Source<F>, sink: &Sink<G>, plan: Plan) -> Self {
        let len = match source.owed {
            Owed::Exactly(len) => len,
            Owed::ToEnd => 0,
        };
        // Offsets of a stream have no meaning.
        let offset = |end: Endpoint, at, len| match end.kind.has_offsets() {
            true => within_offsets(at, len).map(|()| at),
            false => Ok(0),
        };
        let from = offset(source.end, source.from, len);
        let to = offset(sink.end, sink.to, 0);
        let phase = match (plan.first(), source.owed, from.and(to)) {
            (_, Owed::Exactly(0), _) => Phase::Done,
            (_, _, Err(errno)) => Phase::Failed(None, Fault::Kernel, Some(errno)),
            (Some(mechanism), _, Ok(_)) => Phase::Moving(mechanism),
            (None, _, Ok(_)) => {
                let (mechanism, fault, errno) = plan.fault();
                Phase::Failed(mechanism, fault, errno)
            }
        };
        let between_files =
            source.end.kind == EndpointKind::File && sink.end.kind == EndpointKind::File;
        Self {
            plan,
            source: source.end,
            sink: sink.end,
            from: from.unwrap_or(0),
            to: to.unwrap_or(0),
            owed: source.owed,
            whole: is_whole(source, sink),
            done: 0,
            phase,
            relay: Relay::default(),
            extents: SourceExtents::of(source, sink, plan.holes),
            zeros: Zeros::of(sink, plan.holes),
            punches: true,
            hole_until: 0,
            sink_position: None,
            call_bytes_max: if between_files {
                FILE_CALL_BYTES_MAX
            } else {
                STREAM_CALL_BYTES_MAX
            },
            account: Account::default(),
        }
    }

    /// Limits the bytes that one call may move, and so the delay until progress is seen and
    /// cancelling takes effect.
    pub fn limit_calls(&mut self, bytes: u64) {
        self.call_bytes_max = bytes.clamp(1, KERNEL_CALL_BYTES_MAX);
    }

    /// Returns the account so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the account since it was last taken, and starts a new one; the cursor stays.
    pub fn take_account(&mut self) -> Account {
        std::mem::take(&mut self.account)
    }

    /// Returns the plan it follows.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Consumes a finished transfer and returns its account.
    ///
    /// # Errors
    /// The reason of the failure, with the same account; an unfinished transfer was cancelled.
    pub fn finish(self) -> Result<Account, Error> {
        let (mechanism, fault, errno) = match self.phase {
            Phase::Done => return Ok(self.account),
            Phase::Failed(mechanism, fault, errno) => (mechanism, fault, errno),
            Phase::Moving(mechanism) | Phase::Asking(mechanism, _) => {
                (Some(mechanism), Fault::Cancelled, None)
            }
        };
        // Bytes read from a file are not lost.
        let lost = match self.source.kind.has_offsets() {
            true => 0,
            false => self.relay.held(),
        };
        let account = Box::new(self.account);
        Err(Error {
            fault,
            mechanism,
            errno,
            lost,
            account,
        })
    }

    /// Returns the endpoints of source and sink.
    pub fn ends(&self) -> (Endpoint, Endpoint) {
        (self.source, self.sink)
    }

    /// Ends the transfer, because waiting for a side failed with `errno`.
    pub fn abandon(&mut self, errno: Errno) {
        if let Phase::Moving(mechanism) | Phase::Asking(mechanism, _) = self.phase {
            self.fail(mechanism, Fault::Kernel, Some(errno));
        }
    }

    /// Returns whether the rest of the transfer is this range of the source.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_at(&self, offset: u64, len: u64) -> bool {
        self.from + self.done == offset && self.owed == Owed::Exactly(self.done + len)
    }

    /// Returns the bytes that have reached the sink, holes included.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns the total bytes owed, if known.
    pub fn total(&self) -> Option<u64> {
        match self.owed {
            Owed::Exactly(total) => Some(total),
            Owed::ToEnd => None,
        }
    }

    /// Returns the bytes taken from the source that have not reached the sink yet.
    pub fn held(&self) -> u64 {
        self.relay.held()
    }

    /// Returns the call to make now; `None` once done or failed. Repeated calls return the same.
    pub fn next_op(&self) -> Option<Op> {
        match self.phase {
            Phase::Asking(mechanism, question) => Some(self.ask(mechanism, question)),
            Phase::Moving(mechanism) => Some(self.move_by(mechanism)),
            Phase::Done | Phase::Failed(..) => None,
        }
    }

    fn move_by(&self, mechanism: Mechanism) -> Op {
        let (to, next) = (self.sink_offset(), self.to + self.done);
        let end = self.total().and_then(|total| self.to.checked_add(total));
        if let Some(look) = self.zeros.question(next, self.relay.buffered(), end) {
            return look;
        }
        if let Some(drain) = self.relay.drain(to, self.zeros.data_after(next)) {
            return drain;
        }
        if mechanism == Mechanism::Clone {
            return self.clone_op();
        }
        let at = self.from + self.done;
        if let Some(question) = self.extents.question(at) {
            return question;
        }
        let owed = self.left().min(self.extents.0.data_after(at));
        let len = owed.min(self.call_bytes_max);
        let from = self.source_offset();
        match mechanism {
            Mechanism::Clone | Mechanism::CopyRange => Op::CopyRange {
                from: at,
                to: next,
                len,
            },
            Mechanism::Sendfile => match to {
                Some(to) if self.sink_position != Some(to) => Op::SeekSink { to },
                _ => Op::Sendfile { from, len },
            },
            Mechanism::Splice if self.has_pipe_end() => Op::Splice { from, to, len },
            Mechanism::Splice if from.is_some() && to.is_some() => {
                Relay::fill(RelayBuffer::Pipe, from, len.min(SPLICED_WRITE_BYTES_MAX))
            }
            Mechanism::Splice => Relay::fill(RelayBuffer::Pipe, from, len),
            Mechanism::ReadWrite => {
                let len = self.zeros.fill_bytes(next, owed, len);
                Relay::fill(RelayBuffer::Buffer, from, len)
            }
        }
    }

    fn clone_op(&self) -> Op {
        if self.whole {
            return Op::Clone;
        }
        // This is the first mechanism tried, and it moves all or nothing.
        Op::CloneRange {
            from: self.from,
            to: self.to,
            len: self.left(),
        }
    }

    fn has_pipe_end(&self) -> bool {
        self.source.kind == EndpointKind::Pipe || self.sink.kind == EndpointKind::Pipe
    }

    fn source_offset(&self) -> Option<u64> {
        self.source
            .kind
            .has_offsets()
            .then_some(self.from + self.done)
    }

    /// QUIRK(append-ignores-offset): pwrite to an O_APPEND file appends regardless of its offset,
    /// so none is given.
    fn sink_offset(&self) -> Option<u64> {
        let explicit = self.sink.kind.has_offsets() && self.sink.writes == Writes::AtOffset;
        explicit.then_some(self.to + self.done)
    }

    /// Records the result of the call that [`Transfer::next_op`] returned.
    pub fn record(&mut self, result: Result<u64, Errno>) -> Step {
        let Some(op) = self.next_op() else {
            return self.over();
        };
        match (self.phase, op.mechanism()) {
            (Phase::Moving(_), Some(mechanism)) => {
                self.account.called(mechanism);
                let verdict = verdict(op, result, &self.situation());
                self.follow(op, mechanism, verdict, result.err())
            }
            (Phase::Asking(mechanism, question), _) => {
                self.account.asides += 1;
                self.answer(mechanism, question, result)
            }
            _ => {
                self.account.asides += u64::from(!op.is_look());
                self.map(op, result)
            }
        }
    }

    fn situation(&self) -> Situation {
        Situation {
            source: self.source.kind,
            sink: self.sink.kind,
            source_waits: self.source.waits,
            sink_waits: self.sink.waits,
            done: self.done,
        }
    }

    fn follow(
        &mut self,
        op: Op,
        mechanism: Mechanism,
        verdict: Verdict,
        errno: Option<Errno>,
    ) -> Step {
        let cause = errno.map_or(Cause::SaidNothing, Cause::Errno);
        match verdict {
            Verdict::Moved(bytes) => self.moved(op, mechanism, bytes),
            Verdict::Ended => self.ended(op, mechanism),
            Verdict::Again => Step::Again,
            Verdict::Wait(wait) => Step::Wait(wait),
            Verdict::Suspect => {
                self.ask_next(mechanism, Question::Probe(errno.unwrap_or(Errno::NOSYS)))
            }
            Verdict::Refused(scope) => {
                self.refused(mechanism, cause, scope, self.plan.after(mechanism))
            }
            Verdict::RefusedToReading => {
                self.refused(mechanism, cause, Scope::Once, self.reading())
            }
            Verdict::Fatal(fault) => self.fail(mechanism, fault, errno),
        }
    }

    fn moved(&mut self, op: Op, mechanism: Mechanism, bytes: u64) -> Step {
        match op {
            Op::Clone => return self.ask_next(mechanism, Question::Cloned),
            Op::CloneRange { len, .. } => return self.arrived(mechanism, len),
            Op::Sendfile { .. } => {
                self.sink_position = self.sink_position.map(|position| position + bytes);
            }
            _ => (),
        }
        let arrived = self.relay.moved(op, bytes);
        self.arrived(mechanism, arrived)
    }

    /// Handles a call that moved 0 bytes: the end for read(2) and for streams, else a question.
    fn ended(&mut self, op: Op, mechanism: Mechanism) -> Step {
        let read = matches!(
            op,
            Op::Fill {
                through: RelayBuffer::Buffer,
                ..
            }
        );
        if read || !self.source.kind.has_offsets() {
            return self.source_ended(mechanism);
        }
        self.ask_next(mechanism, Question::Peek)
    }

    /// Returns the bytes still to move; `u64::MAX` if only the source's end will show it.
    fn left(&self) -> u64 {
        match self.owed {
            Owed::Exactly(total) => total.saturating_sub(self.done),
            Owed::ToEnd => u64::MAX,
        }
    }

    fn over(&self) -> Step {
        match self.phase {
            Phase::Failed(..) => Step::Failed,
            _ => Step::Done,
        }
    }

    /// Records that `bytes` more have reached the sink.
    fn arrived(&mut self, mechanism: Mechanism, bytes: u64) -> Step {
        self.account.moved(mechanism, bytes);
        self.done += bytes;
        self.finish_if_complete()
    }

    fn finish_if_complete(&mut self) -> Step {
        if self.left() > 0 {
            return Step::Again;
        }
        self.phase = Phase::Done;
        Step::Done
    }

    fn source_ended(&mut self, mechanism: Mechanism) -> Step {
        match self.owed {
            Owed::ToEnd => {
                self.owed = Owed::Exactly(self.done);
                if self.done > 0 && self.hole_until == self.done {
                    return self.ask_next(mechanism, Question::Lengthen);
                }
                self.finish_if_complete()
            }
            Owed::Exactly(_) => self.fail(mechanism, Fault::Truncated, None),
        }
    }

    /// Returns the last mechanism, to follow one of the kernel's.
    fn reading(&self) -> Option<Mechanism> {
        let reading = Mechanism::ReadWrite;
        self.plan.includes(reading).then_some(reading)
    }

    /// Switches to the next mechanism, once a pipe that holds bytes is read out.
    fn refused(
        &mut self,
        mechanism: Mechanism,
        cause: Cause,
        scope: Scope,
        next: Option<Mechanism>,
    ) -> Step {
        let refusal = Refusal {
            mechanism,
            cause,
            scope,
            after: self.done,
        };
        self.account.refused(refusal);
        if self.relay.held() > 0 {
            self.relay.read_out();
        }
        let failed = |errno| Phase::Failed(Some(mechanism), Fault::Refused, errno);
        self.phase = match (next, cause) {
            (Some(next), _) => Phase::Moving(next),
            (None, Cause::Errno(errno)) => failed(Some(errno)),
            (None, Cause::SaidNothing) => failed(None),
        };
        Step::Refused(refusal)
    }

    fn fail(&mut self, mechanism: Mechanism, fault: Fault, errno: Option<Errno>) -> Step {
        self.phase = Phase::Failed(Some(mechanism), fault, errno);
        Step::Failed
    }

    fn ask_next(&mut self, mechanism: Mechanism, question: Question) -> Step {
        self.phase = Phase::Asking(mechanism, question);
        Step::Again
    }

    fn end(&self) -> u64 {
        self.total().unwrap_or(u64::MAX - self.from)
    }
}

#[cfg(test)]
mod tests;
