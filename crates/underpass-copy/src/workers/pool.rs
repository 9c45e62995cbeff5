//! The worker threads, and the walking thread.
//!
//! The walk submits batches of names, each of one folder, through a short queue: the kernel locks a
//! folder while a file is created in it, so one worker per folder is best. While the queue is full
//! the walk copies a batch itself, so that N jobs keep N threads busy. A worker with a long batch
//! gives half of it away when another worker is idle.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::tree::level::Task;

/// Names in a batch.
pub(crate) const BATCH_MAX: usize = 64;

/// Names of one folder.
pub(crate) type Batch = VecDeque<Task>;

/// The workers other than the walking thread, and their queue: a batch, or the end.
pub(crate) struct WorkerPool {
    to: Sender<Option<Batch>>,
    from: Receiver<Option<Batch>>,
    /// Batches submitted and not done.
    under_way: Mutex<usize>,
    /// Workers that wait for a batch.
    idle: AtomicUsize,
    all_done: Condvar,
}

impl WorkerPool {
    /// Creates a pool with a queue of `batches_max` batches, at most two folder descriptors each.
    pub(crate) fn new(batches_max: usize) -> Self {
        let (to, from) = bounded(batches_max);
        Self {
            to,
            from,
            under_way: Mutex::new(0),
            idle: AtomicUsize::new(0),
            all_done: Condvar::new(),
        }
    }

    /// Runs one worker until it is dismissed.
    pub(crate) fn work(&self, run: &dyn Fn(Task)) {
        loop {
            self.idle.fetch_add(1, Relaxed);
            let order = self.from.recv();
            self.idle.fetch_sub(1, Relaxed);
            match order {
                Ok(Some(batch)) => self.perform(batch, run),
                Ok(None) | Err(_) => break,
            }
        }
    }

    /// Submits a batch to the workers, or copies it on the calling thread if the queue is full.
    pub(crate) fn submit(&self, batch: Batch, run: &dyn Fn(Task)) {
        *self.under_way() += 1;
        if let Err(batch) = self.offer(batch) {
            self.perform(batch, run);
        }
    }

    fn offer(&self, batch: Batch) -> Result<(), Batch> {
        match self.to.try_send(Some(batch)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                Err(batch.unwrap_or_default())
            }
        }
    }

    /// Copies batches from the queue, then blocks until all submitted ones are done.
    pub(crate) fn drain(&self, run: &dyn Fn(Task)) {
        while let Ok(Some(batch)) = self.from.try_recv() {
            self.perform(batch, run);
        }
        let mut under_way = self.under_way();
        while *under_way > 0 {
            let woken = self.all_done.wait(under_way);
            under_way = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Dismisses one worker, once all batches submitted before are taken.
    pub(crate) fn dismiss(&self) {
        let _gone = self.to.send(None);
    }

    fn perform(&self, mut batch: Batch, run: &dyn Fn(Task)) {
        let _done = BatchGuard(self);
        while let Some(task) = batch.pop_front() {
            self.share(&mut batch);
            run(task);
        }
    }

    /// Gives half of the remaining batch to an idle worker.
    fn share(&self, batch: &mut Batch) {
        if batch.is_empty() || self.idle.load(Relaxed) == 0 || !self.to.is_empty() {
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

/// Counts a batch as done, even if a task panicked: otherwise `drain` would never return.
struct BatchGuard<'c>(&'c WorkerPool);

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way();
        *under_way -= 1;
        if *under_way == 0 {
            self.0.all_done.notify_all();
        }
    }
}
