//! Fetches that wait for records, with one wake-up per worker and round of the log.
//!
//! ```text
//!  log thread ── moved ─► each worker's list ── one wake-up ─► its fetches of those partitions
//! ```

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::task::spawn_local;

use crate::lock::lock;

/// The number of a partition, unique in this process.
pub(crate) type PartitionNumber = u64;

/// The lists of all workers.
#[derive(Debug, Default)]
pub(crate) struct MovedLists(Mutex<Vec<Arc<MovedList>>>);

/// The partitions whose high watermark has moved since a worker looked.
#[derive(Debug, Default)]
struct MovedList {
    moved: Mutex<Vec<PartitionNumber>>,
    wake: Notify,
}

/// The waiting fetches of a worker.
#[derive(Debug)]
pub(crate) struct FetchWaiters {
    list: Arc<MovedList>,
    waiting: RefCell<HashMap<PartitionNumber, Vec<Rc<Notify>>>>,
    listens: Cell<bool>,
}

/// A fetch that waits for partitions. Dropping it cancels the wait.
pub(crate) struct FetchWaiter {
    waiters: Rc<FetchWaiters>,
    partitions: Vec<PartitionNumber>,
    wake: Rc<Notify>,
}

impl MovedLists {
    /// Makes the waiters of a new worker.
    pub(crate) fn worker(&self) -> FetchWaiters {
        let list = Arc::<MovedList>::default();
        lock(&self.0).push(Arc::clone(&list));
        FetchWaiters {
            list,
            waiting: RefCell::default(),
            listens: Cell::new(false),
        }
    }

    /// Wakes the workers. A thread of the log calls it once for all partitions of a round.
    pub(crate) fn report(&self, moved: &[PartitionNumber]) {
        let mut lists = lock(&self.0);
        // Lists of stopped workers.
        lists.retain(|list| Arc::strong_count(list) > 1);
        for list in &*lists {
            lock(&list.moved).extend_from_slice(moved);
            list.wake.notify_one();
        }
    }
}

impl FetchWaiters {
    /// Starts to wait for these partitions. Check them after this call.
    pub(crate) fn wait_for(self: &Rc<Self>, partitions: Vec<PartitionNumber>) -> FetchWaiter {
        if !self.listens.replace(true) {
            spawn_local(Rc::clone(self).listen());
        }
        let wake = Rc::<Notify>::default();
        let mut waiting = self.waiting.borrow_mut();
        for partition in &partitions {
            let fetches = waiting.entry(*partition).or_default();
            fetches.push(Rc::clone(&wake));
        }
        FetchWaiter {
            waiters: Rc::clone(self),
            partitions,
            wake,
        }
    }

    async fn listen(self: Rc<Self>) {
        loop {
            self.list.wake.notified().await;
            let mut moved = mem::take(&mut *lock(&self.list.moved));
            moved.sort_unstable();
            moved.dedup();
            let waiting = self.waiting.borrow();
            let fetches = moved.iter().filter_map(|partition| waiting.get(partition));
            fetches.flatten().for_each(|fetch| fetch.notify_one());
        }
    }
}

impl FetchWaiter {
    /// Waits until one of the partitions has moved since the last call. Cancel safe.
    pub(crate) async fn moved(&self) {
        self.wake.notified().await;
    }
}

impl Drop for FetchWaiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting.borrow_mut();
        for partition in &self.partitions {
            if let Some(fetches) = waiting.get_mut(partition) {
                fetches.retain(|fetch| !Rc::ptr_eq(fetch, &self.wake));
                if fetches.is_empty() {
                    waiting.remove(partition);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::LocalSet;
    use tokio::time::timeout;

    use super::*;

    async fn is_woken(waiter: &FetchWaiter) -> bool {
        let wait = Duration::from_millis(20);
        timeout(wait, waiter.moved()).await.is_ok()
    }

    fn on_a_worker(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(work));
    }

    #[test]
    fn a_fetch_is_woken_by_its_own_partitions() {
        on_a_worker(async {
            let lists = MovedLists::default();
            let waiters = Rc::new(lists.worker());
            let one = waiters.wait_for(vec![1, 2]);
            let other = waiters.wait_for(vec![2, 3]);
            lists.report(&[1, 9]);
            one.moved().await;
            assert!(!is_woken(&other).await);
            lists.report(&[2]);
            one.moved().await;
            other.moved().await;
            lists.report(&[3]);
            other.moved().await;
            assert!(!is_woken(&one).await);
        });
    }

    #[test]
    fn a_fetch_that_has_ended_leaves_nothing() {
        on_a_worker(async {
            let lists = MovedLists::default();
            let waiters = Rc::new(lists.worker());
            let one = waiters.wait_for(vec![1]);
            drop(waiters.wait_for(vec![1, 2]));
            assert_eq!(waiters.waiting.borrow().len(), 1);
            drop(one);
            assert!(waiters.waiting.borrow().is_empty());
            lists.report(&[1]);
        });
    }

    #[test]
    fn lists_of_workers_that_have_ended_are_forgotten() {
        let lists = MovedLists::default();
        drop(lists.worker());
        let _stays = lists.worker();
        lists.report(&[1]);
        assert_eq!(lock(&lists.0).len(), 1);
    }
}
