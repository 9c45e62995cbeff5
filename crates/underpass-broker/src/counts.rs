//! Counters of workers, each with one writer and any number of readers.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use underpass::{Account, Mechanism, SendStats};

use crate::lock::lock;
use crate::protocol::apis::APIS;

/// The counters of one worker, in memory that no other worker writes to. First the requests in the
/// order of [`APIS`], then the records in the order of mechanisms, then the others.
#[derive(Debug)]
pub(crate) struct WorkerCounts([AtomicU64; COUNTERS]);

const REQUESTS: usize = 0;
const RECORD_BYTES: usize = REQUESTS + APIS.len();
const RECORD_CALLS: usize = RECORD_BYTES + Mechanism::ALL.len();
const OTHER_BYTES: usize = RECORD_CALLS + Mechanism::ALL.len();
const REQUEST_BYTES: usize = OTHER_BYTES + 1;
const ACCEPTED: usize = REQUEST_BYTES + 1;
const ENDED: usize = ACCEPTED + 1;
const COUNTERS: usize = ENDED + 1;

/// The counters of all workers.
#[derive(Debug, Default)]
pub(crate) struct BrokerCounts(Mutex<CountedWorkers>);

#[derive(Debug, Default)]
struct CountedWorkers {
    present: Vec<Arc<WorkerCounts>>,
    /// The sum of the counters of stopped workers.
    ended: WorkerCounts,
}

impl Default for WorkerCounts {
    fn default() -> WorkerCounts {
        WorkerCounts(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl WorkerCounts {
    /// Adds with a load and a store, since there is one writer.
    fn count(&self, number: usize, more: u64) {
        let counted = self.value(number).wrapping_add(more);
        self.0[number].store(counted, Ordering::Relaxed);
    }

    fn value(&self, number: usize) -> u64 {
        self.0[number].load(Ordering::Relaxed)
    }

    pub(crate) fn connection_begins(&self) {
        self.count(ACCEPTED, 1);
    }

    pub(crate) fn connection_ends(&self) {
        self.count(ENDED, 1);
    }

    /// Counts a request with this API key and size.
    pub(crate) fn request(&self, key: i16, bytes: usize) {
        if let Some(number) = APIS.iter().position(|api| api.key == key) {
            self.count(REQUESTS + number, 1);
        }
        self.count(REQUEST_BYTES, bytes as u64);
    }

    /// Counts sent bytes.
    pub(crate) fn sent(&self, records: &Account, beside: &SendStats) {
        for (number, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            let usage = records.of(mechanism);
            if usage.calls > 0 {
                self.count(RECORD_BYTES + number, usage.bytes);
                self.count(RECORD_CALLS + number, usage.calls);
            }
        }
        self.count(OTHER_BYTES, beside.bytes);
    }

    /// Returns the number of requests for each of [`APIS`].
    pub(crate) fn requests(&self) -> impl Iterator<Item = u64> {
        (REQUESTS..RECORD_BYTES).map(|number| self.value(number))
    }

    pub(crate) fn request_bytes(&self) -> u64 {
        self.value(REQUEST_BYTES)
    }

    /// Returns the bytes of sent records for each of [`Mechanism::ALL`].
    pub(crate) fn record_bytes(&self) -> Vec<u64> {
        let numbers = RECORD_BYTES..RECORD_CALLS;
        numbers.map(|number| self.value(number)).collect()
    }

    /// Returns the calls that sent these records.
    pub(crate) fn record_calls(&self) -> Vec<u64> {
        let numbers = RECORD_CALLS..OTHER_BYTES;
        numbers.map(|number| self.value(number)).collect()
    }

    /// Returns the sent bytes that are not records.
    pub(crate) fn other_bytes(&self) -> u64 {
        self.value(OTHER_BYTES)
    }

    /// Returns the numbers of connections accepted and ended.
    pub(crate) fn connections(&self) -> (u64, u64) {
        (self.value(ACCEPTED), self.value(ENDED))
    }

    fn add(&self, other: &WorkerCounts) {
        for number in 0..COUNTERS {
            self.count(number, other.value(number));
        }
    }
}

impl BrokerCounts {
    /// Makes the counters of a new worker.
    pub(crate) fn worker(&self) -> Arc<WorkerCounts> {
        let counts = Arc::<WorkerCounts>::default();
        let CountedWorkers { present, ended } = &mut *lock(&self.0);
        // Keep the counts of stopped workers.
        present.retain(|worker| {
            let runs = Arc::strong_count(worker) > 1;
            if !runs {
                ended.add(worker);
            }
            runs
        });
        present.push(Arc::clone(&counts));
        counts
    }

    /// Returns the sum of all counters, and the number of workers.
    pub(crate) fn totals(&self) -> (WorkerCounts, usize) {
        let workers = lock(&self.0);
        let totals = WorkerCounts::default();
        totals.add(&workers.ended);
        workers.present.iter().for_each(|worker| totals.add(worker));
        let runs = |worker: &&Arc<WorkerCounts>| Arc::strong_count(worker) > 1;
        (totals, workers.present.iter().filter(runs).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_counted_that_have_ended_is_not_lost() {
        let counts = BrokerCounts::default();
        let first = counts.worker();
        first.request(1, 100);
        first.connection_begins();
        drop(first);
        let second = counts.worker();
        second.request(1, 10);
        let mut account = Account::default();
        account.record(Mechanism::Sendfile, 1000, 2);
        second.sent(&account, &SendStats::default());
        for _ in 0..3 {
            let _ends = counts.worker();
        }
        let (totals, workers) = counts.totals();
        assert_eq!(workers, 1);
        let value = |number: usize| totals.value(number);
        assert_eq!((value(REQUESTS + 1), value(REQUEST_BYTES)), (2, 110));
        assert_eq!((value(ACCEPTED), value(ENDED)), (1, 0));
        let sent: u64 = (RECORD_BYTES..RECORD_CALLS).map(value).sum();
        assert_eq!(sent, 1000);
    }
}
