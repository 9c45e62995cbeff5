//! A transfer in progress with a stream on at least one side.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ::tokio::io::Interest;

use super::stream::{Stream, attempt};
use crate::drive::perform::{RelayBuffers, SourceAndSink, perform};
use crate::kernel::Kernel;
use crate::plan::Plan;
use crate::sys::{SignalGuard, UnignoredSignal};
use crate::transfer::op::Op;
use crate::transfer::verdict::Wait;
use crate::transfer::{Step, Transfer};
use crate::vocabulary::account::Account;
use crate::vocabulary::endpoint::{Sink, Source};
use crate::vocabulary::error::Error;

/// A transfer with a stream on at least one side.
#[derive(Debug)]
pub(super) struct StreamTransfer {
    pub(super) machine: Transfer,
    buffers: RelayBuffers,
    raised: Option<UnignoredSignal>,
    /// Bytes that the sink took in the latest call, if that left it full.
    pub(super) filled_by: Option<u64>,
}

impl StreamTransfer {
    /// Starts a transfer; `raised` is the signal that calls into the sink may raise.
    pub(super) fn new<F, G>(
        source: &Source<F>,
        sink: &Sink<G>,
        plan: Plan,
        raised: Option<UnignoredSignal>,
    ) -> Self {
        Self {
            machine: Transfer::new(source, sink, plan),
            buffers: RelayBuffers::default(),
            raised,
            filled_by: None,
        }
    }

    /// Makes the next call, if the side that it needs is believed ready; `None` if no call is left.
    pub(super) fn step<S: Stream, T: Stream>(
        &mut self,
        from: &S,
        to: &T,
        kernel: &Kernel,
    ) -> Option<Step> {
        let op = self.machine.next_op()?;
        let (source, sink) = self.machine.ends();
        let ends = SourceAndSink {
            input: from.descriptor(),
            output: to.descriptor(),
            source,
            sink,
        };
        let mut call = || {
            let _guard = SignalGuard::against(self.raised);
            perform(op, &ends, &mut self.buffers, kernel)
        };
        let (made, side) = if op.fills() {
            (attempt(from, Interest::READABLE, 0, call), Wait::Source)
        } else if let Some(len) = op.writes() {
            (attempt(to, Interest::WRITABLE, len, call), Wait::Sink)
        } else {
            (Some((call(), false)), Wait::Sink)
        };
        self.filled_by = match made {
            Some((Ok(taken), true)) => Some(taken),
            _ => None,
        };
        let step = made.map_or(Step::Wait(side), |(result, _)| self.machine.record(result));
        if let Step::Refused(refusal) = step {
            kernel.learn(&refusal, &source, &sink);
        }
        Some(step)
    }

    /// Returns whether the next call writes to the sink from a pipe or a buffer.
    pub(super) fn writes_next(&mut self) -> bool {
        matches!(self.machine.next_op(), Some(Op::Drain { .. }))
    }

    /// Makes calls on a thread of its own, until the stream has no more, `bytes_max` have reached
    /// the sink, or something other than moving bytes is due. Blocks as writing to the sink does.
    pub(super) fn run_apart(
        &mut self,
        (input, output): (BorrowedFd<'_>, BorrowedFd<'_>),
        bytes_max: u64,
    ) -> RunApart {
        // Its pool is not used: the transfer has its pipe or buffer.
        let kernel = Kernel::unprobed();
        let (source, sink) = self.machine.ends();
        let ends = SourceAndSink {
            input,
            output,
            source,
            sink,
        };
        let until = self.machine.account().bytes().saturating_add(bytes_max);
        let mut run = RunApart::default();
        while let Some(op @ (Op::Fill { .. } | Op::Drain { .. })) = self.machine.next_op() {
            let begun = Instant::now();
            let guard = SignalGuard::against(self.raised);
            let result = perform(op, &ends, &mut self.buffers, &kernel);
            drop(guard);
            if matches!(op, Op::Drain { .. }) {
                run.writes += 1;
                run.slowest = run.slowest.max(begun.elapsed());
            }
            let step = self.machine.record(result);
            run.last = Some(step);
            let is_between = !self.writes_next();
            if step != Step::Again || is_between && self.machine.account().bytes() >= until {
                break;
            }
        }
        run
    }

    /// Ends the transfer; its pipe or buffer is returned to the pool.
    pub(super) fn finish(self, kernel: &Kernel) -> Result<Account, Error> {
        self.buffers.give_back(kernel);
        self.machine.finish()
    }
}

/// The result of [`StreamTransfer::run_apart`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunApart {
    /// Number of writes to the sink.
    pub(super) writes: u32,
    /// The longest of them.
    pub(super) slowest: Duration,
    /// The step after the latest call.
    pub(super) last: Option<Step>,
}
