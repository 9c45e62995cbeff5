//! The groups of this broker: the coordinator, the records that it writes, and the requests that
//! wait for an answer.
//!
//! ```text
//!  requests ─► coordinator ─► replies ─► requests
//!                  │  ▲
//!          records ▼  │ written
//!            __consumer_offsets
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;
use underpass::FileRange;
use underpass_log::batch::BatchHeader;
use underpass_log::{
    Acks, Append, AppendError, DiskWait, FirstBatch, LogManager, LogRead, PartitionLog, ReadError,
};

use crate::group::{
    CommitRequest, CommitResult, Coordinator, CoordinatorRecord, Effect, GroupError, GroupSettings,
    JoinRejected, JoinRequest, Joined, LoweredOffsets, Now, ReplyToken, SyncRequest, Synced,
    WriteError, WriteToken, partition_of,
};
use crate::metadata::names::OFFSETS_TOPIC;
use crate::metadata::topic_id::TopicId;
use crate::metadata::topics::{Topic, TopicMap};
use crate::offsets::batch::{build, records};
use crate::offsets::records::{EncodedRecord, read_record};

/// The groups, and the topic that stores them.
pub(crate) struct Groups {
    state: Mutex<GroupsState>,
    log: Arc<LogManager>,
    began: Instant,
    written: Sender<Written>,
}

struct GroupsState {
    coordinator: Coordinator,
    waiting: HashMap<u64, WaitingRequests>,
    next_token: u64,
    /// The topic, once it was created.
    topic: Option<Arc<Topic>>,
}

/// A request that waits for the coordinator.
enum WaitingRequests {
    Join(oneshot::Sender<Result<Joined, JoinRejected>>),
    Sync(oneshot::Sender<Result<Synced, GroupError>>),
    Commit(oneshot::Sender<Vec<CommitResult>>),
    Removal(oneshot::Sender<Result<Vec<String>, GroupError>>),
}

/// An event for the thread of groups.
enum Written {
    Write(WriteToken, Result<(), WriteError>),
    /// An earlier time to wake up.
    Earlier,
}

/// The longest sleep of the thread when nothing is due.
const SLEEP_MAX: Duration = Duration::from_secs(60);

impl Groups {
    /// Restores the groups from the topic of offsets, if it exists. Lowers committed offsets that
    /// are past the ends of their logs, and writes the change. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read or written, or the thread cannot be started.
    pub(crate) fn open(
        settings: GroupSettings,
        log: Arc<LogManager>,
        topics: &TopicMap,
    ) -> io::Result<Arc<Groups>> {
        let topic = topics.named(OFFSETS_TOPIC).cloned();
        let mut coordinator = Coordinator::new(settings, || TopicId::random().to_string());
        let began = Instant::now();
        for partition in topic.iter().flat_map(|topic| &topic.partitions) {
            let mut found = Vec::new();
            read_all(partition, &mut found)?;
            coordinator.restore(now(began), found);
        }
        let lowered = coordinator.lower_offsets(now(began), |topic, partition| {
            let log = topics.named(topic)?.partition(partition)?;
            Some(log.offsets().end)
        });
        let (sender, receiver) = mpsc::channel();
        let groups = Arc::new(Groups {
            state: Mutex::new(GroupsState {
                coordinator,
                waiting: HashMap::new(),
                next_token: 0,
                topic,
            }),
            log,
            began,
            written: sender,
        });
        groups.write_lowered(&lowered, &receiver)?;
        let weak = Arc::downgrade(&groups);
        thread::Builder::new()
            .name("groups".to_owned())
            .spawn(move || tend(&weak, &receiver))?;
        Ok(groups)
    }

