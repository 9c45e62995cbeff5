//! Bounded waits: they end with their event, at their deadline, or when the server stops.
//!
//! A request that is served immediately must not pay for a timer. So starting a deadline only
//! stores its span; the clock is read when a wait is first pending; and the runtime's timer is
//! reset only if the new deadline is *before* the one it is armed for. If it is later, the timer
//! fires early once and is armed again. A connection that waits for a request has no timer: its set
//! wakes it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use crate::connection::worker_state::{Awaited, ConnectionGuard, ConnectionSet};
use crate::error::ConnectionError;
use crate::limits::FIRST_REQUEST_TIMEOUT;
use crate::shutdown::ShutdownPhase;

/// Whether a wait continues while the server drains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhileDraining {
    /// It ends as soon as the server drains: nothing is in progress.
    Ends,
    /// It continues while the server drains, and ends when the server stops immediately.
    Continues,
}

/// Whether the peer has sent anything at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PeerActivity {
    NothingReceived,
    Received,
}

/// The bounds of a connection's waits.
pub(crate) struct BoundedWait {
    span: Duration,
    due: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    pub(crate) activity: PeerActivity,
    /// None for a connection that this process has opened.
    pub(crate) guard: Option<ConnectionGuard>,
    /// None if the connection may not be evicted.
    awaited: Option<Awaited>,
    /// Whether the connection's set has marked it as evictable.
    is_evictable: bool,
}

impl BoundedWait {
    pub(crate) fn new(span: Duration, activity: PeerActivity) -> BoundedWait {
        BoundedWait {
            span,
            due: None,
            timer: None,
            activity,
            guard: None,
            awaited: None,
            is_evictable: false,
        }
    }

    /// Creates the waits of a connection in a set.
    pub(crate) fn of(guard: ConnectionGuard, span: Duration) -> BoundedWait {
        BoundedWait {
            guard: Some(guard),
            ..BoundedWait::new(span, PeerActivity::NothingReceived)
        }
    }

    /// Restarts the deadline: `span` counts from the next wait.
    pub(crate) fn start(&mut self, span: Duration) {
        self.span = span;
        self.due = None;
        self.awaited = None;
        self.set_busy();
    }

    /// Restarts the deadline, and lets the connection be evicted while it waits for `awaited`, or
    /// for its first request if nothing was received.
    pub(crate) fn start_evictable(&mut self, span: Duration, awaited: Awaited) {
        self.start(span);
        self.awaited = Some(match self.activity {
            PeerActivity::NothingReceived => Awaited::First,
            PeerActivity::Received => awaited,
        });
    }

    /// Waits for `work`.
    pub(crate) async fn until<F: Future>(
        &mut self,
        connections: &ConnectionSet,
        while_draining: WhileDraining,
        work: F,
    ) -> Result<F::Output, ConnectionError> {
        let mut work = pin!(work);
        let poll = |task: &mut Context<'_>| {
            self.poll_until(task, connections, while_draining, |task| {
                work.as_mut().poll(task)
            })
        };
        poll_fn(poll).await
    }

    /// Ready when `poll` is, or when the wait ends before. Uses neither clock nor timer if it is
    /// ready immediately.
    pub(crate) fn poll_until<T>(
        &mut self,
        task: &mut Context<'_>,
        connections: &ConnectionSet,
        while_draining: WhileDraining,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, ConnectionError>> {
        let ended = match poll(task) {
            Poll::Ready(output) => Ok(output),
            Poll::Pending => match self.poll_end(task, connections.phase(), while_draining) {
                Poll::Ready(error) => Err(error),
                Poll::Pending => return Poll::Pending,
            },
        };
        self.set_busy();
        Poll::Ready(ended)
    }

    /// Ready when the wait must end: by the phase, at its deadline, or to make room for another
    /// connection.
    fn poll_end(
        &mut self,
        task: &mut Context<'_>,
        phase: ShutdownPhase,
        while_draining: WhileDraining,
    ) -> Poll<ConnectionError> {
        match (phase, while_draining, self.activity) {
            (ShutdownPhase::Now, ..)
            | (ShutdownPhase::Draining, WhileDraining::Ends, PeerActivity::Received) => {
                return Poll::Ready(ConnectionError::Stopped);
            }
            // The peer may have connected, and even sent its request, before the stop.
            (ShutdownPhase::Draining, WhileDraining::Ends, PeerActivity::NothingReceived) => {
                self.cut(FIRST_REQUEST_TIMEOUT);
            }
            _ => {}
        }
        let span = self.span;
        let due = *self.due.get_or_insert_with(|| Instant::now() + span);
        let (Some(guard), Some(awaited)) = (&self.guard, self.awaited) else {
            return self.poll_timer(task, due);
        };
        if !self.is_evictable {
            self.is_evictable = true;
            self.timer = None;
            guard.set_waiting(awaited, due - span, due);
        } else if due <= Instant::now() {
            return Poll::Ready(ConnectionError::TimedOut);
        }
        match guard.is_evicted() {
            true => Poll::Ready(ConnectionError::Evicted),
            false => Poll::Pending,
        }
    }

    fn set_busy(&mut self) {
        if let (Some(guard), true) = (&self.guard, self.is_evictable) {
            self.is_evictable = false;
            guard.set_busy();
        }
    }

    /// Limits the remaining time to `span` from now.
    fn cut(&mut self, span: Duration) {
        let now = Instant::now();
        let due = self.due.unwrap_or_else(|| now + self.span);
        if now + span < due {
            (self.due, self.span) = (Some(now + span), span);
            self.is_evictable = false;
        }
    }

    /// Ready when the deadline has passed.
    fn poll_timer(&mut self, task: &mut Context<'_>, due: Instant) -> Poll<ConnectionError> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if due < timer.deadline() {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(task).is_ready() {
            if timer.deadline() >= due {
                return Poll::Ready(ConnectionError::TimedOut);
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

/// Wakes one connection from any thread, for example to end long polls after an append. Clones wake
/// the same connection. It may outlive the connection; waking it then does nothing.
#[derive(Clone, Debug, Default)]
pub struct WakeHandle(Arc<Notify>);

impl WakeHandle {
    /// Wakes the connection if it waits, or lets its next wait end immediately. Several calls
    /// before the connection runs are one wake-up. Does not block.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits for a wake-up and consumes it. Cancel safe.
    pub(crate) async fn woken(&self) {
        self.0.notified().await;
    }
}
