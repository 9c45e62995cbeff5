//! Where a transfer stands, and the steps that every part of the machine takes.

use rustix::io::Errno;

use super::extent::ExtentMap;
use super::relay::Relay;
use super::verdict::Wait;
use super::zeros::Zeros;
use crate::plan::Plan;
use crate::vocabulary::account::{Account, Cause, Refusal, Scope};
use crate::vocabulary::endpoint::{Endpoint, Owed};
use crate::vocabulary::error::Fault;
use crate::vocabulary::mechanism::Mechanism;

/// What a result means for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for the next call.
    Again,
    /// Ask for the next call when this side is ready.
    Wait(Wait),
    /// A mechanism was refused and the next one takes over.
    /// [`Kernel::learn`](crate::Kernel::learn) remembers it.
    Refused(Refusal),
    /// Everything has reached the sink.
    Done,
    /// The transfer failed; [`Transfer::finish`] returns why.
    Failed,
}

/// A plan in progress.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub(super) plan: Plan,
    pub(super) source: Endpoint,
    pub(super) sink: Endpoint,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) owed: Owed,
    /// The whole source goes into an empty sink.
    pub(super) whole: bool,
    /// Bytes the sink has got, holes included: the cursor.
    pub(super) done: u64,
    pub(super) phase: Phase,
    pub(super) relay: Relay,
    pub(super) extents: ExtentMap,
    pub(super) zeros: Zeros,
    pub(super) punching: Punching,
    /// Where the last hole ended: the cursor, while nothing has been written behind it.
    pub(super) hole_until: u64,
    /// Where the sink's own file position is, if that is known: sendfile writes there.
    pub(super) sink_position: Option<u64>,
    pub(super) call_bytes_max: u64,
    pub(super) account: Account,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Moving by this mechanism.
    Moving(Mechanism),
    /// A question that stands before everything else.
    Asking(Mechanism, Question),
    Done,
    Failed(Option<Mechanism>, Fault, Option<Errno>),
}

/// A call that has to be made before the transfer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The mechanism failed with this errno: is it there at all?
    Probe(Errno),
    /// The mechanism moved 0 bytes: has the source ended?
    Peek,
    /// A clone succeeded: how long is the sink now?
    Cloned,
    /// A hole of this length was found behind the cursor.
    Punch(u64),
    /// All is moved, and the sink ends in a hole.
    Lengthen,
}

/// Whether holes are punched into what the file system may have allocated in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Punching {
    Wanted,
    Unsupported,
}

impl Transfer {
    /// Bytes the sink has got, holes included.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes owed in all, if that is known.
    pub fn total(&self) -> Option<u64> {
        match self.owed {
            Owed::Exactly(total) => Some(total),
            Owed::ToEnd => None,
        }
    }

    /// Bytes still to move; `u64::MAX` where only the source's end will show it.
    pub(super) fn left(&self) -> u64 {
        match self.owed {
            Owed::Exactly(total) => total - self.done,
            Owed::ToEnd => u64::MAX,
        }
    }

    pub(super) fn over(&self) -> Step {
        match self.phase {
            Phase::Failed(..) => Step::Failed,
            _ => Step::Done,
        }
    }

    /// The sink has got `bytes` more.
    pub(super) fn arrived(&mut self, mechanism: Mechanism, bytes: u64) -> Step {
        self.account.moved(mechanism, bytes);
        self.done += bytes;
        self.finish_if_complete()
    }

    pub(super) fn finish_if_complete(&mut self) -> Step {
        if self.left() > 0 {
            return Step::Again;
        }
        self.phase = Phase::Done;
        Step::Done
    }

    pub(super) fn source_ended(&mut self, mechanism: Mechanism) -> Step {
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

    pub(super) fn reading_after(&self, mechanism: Mechanism) -> Option<Mechanism> {
        let reading = Mechanism::ReadWrite;
        (mechanism != reading && self.plan.includes(reading)).then_some(reading)
    }

    /// The next one takes over. Splice is the last before read/write wherever it has a middle, so
    /// that a pipe that holds bytes is always read out.
    pub(super) fn refused(
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
        match next {
            Some(next) => self.phase = Phase::Moving(next),
            None => {
                let errno = if let Cause::Errno(errno) = cause {
                    Some(errno)
                } else {
                    None
                };
                self.phase = Phase::Failed(Some(mechanism), Fault::Refused, errno);
            }
        }
        Step::Refused(refusal)
    }

    pub(super) fn fail(
        &mut self,
        mechanism: Mechanism,
        fault: Fault,
        errno: Option<Errno>,
    ) -> Step {
        self.phase = Phase::Failed(Some(mechanism), fault, errno);
        Step::Failed
    }

    pub(super) fn ask_next(&mut self, mechanism: Mechanism, question: Question) -> Step {
        self.phase = Phase::Asking(mechanism, question);
        Step::Again
    }

    pub(super) fn end(&self) -> u64 {
        self.total().unwrap_or(u64::MAX - self.from)
    }
}