    /// Reports lowered offsets and waits until they are written. Otherwise new records after the
    /// ends of the logs could be taken for the lost ones.
    fn write_lowered(
        &self,
        lowered: &[LoweredOffsets],
        written: &Receiver<Written>,
    ) -> io::Result<()> {
        for one in lowered {
            let LoweredOffsets {
                group_id, topic, ..
            } = one;
            let (partitions, records) = (one.partitions, one.records);
            tracing::warn!(
                "group {group_id:?}: committed offsets of topic {topic} were beyond the end of \
                 the log, and are lowered to it (partitions: {partitions}, records: {records})"
            );
        }
        let mut left: usize = lowered.iter().map(|one| one.partitions).sum();
        self.carry_out(&mut self.lock());
        while left > 0 {
            match written.recv().map_err(io::Error::other)? {
                Written::Write(_, Ok(())) => left -= 1,
                Written::Write(_, Err(error)) => {
                    let why = format!("{OFFSETS_TOPIC} cannot be written: {error:?}");
                    return Err(io::Error::other(why));
                }
                Written::Earlier => {}
            }
        }
        Ok(())
    }

    /// Whether the topic that stores the groups exists.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().topic.is_some()
    }

    /// Sets the topic that stores the groups, after its creation.
    pub(crate) fn set_topic(&self, topic: Arc<Topic>) {
        self.lock().topic.get_or_insert(topic);
    }

    /// Handles an event that is answered immediately.
    pub(crate) fn event<R>(&self, event: impl FnOnce(&mut Coordinator, Now) -> R) -> R {
        let mut state = self.lock();
        let outcome = event(&mut state.coordinator, now(self.began));
        self.carry_out(&mut state);
        outcome
    }

    pub(crate) async fn join(&self, request: JoinRequest) -> Option<Result<Joined, JoinRejected>> {
        let (sender, answer) = oneshot::channel();
        self.ask(WaitingRequests::Join(sender), |coordinator, now, token| {
            coordinator.join(now, token, request);
        });
        answer.await.ok()
    }

    pub(crate) async fn sync(&self, request: SyncRequest) -> Option<Result<Synced, GroupError>> {
        let (sender, answer) = oneshot::channel();
        self.ask(WaitingRequests::Sync(sender), |coordinator, now, token| {
            coordinator.sync(now, token, request);
        });
        answer.await.ok()
    }

    /// Passes a commit to the coordinator; returns its results.
    pub(crate) fn commit(
        &self,
        request: CommitRequest,
    ) -> impl Future<Output = Option<Vec<CommitResult>>> {
        let (sender, answer) = oneshot::channel();
        self.ask(
            WaitingRequests::Commit(sender),
            |coordinator, now, token| {
                coordinator.commit(now, token, request);
            },
        );
        async { answer.await.ok() }
    }

    /// Passes a removal to the coordinator; returns the topics whose offsets stay. The receiver
    /// fails if the broker stops.
    pub(crate) fn remove(
        &self,
        remove: impl FnOnce(&mut Coordinator, Now, ReplyToken),
    ) -> oneshot::Receiver<Result<Vec<String>, GroupError>> {
        let (sender, answer) = oneshot::channel();
        self.ask(WaitingRequests::Removal(sender), remove);
        answer
    }

    fn ask(&self, waiting: WaitingRequests, ask: impl FnOnce(&mut Coordinator, Now, ReplyToken)) {
        let mut state = self.lock();
        state.next_token += 1;
        let token = state.next_token;
        state.waiting.insert(token, waiting);
        ask(&mut state.coordinator, now(self.began), ReplyToken(token));
        self.carry_out(&mut state);
    }

    /// Carries out the effects of the coordinator, in order.
    fn carry_out(&self, state: &mut GroupsState) {
        for effect in state.coordinator.effects() {
            match effect {
                Effect::Joined(token, joined) => {
                    if let Some(WaitingRequests::Join(reply)) = state.waiting.remove(&token.0) {
                        // The client may be gone.
                        let _ = reply.send(joined);
                    }
                }
                Effect::Synced(token, synced) => {
                    if let Some(WaitingRequests::Sync(reply)) = state.waiting.remove(&token.0) {
                        let _ = reply.send(synced);
                    }
                }
                Effect::Committed(token, results) => {
                    if let Some(WaitingRequests::Commit(reply)) = state.waiting.remove(&token.0) {
                        let _ = reply.send(results);
                    }
                }
                Effect::Removed(token, removed) => {
                    if let Some(WaitingRequests::Removal(reply)) = state.waiting.remove(&token.0) {
                        let _ = reply.send(removed);
                    }
                }
                Effect::Write {
                    token,
                    group_id,
                    records,
                } => self.write(state, token, &group_id, &records),
            }
        }
        // Wake the thread, which may sleep past the new time.
        let _ = self.written.send(Written::Earlier);
    }

    /// Queues records. The lock of the state keeps those of a partition in order.
    fn write(
        &self,
        state: &GroupsState,
        token: WriteToken,
        group_id: &str,
        records: &[CoordinatorRecord],
    ) {
        let written = self.written.clone();
        let log = state.topic.as_ref().and_then(|topic| {
            // A topic that was created by Kafka may have any number of partitions.
            let count = u32::try_from(topic.partitions.len()).ok()?;
            let partition = partition_of(group_id, count);
            topic.partitions.get(partition as usize)
        });
        let Some(log) = log else {
            let _ = written.send(Written::Write(token, Err(WriteError::Unavailable)));
            return;
        };
        let Some(encoded) = encoded(records, log.config().max_message_bytes) else {
            let _ = written.send(Written::Write(token, Err(WriteError::TooLarge)));
            return;
        };
        let batch: Vec<_> = encoded.iter().map(EncodedRecord::record).collect();
        self.log.append(Append {
            log: Arc::clone(log),
            batch: build(&batch, now(self.began).unix_ms).into(),
            acks: Acks::All,
            done: Box::new(move |outcome| {
                let outcome = outcome.map(drop).map_err(|error| match error {
                    AppendError::TooLarge { .. } => WriteError::TooLarge,
                    AppendError::Closed => WriteError::Unavailable,
                    _ => WriteError::Storage,
                });
                let _ = written.send(Written::Write(token, outcome));
            }),
        });
    }

    fn lock(&self) -> MutexGuard<'_, GroupsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encodes records; returns `None` if they exceed `bytes_max`. Every record contains the group
