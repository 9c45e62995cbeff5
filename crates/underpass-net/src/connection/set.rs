//! Who is connected to one worker, and how all of them learn that the server stops.
//!
//! A connection looks at the phase whenever it is polled anyway: one load, nothing to register
//! and nothing to wake on the way of a request. When the phase changes, the roster wakes every
//! connection once, so that those who wait see it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use tokio::sync::Notify;

use crate::shutdown_phase::ShutdownPhase;

pub(crate) struct ConnectionSet {
    phase: Cell<ShutdownPhase>,
    next: Cell<u64>,
    /// Nobody to wake yet where a connection's task has not been polled.
    wakers: RefCell<HashMap<u64, Option<Waker>>>,
    /// Told whenever a connection ends. Only the worker's own loop waits for it.
    ended: Notify,
}

/// A connection's place on the roster. It is free again when this is dropped.
pub(crate) struct ConnectionGuard {
    set: Rc<ConnectionSet>,
    number: u64,
}

impl ConnectionSet {
    pub(crate) fn new() -> ConnectionSet {
        ConnectionSet {
            phase: Cell::new(ShutdownPhase::Running),
            next: Cell::new(0),
            wakers: RefCell::default(),
            ended: Notify::new(),
        }
    }

    pub(crate) fn phase(&self) -> ShutdownPhase {
        self.phase.get()
    }

    pub(crate) fn len(&self) -> usize {
        self.wakers.borrow().len()
    }

    /// Sets the phase and wakes everybody.
    pub(crate) fn advance(&self, phase: ShutdownPhase) {
        self.phase.set(phase);
        for waker in self.wakers.borrow().values().flatten() {
            waker.wake_by_ref();
        }
    }

    /// Waits until a connection ends, or returns at once if one ended since the last wait.
    pub(crate) async fn one_ended(&self) {
        self.ended.notified().await;
    }

    /// Waits until at most `count` connections are there.
    pub(crate) async fn at_most(&self, count: usize) {
        while self.len() > count {
            self.one_ended().await;
        }
    }

    /// Takes a place for a connection.
    pub(crate) fn insert(self: Rc<ConnectionSet>) -> ConnectionGuard {
        let number = self.next.replace(self.next.get() + 1);
        self.wakers.borrow_mut().insert(number, None);
        ConnectionGuard { set: self, number }
    }
}

impl ConnectionGuard {
    /// Has the calling task woken when the phase changes. Call it once, first thing in the
    /// connection's task: what wakes that task wakes everything it awaits.
    pub(crate) async fn register_waker(&self) {
        poll_fn(|task| {
            let waker = Some(task.waker().clone());
            self.set.wakers.borrow_mut().insert(self.number, waker);
            Poll::Ready(())
        })
        .await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.set.wakers.borrow_mut().remove(&self.number);
        self.set.ended.notify_one();
    }
}
