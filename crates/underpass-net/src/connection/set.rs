//! The connections of one worker, and how all of them see that the server stops.
//!
//! A connection looks at the phase whenever it is polled anyway: one load, nothing to register and
//! nothing to wake on the path of a request. When the phase changes, every connection is woken
//! once, so that those that wait see it.
//!
//! Connections are counted in groups, each with a maximum of its own: group 0 has the connections
//! of clients, the others those of administrative listeners.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker, ready};

use tokio::sync::Notify;

use crate::shutdown::phase::ShutdownPhase;

pub(crate) struct ConnectionSet {
    phase: Cell<ShutdownPhase>,
    next: Cell<u64>,
    /// None where a connection's task has not been polled yet.
    wakers: RefCell<HashMap<u64, Option<Waker>>>,
    groups: Vec<ConnectionGroup>,
    /// Notified whenever a connection ends. Only the worker's own loop waits for it.
    ended: Notify,
}

struct ConnectionGroup {
    count: Cell<usize>,
    max: usize,
}

/// Keeps a connection in its set. Dropping it removes the connection.
pub(crate) struct ConnectionGuard {
    set: Rc<ConnectionSet>,
    number: u64,
    group: usize,
}

/// The group of clients' connections.
pub(crate) const CLIENTS: usize = 0;

impl ConnectionSet {
    /// An empty set; `maxima` are those of the groups.
    pub(crate) fn new(maxima: impl IntoIterator<Item = usize>) -> ConnectionSet {
        let group = |max| ConnectionGroup {
            count: Cell::new(0),
            max,
        };
        ConnectionSet {
            phase: Cell::new(ShutdownPhase::Running),
            next: Cell::new(0),
            wakers: RefCell::default(),
            groups: maxima.into_iter().map(group).collect(),
            ended: Notify::new(),
        }
    }

    pub(crate) fn phase(&self) -> ShutdownPhase {
        self.phase.get()
    }

    /// How many there are, of all groups.
    pub(crate) fn len(&self) -> usize {
        self.wakers.borrow().len()
    }

    /// Whether a group may have one more.
    pub(crate) fn has_room(&self, group: usize) -> bool {
        let group = &self.groups[group];
        group.count.get() < group.max
    }

    /// Whether every group may have one more.
    pub(crate) fn all_have_room(&self) -> bool {
        (0..self.groups.len()).all(|group| self.has_room(group))
    }

    /// Sets the phase and wakes all connections.
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

    /// Waits until a group has room.
    pub(crate) async fn room(&self, group: usize) {
        self.until(|| self.has_room(group)).await;
    }

    /// Waits until there are no connections in a group.
    pub(crate) async fn none_in(&self, group: usize) {
        self.until(|| self.groups[group].count.get() == 0).await;
    }

    /// Waits until there are no connections at all.
    pub(crate) async fn none(&self) {
        self.until(|| self.len() == 0).await;
    }

    /// Looks again whenever the task wakes: another part of the worker's loop may have taken the
    /// notification.
    async fn until(&self, is_so: impl Fn() -> bool) {
        let mut ended = pin!(self.ended.notified());
        poll_fn(|task| {
            while !is_so() {
                ready!(ended.as_mut().poll(task));
                ended.set(self.ended.notified());
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Adds a connection.
    pub(crate) fn insert(self: Rc<ConnectionSet>, group: usize) -> ConnectionGuard {
        let number = self.next.replace(self.next.get() + 1);
        self.wakers.borrow_mut().insert(number, None);
        let count = &self.groups[group].count;
        count.set(count.get() + 1);
        ConnectionGuard {
            set: self,
            number,
            group,
        }
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
        let count = &self.set.groups[self.group].count;
        count.set(count.get() - 1);
        self.set.ended.notify_one();
    }
}
