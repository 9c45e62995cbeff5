//! The worker threads, and the thread that walks.
//!
//! The walk submits batches of names, each of one folder, through a short queue: the kernel locks a
//! folder while a file is created in it, so one worker per folder is best. While the queue is full
//! the walk copies a batch itself, so that N jobs are N threads at work. A worker with a long batch
//! gives half of it away when another worker is idle.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::tree::level::Task;

/// Batches in the queue. Each holds two descriptors of its folder at most.
const QUEUE_MAX: usize = 64;

/// Names in a batch.
pub(crate) const BATCH_MAX: usize = 64;

/// What is to be done, or the end of all.
type PoolMessage = Option<Batch>;

/// Names of one folder.
pub(crate) type Batch = VecDeque<Task>;

#[derive(Debug)]
struct BatchQueue {
    to: Sender<PoolMessage>,
    from: Receiver<PoolMessage>,
}

/// Where tasks go.
pub(crate) struct WorkerPool {
    queue: Option<BatchQueue>,
    /// Batches handed out and not done.
    under_way: Mutex<usize>,
    /// Workers that wait for a batch.
    idle: AtomicUsize,
    all_done: Condvar,
}

impl WorkerPool {
    /// A crew of `jobs` threads, the one that walks included.
    pub(crate) fn of(jobs: usize) -> Self {
        let queue = || {
            let (to, from) = bounded(QUEUE_MAX);
            BatchQueue { to, from }
        };
        Self {
            queue: (jobs > 1).then(queue),
            under_way: Mutex::new(0),
            idle: AtomicUsize::new(0),
            all_done: Condvar::new(),
        }
    }

    /// Whether there are workers beside the thread that walks.
    pub(crate) fn has_others(&self) -> bool {
        self.queue.is_some()
    }

    /// The work of one of the others, until it is dismissed.
    pub(crate) fn work(&self, run: &dyn Fn(Task)) {
        let Some(queue) = &self.queue else { return };
        loop {
            self.idle.fetch_add(1, Relaxed);
            let order = queue.from.recv();
            self.idle.fetch_sub(1, Relaxed);
            match order {
                Ok(Some(batch)) => self.perform(batch, run),
                Ok(None) | Err(_) => break,
            }
        }
    }

    /// Has a batch copied by a worker, or by the calling thread where the queue is full.
    pub(crate) fn submit(&self, batch: Batch, run: &dyn Fn(Task)) {
        *self.under_way() += 1;
        if let Err(batch) = self.offer(batch) {
            self.perform(batch, run);
        }
    }

    fn offer(&self, batch: Batch) -> Result<(), Batch> {
        let Some(queue) = &self.queue else {
            return Err(batch);
        };
        match queue.to.try_send(Some(batch)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                Err(batch.unwrap_or_default())
            }
        }
    }

    /// Blocks until all that was handed out is done, and helps.
    pub(crate) fn drain(&self, run: &dyn Fn(Task)) {
        let Some(queue) = &self.queue else { return };
        while let Ok(Some(batch)) = queue.from.try_recv() {
            self.perform(batch, run);
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

    fn perform(&self, mut batch: Batch, run: &dyn Fn(Task)) {
        let _done = BatchGuard(self);
        while let Some(task) = batch.pop_front() {
            self.share(&mut batch);
            run(task);
        }
    }

    /// Gives half of what is left to an idle worker.
    fn share(&self, batch: &mut Batch) {
        let Some(queue) = &self.queue else { return };
        if batch.is_empty() || self.idle.load(Relaxed) == 0 || !queue.to.is_empty() {
            return;
        }
        let half = batch.split_off(batch.len() / 2);
        *self.under_way() += 1;
        if let Err(mut half) = self.offer(half) {
            *self.under_way() -= 1;
            batch.append(&mut half);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, usize> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a batch as done, also where a task panicked: otherwise `drain` would never return.
struct BatchGuard<'c>(&'c WorkerPool);

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way();
        *under_way -= 1;
        // Without other workers nothing waits, and waking nothing is a system call as well.
        if *under_way == 0 && self.0.has_others() {
            self.0.all_done.notify_all();
        }
    }
}
