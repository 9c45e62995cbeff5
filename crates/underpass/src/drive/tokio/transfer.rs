//! A transfer in progress with a stream on at least one side.

use std::os::fd::BorrowedFd;

use ::tokio::io::Interest;
use rustix::io::Errno;

use super::stream::{Stream, attempt};
use crate::drive::perform::{RelayBuffers, SourceAndSink, drain, perform};
use crate::kernel::Kernel;
use crate::plan::Plan;
use crate::sys::{SignalGuard, UnignoredSignal};
use crate::transfer::op::{Op, RelayBuffer};
use crate::transfer::verdict::Wait;
use crate::transfer::{Step, Transfer};
use crate::vocabulary::account::Account;
use crate::vocabulary::endpoint::{Endpoint, Sink, Source};
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

    /// Takes the next call out if it writes to the sink from a pipe or a buffer, for another thread
    /// to make. [`put_back`](Self::put_back) has to follow before anything else is called.
    pub(super) fn take_drain(&mut self) -> Option<DetachedDrain> {
        let op = self.machine.next_op()?;
        let Op::Drain { through, to, len } = op else {
            return None;
        };
        let (source, sink) = self.machine.ends();
        Some(DetachedDrain {
            call: (through, to, len),
            ends: (source, sink),
            buffers: std::mem::take(&mut self.buffers),
            raised: self.raised,
        })
    }

    /// Records the result of a call that was taken out.
    pub(super) fn put_back(&mut self, drain: DetachedDrain, result: Result<u64, Errno>) -> Step {
        self.buffers = drain.buffers;
        self.machine.record(result)
    }

    /// Ends the transfer; its pipe or buffer is returned to the pool.
    pub(super) fn finish(self, kernel: &Kernel) -> Result<Account, Error> {
        self.buffers.give_back(kernel);
        self.machine.finish()
    }
}

/// A call that writes to a file, apart from its transfer.
#[derive(Debug)]
pub(super) struct DetachedDrain {
    call: (RelayBuffer, Option<u64>, u64),
    ends: (Endpoint, Endpoint),
    buffers: RelayBuffers,
    raised: Option<UnignoredSignal>,
}

impl DetachedDrain {
    /// Makes the call, which blocks as writing to the file does.
    pub(super) fn run(&mut self, file: BorrowedFd<'_>) -> Result<u64, Errno> {
        let ((through, to, len), (source, sink)) = (self.call, self.ends);
        let ends = SourceAndSink {
            input: file,
            output: file,
            source,
            sink,
        };
        let _guard = SignalGuard::against(self.raised);
        drain(through, &ends, to, len, &mut self.buffers)
    }
}
