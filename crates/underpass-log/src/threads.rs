//! The threads of a data folder: one writes, some sync.
//!
//! ```text
//!  append ─► queue ─► writer: all that is queued, a call per partition ─► answers (acks 0 and 1)
//!                        └─► syncers: all that is dirty, shared among them ─► answers (acks=all)
//! ```
//!
//! Appends that arrive during a call are handled together afterwards: the busier the disk, the more
//! records share a sync.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::appender::{AppendError, Appended};
use crate::batch::BatchBytes;
use crate::config::FlushPolicy;
use crate::partition::PartitionLog;
use crate::segment::lock;

/// When a producer gets its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Acks {
    /// Never.
    None,
    /// After the batch is written.
    Leader,
    /// After the batch is as safe as the flush policy makes it.
    All,
}

/// A callback for the result of an append. It runs on a thread of the log and must not block.
pub type Completion = Box<dyn FnOnce(Result<Appended, AppendError>) + Send>;

/// A callback with the numbers of the partitions where consumers may see more, once per round.
pub type WatermarkObserver = Box<dyn Fn(&[u64]) + Send + Sync>;

/// A batch to append.
pub struct Append {
    /// The partition.
    pub log: Arc<PartitionLog>,
    /// One whole batch that was checked.
    pub batch: BatchBytes,
    /// When to answer.
    pub acks: Acks,
    /// The callback for the result.
    pub done: Completion,
}

/// The state shared by appenders, the writer and the syncers.
pub(crate) struct LogThreads {
    flush: FlushPolicy,
    queue: Mutex<AppendQueue>,
    queued: Condvar,
    queued_bytes: AtomicU64,
    dirty: Mutex<Dirty>,
    is_dirty: Condvar,
    /// Whether a sync has failed.
    is_offline: AtomicBool,
    observer: WatermarkObserver,
    syncs: Mutex<SyncStats>,
}

/// Statistics of the syncs of partitions since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncStats {
    /// The number of syncs.
    pub count: u64,
    /// The sum of their durations.
    pub time: Duration,
}

#[derive(Default)]
struct AppendQueue {
    appends: Vec<Append>,
    is_closed: bool,
}

/// Partitions with unsynced data.
#[derive(Default)]
struct Dirty {
    partitions: HashMap<u64, DirtyPartition>,
    /// The partitions that are being synced.
    in_progress: HashSet<u64>,
    /// The earliest time at which a partition must be synced.
    due: Option<Instant>,
    is_closed: bool,
}

struct DirtyPartition {
    log: Arc<PartitionLog>,
    /// Pending answers, with the offset up to which each waits for a sync.
    waiting: Vec<(i64, Completion, Appended)>,
}

/// The number of syncer threads. Concurrent syncs of several files share a commit of the file
/// system's journal, while sequential ones need one each.
pub(crate) const SYNCERS: usize = 8;

impl Dirty {
    /// Takes the share of one syncer at this time; `None` if nothing is due.
    fn take_due(&mut self, now: Instant) -> Option<HashMap<u64, DirtyPartition>> {
        let is_due = self.is_closed || self.due.is_some_and(|due| due <= now);
        let share = is_due.then(|| self.take_share())?;
        (!share.is_empty()).then_some(share)
    }

    /// Whether a partition is unsynced that no syncer syncs. A syncer checks its partitions again
    /// afterwards and need not be woken for them.
    fn has_free(&self) -> bool {
        let mut numbers = self.partitions.keys();
        numbers.any(|number| !self.in_progress.contains(number))
    }

    /// Takes the share of one syncer from the partitions that no syncer syncs, and leaves the rest
    /// to the others. New data of a partition waits for its current sync and shares the next.
    fn take_share(&mut self) -> HashMap<u64, DirtyPartition> {
        let count = self.partitions.len().div_ceil(SYNCERS);
        let free = |number: &&u64| !self.in_progress.contains(number);
        let numbers = self.partitions.keys().filter(free).take(count);
        let numbers: Vec<_> = numbers.copied().collect();
        let mut share = HashMap::new();
        for number in numbers {
            share.extend(self.partitions.remove_entry(&number));
            self.in_progress.insert(number);
        }
        if self.partitions.is_empty() {
            self.due = None;
        }
        share
    }
}

/// The longest time that records stay unsynced if no answer waits for them.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

impl LogThreads {
    pub(crate) fn new(flush: FlushPolicy, observer: WatermarkObserver) -> LogThreads {
        LogThreads {
            flush,
            queue: Mutex::default(),
            queued: Condvar::new(),
            queued_bytes: AtomicU64::new(0),
            dirty: Mutex::default(),
            is_dirty: Condvar::new(),
            is_offline: AtomicBool::new(false),
            observer,
            syncs: Mutex::default(),
        }
    }

