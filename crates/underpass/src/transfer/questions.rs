//! Calls that have to be made before the transfer goes on: to learn what a failure or a result of 0
//! bytes means, and to make holes.

use rustix::io::Errno;

use super::op::Op;
use super::state::{Phase, Punching, Question, Step, Transfer};
use super::verdict::call_missing;
use crate::vocabulary::account::{Cause, Scope};
use crate::vocabulary::endpoint::{Owed, Side};
use crate::vocabulary::error::Fault;
use crate::vocabulary::mechanism::Mechanism;

impl Transfer {
    pub(super) fn ask(&self, mechanism: Mechanism, question: Question) -> Op {
        match question {
            Question::Probe(_) => Op::Probe(mechanism),
            Question::Peek => Op::Peek {
                from: self.from + self.done,
            },
            Question::Cloned => Op::Length(Side::Sink),
            Question::Punch(len) => Op::Punch {
                to: self.to + self.done,
                len: self.to_whole_block(len),
            },
            // Behind a range there may be another one, which cutting would lose.
            Question::Lengthen if self.whole => Op::SetLength {
                len: self.to + self.done,
            },
            Question::Lengthen => Op::LastByte {
                at: self.to + self.done - 1,
            },
        }
    }

    pub(super) fn answer(
        &mut self,
        mechanism: Mechanism,
        question: Question,
        result: Result<u64, Errno>,
    ) -> Step {
        if result == Err(Errno::INTR) {
            return Step::Again;
        }
        // The mechanism in use differs from the probed one only while a pipe is read out.
        self.phase = Phase::Moving(mechanism);
        match question {
            Question::Probe(errno) => {
                let probed = result.err().unwrap_or(Errno::BADF);
                let scope = match (call_missing(probed), errno) {
                    (Some(_), _) => Scope::Kernel,
                    (None, Errno::NOSYS) => Scope::Devices,
                    (None, _) => Scope::Once,
                };
                self.refused(
                    mechanism,
                    Cause::Errno(errno),
                    scope,
                    self.plan.after(mechanism),
                )
            }
            Question::Peek if result == Ok(0) => self.source_ended(mechanism),
            Question::Peek => {
                let next = self.reading_after(mechanism);
                self.refused(mechanism, Cause::SaidNothing, Scope::Once, next)
            }
            Question::Cloned => self.cloned(mechanism, result),
            Question::Punch(len) => {
                if result.is_err() {
                    self.punching = Punching::Unsupported;
                }
                self.skip_hole(mechanism, len)
            }
            Question::Lengthen => match result {
                Ok(_) => self.finish_if_complete(),
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                    self.fail(mechanism, Fault::Full, Some(errno))
                }
                Err(errno) => self.fail(mechanism, Fault::Sink, Some(errno)),
            },
        }
    }

    /// A clone is as long as the source was at that moment: the length of the sink.
    fn cloned(&mut self, mechanism: Mechanism, length: Result<u64, Errno>) -> Step {
        match (length, self.owed) {
            (Ok(length), Owed::Exactly(total)) if length < total => {
                self.account.moved(mechanism, length);
                self.done = length;
                self.fail(mechanism, Fault::Truncated, None)
            }
            (Ok(length), _) => {
                self.account.moved(mechanism, length);
                self.done = length;
                self.owed = Owed::Exactly(length);
                self.phase = Phase::Done;
                Step::Done
            }
            (Err(errno), _) => self.fail(mechanism, Fault::Sink, Some(errno)),
        }
    }
}
