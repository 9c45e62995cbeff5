//! Those who copy: the thread that walks, and others beside it.
//!
//! The walk hands out names through a short queue. While it is full the walk copies one itself, so
//! that N jobs are N threads at work, and what is queued stays little.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

/// Names that wait for a hand, per crew. Each holds two descriptors of its folder at most.
const QUEUE_MAX: usize = 128;

/// A task, or the end of all.
type Order<T> = Option<T>;

#[derive(Debug)]
struct Queue<T> {
    to: Sender<Order<T>>,
    from: Receiver<Order<T>>,
}

/// Where tasks go.
pub(crate) struct Crew<T> {
    queue: Option<Queue<T>>,
    /// Tasks handed out and not done.
    under_way: Mutex<usize>,
    all_done: Condvar,
}

impl<T> Crew<T> {
    /// A crew of `jobs` threads, the one that walks included.
    pub(crate) fn of(jobs: usize) -> Self {
        let queue = || {
            let (to, from) = bounded(QUEUE_MAX);
            Queue { to, from }
        };
        Self {
            queue: (jobs > 1).then(queue),
            under_way: Mutex::new(0),
            all_done: Condvar::new(),
        }
    }

    /// Whether anybody works beside the one who walks.
    pub(crate) fn has_others(&self) -> bool {
        self.queue.is_some()
    }

    /// The work of one of the others, until it is dismissed.
    pub(crate) fn work(&self, run: &dyn Fn(T)) {
        if let Some(queue) = &self.queue {
            for order in &queue.from {
                match order {
                    Some(task) => self.perform(task, run),
                    None => break,
                }
            }
        }
    }

    /// Has `task` done, by somebody, some time, or here and now.
    pub(crate) fn submit(&self, task: T, run: &dyn Fn(T)) {
        let Some(queue) = &self.queue else {
            return run(task);
        };
        *self.under_way() += 1;
        match queue.to.try_send(Some(task)) {
            Err(TrySendError::Full(Some(task)) | TrySendError::Disconnected(Some(task))) => {
                self.perform(task, run);
            }
            _ => (),
        }
    }

    /// Blocks until all tasks handed out are done, and helps.
    pub(crate) fn drain(&self, run: &dyn Fn(T)) {
        let Some(queue) = &self.queue else {
            return;
        };
        while let Ok(Some(task)) = queue.from.try_recv() {
            self.perform(task, run);
        }
        let mut under_way = self.under_way();
        while *under_way > 0 {
            let woken = self.all_done.wait(under_way);
            under_way = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends one of the others home, once all that was handed out before is taken.
    pub(crate) fn dismiss(&self) {
        if let Some(queue) = &self.queue {
            let _gone = queue.to.send(None);
        }
    }

    fn perform(&self, task: T, run: &dyn Fn(T)) {
        let _done = Done(self);
        run(task);
    }

    fn under_way(&self) -> MutexGuard<'_, usize> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task counts as done also where it panicked: whoever waits for it must not wait for ever.
struct Done<'c, T>(&'c Crew<T>);

impl<T> Drop for Done<'_, T> {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way();
        *under_way -= 1;
        if *under_way == 0 {
            self.0.all_done.notify_all();
        }
    }
}