    /// Queues a batch. Appends of one thread to one partition stay in order.
    pub(crate) fn append(&self, append: Append) {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            drop(queue);
            return (append.done)(Err(AppendError::Closed));
        }
        let bytes = append.batch.len() as u64;
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        queue.appends.push(append);
        if queue.appends.len() == 1 {
            self.queued.notify_one();
        }
    }

    /// Calls `done` when the written records before an offset are as safe as those acknowledged to
    /// producers.
    pub(crate) fn when_safe(&self, log: &Arc<PartitionLog>, offset: i64, done: Completion) {
        let offsets = log.offsets();
        let next_offset = offset.min(offsets.end);
        let reached = Appended {
            base_offset: next_offset,
            next_offset,
        };
        match self.gates(Acks::All) && offsets.synced < next_offset {
            true => self.add_dirty(log, vec![(next_offset, done, reached)]),
            false => done(Ok(reached)),
        }
    }

    /// Returns the number of bytes waiting to be written.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn syncs(&self) -> SyncStats {
        *lock(&self.syncs)
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.is_offline.load(Ordering::Acquire)
    }

    /// Stops all threads after everything is written and synced.
    pub(crate) fn close_queue(&self) {
        lock(&self.queue).is_closed = true;
        self.queued.notify_one();
    }

    fn close_dirty(&self) {
        lock(&self.dirty).is_closed = true;
        self.is_dirty.notify_all();
    }

    /// Runs the writer thread.
    pub(crate) fn write(&self) {
        while let Some(appends) = self.take_queue() {
            self.write_round(appends);
        }
        self.close_dirty();
    }

    fn take_queue(&self) -> Option<Vec<Append>> {
        let mut queue = lock(&self.queue);
        while queue.appends.is_empty() {
            if queue.is_closed {
                return None;
            }
            queue = self
                .queued
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Some(mem::take(&mut queue.appends))
    }

    fn write_round(&self, appends: Vec<Append>) {
        let mut rounds: Vec<PartitionRound> = Vec::new();
        let mut numbers = HashMap::new();
        for append in appends {
            let bytes = append.batch.len() as u64;
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let number = *numbers.entry(append.log.number()).or_insert(rounds.len());
            if number == rounds.len() {
                rounds.push(PartitionRound::of(Arc::clone(&append.log)));
            }
            rounds[number].add(append);
        }
        let mut moved = Vec::new();
        for round in rounds {
            let number = round.log.number();
            if self.write_partition(round) {
                moved.push(number);
            }
        }
        if !moved.is_empty() {
            (self.observer)(&moved);
        }
    }

    /// Writes the queued batches of a partition. Returns whether consumers may see more.
    fn write_partition(&self, round: PartitionRound) -> bool {
        let log = round.log;
        let refused = match () {
            () if self.is_offline() => Some(AppendError::Offline),
            () if log.is_deleted() => Some(AppendError::Closed),
            () => None,
        };
        if let Some(refused) = refused {
            for (_, done) in round.answers {
                done(Err(match refused {
                    AppendError::Offline => AppendError::Offline,
                    _ => AppendError::Closed,
                }));
            }
            return false;
        }
        let outcomes = log.append_all(&round.batches);
        let must_flush = self.has_flush_interval(&log);
        let (mut shown, mut waiting, mut answered) = (None, Vec::new(), Vec::new());
        for ((acks, done), outcome) in round.answers.into_iter().zip(outcomes) {
            match outcome {
                Ok(appended) if self.gates(acks) || must_flush => {
                    waiting.push((appended.next_offset, done, appended));
                }
                Ok(appended) => {
                    shown = shown.max(Some(appended.next_offset));
                    answered.push((done, appended));
                }
                Err(error) => done(Err(error)),
            }
        }
        self.add_dirty(&log, waiting);
        // A producer that has its answer finds its own records.
        let is_moved = shown.is_some_and(|offset| log.show_written(offset));
        for (done, appended) in answered {
            done(Ok(appended));
        }
        is_moved
    }

    /// Does one round of the writer.
    #[cfg(test)]
    pub(crate) fn write_queued(&self) {
        self.write_round(mem::take(&mut lock(&self.queue).appends));
    }

    /// Does one round of a syncer.
    #[cfg(test)]
    pub(crate) fn sync_dirty(&self) {
        self.sync_round(mem::take(&mut lock(&self.dirty).partitions));
    }

    /// Returns the time when the next sync is due.
    #[cfg(test)]
    pub(crate) fn sync_due(&self) -> Option<Instant> {
        lock(&self.dirty).due
    }

    /// Does the work of a syncer at this time. Returns whether a sync was due.
    #[cfg(test)]
    pub(crate) fn sync_due_at(&self, now: Instant) -> bool {
        let share = lock(&self.dirty).take_due(now);
        let share = share.map(|share| self.sync_share(share));
        share.is_some()
    }

    /// Whether the answer to an append waits for a sync.
    fn gates(&self, acks: Acks) -> bool {
        self.flush == FlushPolicy::Acks && acks == Acks::All
    }

    /// Whether a topic has as many unsynced records as `flush.messages` allows.
    fn has_flush_interval(&self, log: &PartitionLog) -> bool {
        let messages = log.config().flush_messages;
        messages != u64::MAX && lock(&log.appender).unsynced_records >= messages
    }

    fn add_dirty(&self, log: &Arc<PartitionLog>, waiting: Vec<(i64, Completion, Appended)>) {
        let is_urgent = !waiting.is_empty();
        let flush_ms = Duration::from_millis(log.config().flush_ms);
        let delay = match self.flush {
            FlushPolicy::Never => flush_ms,
            FlushPolicy::Acks | FlushPolicy::Interval => flush_ms.min(SYNC_INTERVAL),
        };
        let due = match is_urgent {
            true => Some(Instant::now()),
            false => Instant::now().checked_add(delay),
        };
        let mut dirty = lock(&self.dirty);
        if dirty.is_closed {
            // The writer has stopped, and the syncers may have.
            drop(dirty);
            return waiting
                .into_iter()
                .for_each(|(_, done, _)| done(Err(AppendError::Closed)));
        }
        let partition = dirty.partitions.entry(log.number());
        let partition = partition.or_insert_with(|| DirtyPartition {
            log: Arc::clone(log),
            waiting: Vec::new(),
        });
        partition.waiting.extend(waiting);
        let is_sooner = due.is_some_and(|due| dirty.due.is_none_or(|other| due < other));
        if is_sooner {
            dirty.due = due;
        }
        // A syncer that is syncing the partition checks it again afterwards. An earlier due time
        // may belong to partitions that are being synced.
        let wakes = match is_urgent {
            true => !dirty.in_progress.contains(&log.number()),
            false => is_sooner,
        };
        drop(dirty);
        if wakes {
            self.is_dirty.notify_one();
        }
    }

    /// Runs a syncer thread.
    pub(crate) fn sync(&self) {
        while let Some(share) = self.take_dirty() {
            self.sync_share(share);
        }
    }

    fn sync_share(&self, share: HashMap<u64, DirtyPartition>) {
        let numbers: Vec<_> = share.keys().copied().collect();
        self.sync_round(share);
        let mut dirty = lock(&self.dirty);
        for number in numbers {
            dirty.in_progress.remove(&number);
        }
    }

    fn take_dirty(&self) -> Option<HashMap<u64, DirtyPartition>> {
        let mut dirty = lock(&self.dirty);
        loop {
            let now = Instant::now();
            if dirty.is_closed && dirty.partitions.is_empty() {
                // Wake the other syncers so that they stop, too.
                self.is_dirty.notify_all();
                return None;
            }
            if let Some(share) = dirty.take_due(now) {
                let has_more = dirty.has_free();
                drop(dirty);
                if has_more {
                    self.is_dirty.notify_one();
                }
                return Some(share);
            }
            dirty = match dirty.due.filter(|due| *due > now) {
                Some(due) => {
                    let waited = self.is_dirty.wait_timeout(dirty, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .is_dirty
                    .wait(dirty)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn sync_round(&self, dirty: HashMap<u64, DirtyPartition>) {
        let mut moved = Vec::new();
        for (number, partition) in dirty {
            let DirtyPartition { log, waiting } = partition;
            let begun = Instant::now();
            let synced = log.sync();
            let mut syncs = lock(&self.syncs);
            syncs.count += 1;
            syncs.time += begun.elapsed();
            drop(syncs);
            match synced {
                Ok(_) if log.is_deleted() => {
                    for (_, done, _) in waiting {
                        done(Err(AppendError::Closed));
                    }
                }
                Ok(end) if !self.is_offline() => {
                    if log.show_until(end) {
                        moved.push(number);
                    }
                    for (offset, done, appended) in waiting {
                        // The batch was written before this sync started.
                        debug_assert!(offset <= end.offset);
                        done(Ok(appended));
                    }
                    self.finish_sealed(&log);
                }
                outcome => {
                    if let Err(error) = outcome {
                        self.set_offline(&log, &error);
                    }
                    for (_, done, _) in waiting {
                        done(Err(AppendError::Offline));
                    }
                }
            }
        }
        if !moved.is_empty() {
            (self.observer)(&moved);
        }
    }

    fn finish_sealed(&self, log: &PartitionLog) {
        if let Err(error) = log.finish_sealed() {
            tracing::warn!(
                "{}: the indexes of a full segment cannot be written, which is tried again every \
                 second: {error}",
                log.name()
            );
        }
    }

    /// Takes the data folder offline: after a failed sync the kernel may have dropped dirty pages,
    /// and another sync would not report them.
    fn set_offline(&self, log: &PartitionLog, error: &std::io::Error) {
        self.is_offline.store(true, Ordering::Release);
        tracing::error!(
            "{}: {error} while it was synced; nothing is appended to this data folder until the \
             broker is started again",
            log.name()
        );
    }
}

/// The queued appends of a partition.
struct PartitionRound {
    log: Arc<PartitionLog>,
    batches: Vec<BatchBytes>,
    answers: Vec<(Acks, Completion)>,
}

impl PartitionRound {
    fn of(log: Arc<PartitionLog>) -> PartitionRound {
        PartitionRound {
            log,
            batches: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn add(&mut self, append: Append) {
        self.batches.push(append.batch);
        self.answers.push((append.acks, append.done));
    }
}