/// name, so a commit of many offsets can be much larger than its request.
fn encoded(records: &[CoordinatorRecord], bytes_max: usize) -> Option<Vec<EncodedRecord>> {
    let mut left = bytes_max;
    let records = records.iter().map(|record| {
        let encoded = EncodedRecord::of(record);
        left = left.checked_sub(encoded.bytes())?;
        Some(encoded)
    });
    records.collect()
}

/// Reports completed writes and the time to the coordinator.
fn tend(groups: &Weak<Groups>, written: &Receiver<Written>) {
    loop {
        let sleep = {
            let Some(groups) = groups.upgrade() else {
                return;
            };
            let next = groups.lock().coordinator.next_tick();
            let elapsed = groups.began.elapsed();
            next.map_or(SLEEP_MAX, |next| {
                next.saturating_sub(elapsed).min(SLEEP_MAX)
            })
        };
        let first = match written.recv_timeout(sleep) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(groups) = groups.upgrade() else {
            return;
        };
        let mut state = groups.lock();
        let time = now(groups.began);
        let mut changed = false;
        for written in first.into_iter().chain(written.try_iter()) {
            if let Written::Write(token, outcome) = written {
                state.coordinator.written(time, token, outcome);
                changed = true;
            }
        }
        if state
            .coordinator
            .next_tick()
            .is_some_and(|next| next <= time.monotonic)
        {
            state.coordinator.tick(time);
            changed = true;
        }
        if changed {
            groups.carry_out(&mut state);
        }
    }
}

fn now(began: Instant) -> Now {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Now {
        monotonic: began.elapsed(),
        unix_ms: i64::try_from(unix.as_millis()).unwrap_or(i64::MAX),
    }
}

