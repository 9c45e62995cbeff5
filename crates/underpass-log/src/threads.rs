//! The threads of a data folder: one writes, some sync.
//!
//! ```text
//!  append ─► queue ─► writer: all that is queued, a call per partition ─► answers (acks 0 and 1)
//!                        └─► syncers: all that is dirty, shared among them ─► answers (acks=all)
//! ```
//!
//! Whatever comes while a call is in progress is taken together afterwards: the busier the disk,
//! the more records share a sync.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::appender::{AppendError, Appended};
use crate::batch::BatchBytes;
use crate::config::FlushPolicy;
use crate::partition::PartitionLog;
use crate::segment::lock;

/// When a producer wants its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Acks {
    /// Not at all.
    None,
    /// Once the batch is written.
    Leader,
    /// Once it is as safe as the flush policy makes it.
    All,
}

/// Receives the outcome of an append, on a thread of the log: it must not block.
pub type Completion = Box<dyn FnOnce(Result<Appended, AppendError>) + Send>;

/// Told on a thread of the log, once per round, of which partitions consumers may see more.
pub type WatermarkObserver = Box<dyn Fn(&[u64]) + Send + Sync>;

/// A batch to append.
pub struct Append {
    /// The partition.
    pub log: Arc<PartitionLog>,
    /// One whole batch, checked.
    pub batch: BatchBytes,
    /// When it is answered.
    pub acks: Acks,
    /// The answer.
    pub done: Completion,
}

/// What appenders, the writer and the syncer share.
pub(crate) struct LogThreads {
    flush: FlushPolicy,
    queue: Mutex<AppendQueue>,
    queued: Condvar,
    queued_bytes: AtomicU64,
    dirty: Mutex<Dirty>,
    is_dirty: Condvar,
    /// Since a sync has failed.
    is_offline: AtomicBool,
    observer: WatermarkObserver,
    syncs: Mutex<SyncStats>,
}

/// Syncs of partitions, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncStats {
    /// How many there were.
    pub count: u64,
    /// How long they took, one behind the other.
    pub time: Duration,
}

#[derive(Default)]
struct AppendQueue {
    appends: Vec<Append>,
    is_closed: bool,
}

/// What has to be synced.
#[derive(Default)]
struct Dirty {
    partitions: HashMap<u64, DirtyPartition>,
    /// Those that a syncer syncs.
    in_progress: HashSet<u64>,
    /// The earliest time at which something has to be synced.
    due: Option<Instant>,
    is_closed: bool,
}

struct DirtyPartition {
    log: Arc<PartitionLog>,
    /// Answers that wait, with the offset up to which each does.
    waiting: Vec<(i64, Completion, Appended)>,
}

/// Threads that sync. Syncs of several files that are under way together share a commit of the file
/// system's journal, where one behind the other has one each.
pub(crate) const SYNCERS: usize = 8;

impl Dirty {
    /// What one syncer syncs at this time, if something is due.
    fn take_due(&mut self, now: Instant) -> Option<HashMap<u64, DirtyPartition>> {
        let is_due = self.is_closed || self.due.is_some_and(|due| due <= now);
        let share = is_due.then(|| self.take_share())?;
        (!share.is_empty()).then_some(share)
    }

    /// Whether there is something that nobody syncs. Whoever syncs a partition looks again
    /// afterwards, and need not be woken for it.
    fn has_free(&self) -> bool {
        let mut numbers = self.partitions.keys();
        numbers.any(|number| !self.in_progress.contains(number))
    }

    /// What one syncer syncs of what is due, and nobody syncs: the others take the rest. What comes
    /// for a partition meanwhile waits, and shares the next sync of it.
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

/// How long records stay unsynced that nobody waits for.
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

    /// Queues a batch. Appends of one thread to one partition are made in order.
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

    /// Reports when everything that is written before an offset is as safe as what is acknowledged
    /// to producers.
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

    /// How many bytes wait to be written.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn syncs(&self) -> SyncStats {
        *lock(&self.syncs)
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.is_offline.load(Ordering::Acquire)
    }

    /// Ends both threads, once everything is written and synced.
    pub(crate) fn close_queue(&self) {
        lock(&self.queue).is_closed = true;
        self.queued.notify_one();
    }

    fn close_dirty(&self) {
        lock(&self.dirty).is_closed = true;
        self.is_dirty.notify_all();
    }

    /// The writer.
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

    /// Writes what is queued for a partition. Returns whether consumers may see more.
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
        let (mut shown, mut waiting) = (None, Vec::new());
        for ((acks, done), outcome) in round.answers.into_iter().zip(outcomes) {
            match outcome {
                Ok(appended) if self.gates(acks) || must_flush => {
                    waiting.push((appended.next_offset, done, appended));
                }
                Ok(appended) => {
                    shown = shown.max(Some(appended.next_offset));
                    done(Ok(appended));
                }
                Err(error) => done(Err(error)),
            }
        }
        self.add_dirty(&log, waiting);
        shown.is_some_and(|offset| log.show_written(offset))
    }

    /// What the writer does with what is queued.
    #[cfg(test)]
    pub(crate) fn write_queued(&self) {
        self.write_round(mem::take(&mut lock(&self.queue).appends));
    }

    /// What the syncer does with what is dirty.
    #[cfg(test)]
    pub(crate) fn sync_dirty(&self) {
        self.sync_round(mem::take(&mut lock(&self.dirty).partitions));
    }

    /// When something has to be synced.
    #[cfg(test)]
    pub(crate) fn sync_due(&self) -> Option<Instant> {
        lock(&self.dirty).due
    }

    /// What a syncer does at this time. Returns whether something was due.
    #[cfg(test)]
    pub(crate) fn sync_due_at(&self, now: Instant) -> bool {
        let share = lock(&self.dirty).take_due(now);
        let share = share.map(|share| self.sync_share(share));
        share.is_some()
    }

    /// Whether an answer waits for a sync.
    fn gates(&self, acks: Acks) -> bool {
        self.flush == FlushPolicy::Acks && acks == Acks::All
    }

    /// Whether a topic wants so many records synced at once.
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
            // The writer has ended, and those that sync may have.
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
        // Whoever syncs it already looks again afterwards. What has been due for longer may be what
        // others sync.
        let wakes = match is_urgent {
            true => !dirty.in_progress.contains(&log.number()),
            false => is_sooner,
        };
        drop(dirty);
        if wakes {
            self.is_dirty.notify_one();
        }
    }

    /// A syncer.
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
                // The others end, too.
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
                        // It was written before it was dirty, and the sync began after that.
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

    /// After a sync that failed the kernel may have dropped what it could not write, and another
    /// sync would say nothing of it.
    fn set_offline(&self, log: &PartitionLog, error: &std::io::Error) {
        self.is_offline.store(true, Ordering::Release);
        tracing::error!(
            "{}: {error} while it was synced; nothing is appended to this data folder until the \
             broker is started again",
            log.name()
        );
    }
}

/// What is queued for a partition.
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

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
