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

use crate::server::shutdown::Phase;

pub(crate) struct Roster {
    phase: Cell<Phase>,
    next: Cell<u64>,
    /// Nobody to wake yet where a connection's task has not been polled.
    wakers: RefCell<HashMap<u64, Option<Waker>>>,
    /// Told whenever a connection ends. Only the worker's own loop waits for it.
    left: Notify,
}

/// A connection's place on the roster. It is free again when this is dropped.
pub(crate) struct Place {
    roster: Rc<Roster>,
    number: u64,
}

impl Roster {
    pub(crate) fn new() -> Roster {
        Roster {
            phase: Cell::new(Phase::Running),
            next: Cell::new(0),
            wakers: RefCell::default(),
            left: Notify::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(crate) fn len(&self) -> usize {
        self.wakers.borrow().len()
    }

    /// Sets the phase and wakes everybody.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.set(phase);
        for waker in self.wakers.borrow().values().flatten() {
            waker.wake_by_ref();
        }
    }

    /// Waits until a connection ends, or returns at once if one ended since the last wait.
    pub(crate) async fn somebody_left(&self) {
        self.left.notified().await;
    }

    /// Waits until at most `count` connections are there.
    pub(crate) async fn at_most(&self, count: usize) {
        while self.len() > count {
            self.somebody_left().await;
        }
    }

    /// Takes a place for a connection.
    pub(crate) fn enter(self: Rc<Roster>) -> Place {
        let number = self.next.replace(self.next.get() + 1);
        self.wakers.borrow_mut().insert(number, None);
        Place {
            roster: self,
            number,
        }
    }
}

impl Place {
    /// Has the calling task woken when the phase changes. Call it once, first thing in the
    /// connection's task: what wakes that task wakes everything it awaits.
    pub(crate) async fn attend(&self) {
        poll_fn(|task| {
            let waker = Some(task.waker().clone());
            self.roster.wakers.borrow_mut().insert(self.number, waker);
            Poll::Ready(())
        })
        .await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.roster.wakers.borrow_mut().remove(&self.number);
        self.roster.left.notify_one();
    }
}
