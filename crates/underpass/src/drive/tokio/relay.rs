//! Relays two sockets in both directions.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use ::tokio::io::Interest;

use super::sender::stream_end;
use super::stream::{Stream, ready};
use super::transfer::StreamTransfer;
use crate::drive::blocking::{Relayed, end_direction};
use crate::drive::perform::raised_by;
use crate::kernel::Kernel;
use crate::plan::Policy;
use crate::transfer::Step;
use crate::transfer::verdict::Wait;
use crate::vocabulary::account::Account;
use crate::vocabulary::endpoint::{Sink, Source};
use crate::vocabulary::error::Error;
use crate::vocabulary::limits::TURN_BYTES_MIN;

/// Relays two connected sockets, both directions concurrently, until both have ended.
///
/// Propagates a half-close, as [`relay_streams`](crate::relay_streams) does, which relays on
/// threads. A direction that fails shuts both sockets down, so that the other one ends too.
///
/// Not cancel safe: dropping the future leaves both sockets open, and bytes taken from one and not
/// yet sent to the other are lost. Close both then.
///
/// # Errors
/// An [`Error`] for each direction; `ENOTSOCK` for a descriptor that is not a socket.
pub async fn relay<S: Stream, T: Stream>(kernel: &Kernel, one: &S, other: &T) -> Relayed {
    let mut there = pin!(relay_one_way(kernel, one, other));
    let mut back = pin!(relay_one_way(kernel, other, one));
    let (mut went, mut came) = (None, None);
    poll_fn(|context| {
        if went.is_none()
            && let Poll::Ready(ended) = there.as_mut().poll(context)
        {
            went = Some(ended);
        }
        if came.is_none()
            && let Poll::Ready(ended) = back.as_mut().poll(context)
        {
            came = Some(ended);
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
    let source = Source::of(from.descriptor(), stream_end(from)?);
    let sink = Sink::of(to.descriptor(), stream_end(to)?);
    let plan = kernel.plan(&source, &sink, &Policy::default());
    let mut transfer = StreamTransfer::new(&source, &sink, plan, raised_by(sink.end.kind));
    transfer.machine.limit_calls(TURN_BYTES_MIN);
    while let Some(step) = transfer.step(from, to, kernel) {
        match step {
            Step::Wait(Wait::Source) => ready(from, Interest::READABLE).await?,
            Step::Wait(Wait::Sink | Wait::Both) => ready(to, Interest::WRITABLE).await?,
            Step::Again | Step::Refused(_) | Step::Done | Step::Failed => (),
        }
        ::tokio::task::consume_budget().await;
    }
    transfer.finish(kernel)
}
