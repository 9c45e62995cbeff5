//! How holes are made in the sink: they are skipped, punched where the file system has allocated
//! blocks in advance, and lengthen the sink only at the end.

use rustix::io::Errno;

use super::extent::{ExtentAnswer, ExtentMap};
use super::op::Op;
use super::state::{Phase, Punching, Question, Step, Transfer};
use crate::vocabulary::account::{Cause, Scope};
use crate::vocabulary::endpoint::Side;
use crate::vocabulary::error::Fault;
use crate::vocabulary::mechanism::Mechanism;

impl Transfer {
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
            (op, answer) if op.is_look() => match self.zeros.record(op, answer) {
                ExtentAnswer::Hole(len) => self.hole(mechanism, len),
                ExtentAnswer::Nothing => Step::Again,
            },
            (op, answer) => match self.extents.record(op, answer, self.from + self.end()) {
                ExtentAnswer::Hole(len) => self.hole(mechanism, len),
                ExtentAnswer::Nothing => Step::Again,
            },
        }
    }

    /// The rest is a hole, unless the source has become shorter meanwhile.
    fn no_more_data(&mut self, mechanism: Mechanism, length: Result<u64, Errno>) -> Step {
        match length {
            Ok(length) if length >= self.from + self.end() => {
                self.extents = ExtentMap::Unknown;
                self.hole(mechanism, self.left())
            }
            Ok(_) => self.fail(mechanism, Fault::Truncated, None),
            Err(errno) => self.fail(mechanism, Fault::Source, Some(errno)),
        }
    }

    pub(super) fn hole(&mut self, mechanism: Mechanism, len: u64) -> Step {
        match self.punching {
            Punching::Wanted if self.done > 0 => self.ask_next(mechanism, Question::Punch(len)),
            _ => self.skip_hole(mechanism, len),
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

    /// A hole at the end of the file is punched up to the end of its last block: half a block would
    /// stay allocated, and no data follows.
    pub(super) fn to_whole_block(&self, len: u64) -> u64 {
        let (start, block) = (self.to + self.done, self.sink.block_bytes.max(1));
        match (start + len).checked_next_multiple_of(block) {
            Some(end) if self.whole && len == self.left() => end - start,
            _ => len,
        }
    }
}
