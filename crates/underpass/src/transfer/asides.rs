//! Calls that move no payload. Some are made before the transfer continues, to interpret a failure
//! or a result of 0 bytes. Others make holes in the sink: holes are skipped, punched where the file
//! system has allocated blocks in advance, and lengthen the sink only at the end.

use rustix::io::Errno;

use super::extents::Extents;
use super::op::Op;
use super::verdict::call_missing;
use super::{Phase, Question, Step, Transfer};
use crate::vocabulary::account::{Cause, Mechanism, Scope};
use crate::vocabulary::endpoint::{Owed, Side};
use crate::vocabulary::error::Fault;

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
            // Another range may follow this one; truncating would lose it.
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
                self.refused(mechanism, Cause::SaidNothing, Scope::Once, self.reading())
            }
            Question::Cloned => self.cloned(mechanism, result),
            Question::Punch(len) => {
                if result.is_err() {
                    self.punches = false;
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

    /// The clone is as long as the source was at that moment: the length of the sink.
    fn cloned(&mut self, mechanism: Mechanism, length: Result<u64, Errno>) -> Step {
        let length = match length {
            Ok(length) => length,
            Err(errno) => return self.fail(mechanism, Fault::Sink, Some(errno)),
        };
        self.account.moved(mechanism, length);
        self.done = length;
        if self.total().is_some_and(|total| length < total) {
            return self.fail(mechanism, Fault::Truncated, None);
        }
        self.owed = Owed::Exactly(length);
        self.finish_if_complete()
    }

    /// Records a result that locates data and holes, or moves the sink's position.
    pub(super) fn map(&mut self, op: Op, result: Result<u64, Errno>) -> Step {
        let Phase::Moving(mechanism) = self.phase else {
            return self.over();
        };
        match (op, result) {
            (_, Err(Errno::INTR)) => Step::Again,
            (Op::SeekSink { .. }, Ok(position)) => {
                self.sink_position = Some(position);
                Step::Again
            }
            (Op::SeekSink { .. }, Err(errno)) => {
                let next = self.plan.after(mechanism);
                self.refused(mechanism, Cause::Errno(errno), Scope::Once, next)
            }
            (Op::Length(Side::Source), answer) => self.no_more_data(mechanism, answer),
            (op, answer) => {
                let hole = match op.is_look() {
                    true => self.zeros.record(op, answer),
                    false => self.extents.record(op, answer, self.from + self.end()),
                };
                hole.map_or(Step::Again, |len| self.hole(mechanism, len))
            }
        }
    }

    /// Treats the rest as a hole, unless the source has become shorter meanwhile.
    fn no_more_data(&mut self, mechanism: Mechanism, length: Result<u64, Errno>) -> Step {
        match length {
            Ok(length) if length >= self.from + self.end() => {
                self.extents.0 = Extents::Unknown;
                self.hole(mechanism, self.left())
            }
            Ok(_) => self.fail(mechanism, Fault::Truncated, None),
            Err(errno) => self.fail(mechanism, Fault::Source, Some(errno)),
        }
    }

    pub(super) fn hole(&mut self, mechanism: Mechanism, len: u64) -> Step {
        match self.punches && self.done > 0 {
            true => self.ask_next(mechanism, Question::Punch(len)),
            false => self.skip_hole(mechanism, len),
        }
    }

    pub(super) fn skip_hole(&mut self, mechanism: Mechanism, len: u64) -> Step {
        self.account.holes += len;
        self.relay.skipped(len);
        self.done += len;
        self.hole_until = self.done;
        if self.left() == 0 {
            return self.ask_next(mechanism, Question::Lengthen);
        }
        Step::Again
    }

    /// Rounds a hole at the end of the file up to the end of its last block: half a block would
    /// stay allocated, and no data follows.
    pub(super) fn to_whole_block(&self, len: u64) -> u64 {
        let (start, block) = (self.to + self.done, self.sink.block_bytes.max(1));
        match (start + len).checked_next_multiple_of(block) {
            Some(end) if self.whole && len == self.left() => end - start,
            _ => len,
        }
    }
}
