//! Relays two sockets, each of which is sent what the other one receives.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use ::tokio::io::Interest;

use super::sender::{attempt, ready};
use super::stream::Stream;
use crate::drive::blocking::{Relayed, end_direction};
use crate::drive::perform::{RelayBuffers, SourceAndSink, perform, raised_by};
use crate::kernel::Kernel;
use crate::plan::Policy;
use crate::sys::SignalGuard;
use crate::transfer::{Step, Transfer};
use crate::vocabulary::account::Account;
use crate::vocabulary::endpoint::{Sink, Source};
use crate::vocabulary::error::Error;
use crate::vocabulary::limits::TURN_BYTES_MIN;

/// Relays two connected sockets, both directions at once, until both have ended.
///
/// A half-close is passed on, as by [`relay_streams`](crate::relay_streams). A direction that fails
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
    let relayed = relay_to_end(kernel, from, to).await;
    end_direction(&relayed, from.descriptor(), to.descriptor());
    relayed
}

async fn relay_to_end<S: Stream, T: Stream>(
    kernel: &Kernel,
    from: &S,
    to: &T,
) -> Result<Account, Error> {
    let source = Source::whole(from.descriptor())?;
    let sink = Sink::new(to.descriptor())?;
    let plan = kernel.plan(&source, &sink, &Policy::default());
    let mut transfer = Transfer::new(&source, &sink, plan);
    transfer.limit_calls(TURN_BYTES_MIN);
    let (ends, mut buffers) = (SourceAndSink::of(&source, &sink), RelayBuffers::default());
    let raised = raised_by(sink.end.kind);
    while let Some(op) = transfer.next_op() {
        let mut call = || {
            let _guard = SignalGuard::against(raised);
            perform(op, &ends, &mut buffers, kernel)
        };
        let result = if op.fills() {
            attempt(from, Interest::READABLE, &mut call)
        } else if op.writes() {
            attempt(to, Interest::WRITABLE, &mut call)
        } else {
            Some(call())
        };
        match result.map(|result| transfer.record(result)) {
            Some(Step::Refused(refusal)) => kernel.learn(&refusal, &source.end, &sink.end),
            Some(Step::Wait(_)) | None if op.writes() => ready(to, Interest::WRITABLE).await?,
            Some(Step::Wait(_)) | None => ready(from, Interest::READABLE).await?,
            Some(Step::Again | Step::Done | Step::Failed) => (),
        }
        ::tokio::task::consume_budget().await;
    }
    buffers.give_back(kernel);
    transfer.finish()
}