/// Reads all records of a partition, in order.
fn read_all(log: &PartitionLog, found: &mut Vec<CoordinatorRecord>) -> io::Result<()> {
    const BYTES: u64 = 1 << 20;
    let mut offset = log.offsets().start;
    loop {
        let range = match log.read(offset, BYTES, FirstBatch::Whole, DiskWait::Allowed) {
            Ok(LogRead::Records(range, _)) => range,
            Ok(_) => return Ok(()),
            // Later records are still valid.
            Err(ReadError::Lost { gap }) => {
                let (name, last) = (log.name(), gap.end - 1);
                tracing::warn!(
                    "{name}: commits at the offsets {} to {last} are lost",
                    gap.start
                );
                offset = gap.end;
                continue;
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        let bytes = content(&range)?;
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|header| header.size <= rest.len())
        {
            let (batch, behind) = rest.split_at(header.size);
            match records(batch) {
                Ok(records) => found.extend(records.iter().filter_map(read_record)),
                Err(bad) => tracing::warn!("{}: offset {offset}: {bad:?}", log.name()),
            }
            offset = header.next_offset();
            rest = behind;
        }
    }
}

fn content(range: &FileRange) -> io::Result<Vec<u8>> {
    let file = File::from(range.file.as_fd().try_clone_to_owned()?);
    let mut bytes = vec![0; usize::try_from(range.len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, range.offset)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use underpass_log::{
        CleanerOptions, CleanupPolicy, DataFolderOptions, TopicConfig, TopicPartition,
    };
    use underpass_testkit::wait_until;

    use super::*;
    use crate::group::CommittedOffset;

    /// The commit of an offset, or its deletion.
    fn commit(group: u32, partition: i32, offset: Option<i64>) -> CoordinatorRecord {
        CoordinatorRecord::Offset {
            group_id: format!("group-{group}").as_str().into(),
            topic: "t".to_owned(),
            partition,
            value: offset.map(|offset| CommittedOffset {
                offset,
                leader_epoch: 0,
                metadata: String::new(),
                commit_timestamp_ms: 5,
            }),
        }
    }

    /// Returns the latest record of each group and partition.
    fn latest(records: Vec<CoordinatorRecord>) -> BTreeMap<String, CoordinatorRecord> {
        let keyed = records.into_iter().map(|record| match &record {
            CoordinatorRecord::Offset {
                group_id,
                partition,
                ..
            } => (format!("{group_id:?} {partition}"), record),
            CoordinatorRecord::Group { group_id, .. } => (format!("{group_id:?}"), record),
        });
        keyed.collect()
    }

    #[test]
    fn offsets_are_restored_from_a_compacted_topic() {
        let folder = tempfile::tempdir().unwrap();
        let options = DataFolderOptions {
            cleaner: CleanerOptions {
                backoff: Duration::from_millis(1),
                ..CleanerOptions::default()
            },
            ..DataFolderOptions::default()
        };
        let config = Arc::new(TopicConfig {
            cleanup_policy: CleanupPolicy::Compact,
            segment_bytes: 4000,
            ..TopicConfig::default()
        });
        let opened = LogManager::open(
            folder.path(),
            options,
            &|_| Arc::clone(&config),
            Box::new(|_| ()),
        );
        let (manager, _) = opened.unwrap();
        let name = TopicPartition::new(OFFSETS_TOPIC, 0);
        let log = manager.create(name, "id", Arc::clone(&config)).unwrap();
        let mut sent = Vec::new();
        for number in 0..600 {
            let offset = (number % 9 != 0).then_some(i64::from(number));
            let record = commit(number % 5, (number % 3) as i32, offset);
            let encoded = EncodedRecord::of(&record);
            sent.push(record);
            let (sender, receiver) = mpsc::channel();
            manager.append(Append {
                log: Arc::clone(&log),
                batch: build(&[encoded.record()], 5).into(),
                acks: Acks::All,
                done: Box::new(move |outcome| drop(sender.send(outcome))),
            });
            receiver.recv().unwrap().unwrap();
        }
        wait_until("compaction", || {
            manager.cleaner_stats().removed_records > 400
        });
        manager.close().unwrap();
        let mut found = Vec::new();
        read_all(&log, &mut found).unwrap();
        assert!(found.len() < 200, "{}", found.len());
        assert_eq!(latest(found), latest(sent));
    }
}
