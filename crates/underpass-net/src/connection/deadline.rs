//! The timer of a connection, used only when the connection really waits.
//!
//! A request that is answered at once must not pay for a timer. So starting a deadline only stores
//! its span; the clock is read when a wait is pending for the first time; and the runtime's timer
//! is moved only if the new deadline lies *before* the one it is armed for. If it lies after it,
//! the timer fires early once and is armed again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

pub(crate) struct Deadline {
    span: Duration,
    due: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(crate) fn new(span: Duration) -> Deadline {
        Deadline {
            span,
            due: None,
            timer: None,
        }
    }

    /// Restarts the deadline: `span` counts from the next wait on.
    pub(crate) fn start(&mut self, span: Duration) {
        self.span = span;
        self.due = None;
    }

    /// Limits the remaining time to `span` from now.
    pub(crate) fn cut(&mut self, span: Duration) {
        let now = Instant::now();
        let due = self.due.unwrap_or_else(|| now + self.span);
        self.due = Some(due.min(now + span));
    }

    /// Ready when the deadline has passed. Poll it only when what it guards is pending.
    pub(crate) fn poll(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let span = self.span;
        let due = *self.due.get_or_insert_with(|| Instant::now() + span);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if due < timer.deadline() {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(task).is_ready() {
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}
