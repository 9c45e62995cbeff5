//! A recorded use of a data folder, and the expected state after a crash.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::batch::tests::{batch, seal};
use crate::batch::{BatchHeader, HEADER_BYTES, is_intact};
use crate::files::trace::{Operation, Trace};
use crate::segment::lock;
use crate::tests::image::{Disk, Random};
use crate::tests::{content, read};
use crate::*;

/// The data folder, relative to the recorded folder.
pub(super) const DATA: &str = "data";

/// A moment: the number of operations before it.
type Moment = usize;

const NEVER: Moment = usize::MAX;

/// The records appended to a partition, and the guarantees for them over time.
#[derive(Clone)]
pub(super) struct History {
    pub(super) name: TopicPartition,
    topic_id: String,
    pub(super) batches: Vec<Sent>,
    /// The start and the end of the operation.
    created: (Moment, Moment),
    deleted: (Moment, Moment),
    /// The moments since which records below an offset are durable.
    durable: Vec<(Moment, i64)>,
    /// The moments since which the log start is at most an offset.
    starts: Vec<(Moment, i64)>,
    /// The moments since which records of an epoch may have been seen.
    epochs: Vec<(Moment, i32)>,
    /// The lowest epoch of new records.
    epoch_min: i32,
    /// The next sequence number of each producer.
    sequences: BTreeMap<i64, i32>,
    /// The sequence number after the last batch that each producer has ever queued.
    queued: BTreeMap<i64, i32>,
    /// Whether batches have unknown offsets, because the partition was deleted while they waited
    /// for a sync.
    has_unanswered: bool,
    pub(super) log: Option<Arc<PartitionLog>>,
}

/// A batch as it was sent, and its offsets.
#[derive(Clone)]
pub(super) struct Sent {
    place: Appended,
    bytes: Vec<u8>,
}

impl Sent {
    fn header(&self) -> BatchHeader {
        BatchHeader::parse(&self.bytes).unwrap()
    }
}

fn latest<T: Copy + Ord>(entries: &[(Moment, T)], moment: Moment) -> Option<T> {
    let before = entries.iter().filter(|(since, _)| *since <= moment);
    before.map(|(_, entry)| *entry).max()
}

impl History {
    fn new(name: TopicPartition, topic_id: String, begun: Moment) -> History {
        History {
            name,
            topic_id,
            batches: Vec::new(),
            created: (begun, NEVER),
            deleted: (NEVER, NEVER),
            durable: Vec::new(),
            starts: Vec::new(),
            epochs: Vec::new(),
            epoch_min: 0,
            sequences: BTreeMap::new(),
            queued: BTreeMap::new(),
            has_unanswered: false,
            log: None,
        }
    }

    /// Returns the state known at a moment when the process ended; `None` if it cannot exist.
    fn at(&self, moment: Moment) -> Option<History> {
        let since = |moment_of: Moment| if moment_of <= moment { 0 } else { NEVER };
        let first = |entry| vec![(0, entry)];
        self.may_exist(moment).then(|| History {
            created: (0, since(self.created.1)),
            deleted: (since(self.deleted.0), NEVER),
            durable: latest(&self.durable, moment).map_or(Vec::new(), first),
            starts: latest(&self.starts, moment).map_or(Vec::new(), first),
            epochs: latest(&self.epochs, moment).map_or(Vec::new(), |epoch| vec![(0, epoch)]),
            log: None,
            sequences: BTreeMap::new(),
            ..self.clone()
        })
    }

    fn may_exist(&self, moment: Moment) -> bool {
        self.created.0 <= moment && moment < self.deleted.1
    }

    fn must_exist(&self, moment: Moment) -> bool {
        self.created.1 <= moment && moment < self.deleted.0
    }

    fn sent(&mut self, place: Appended, bytes: Vec<u8>) {
        let number = self
            .batches
            .partition_point(|other| other.place.base_offset < place.base_offset);
        match self.batches.get(number) {
            Some(other) if other.place == place => assert_eq!(other.bytes, bytes),
            _ => self.batches.insert(number, Sent { place, bytes }),
        }
    }

    /// Returns the latest batch of a producer.
    pub(super) fn latest_of(&self, producer: i64) -> Option<&Sent> {
        let mut batches = self.batches.iter().rev();
        batches.find(|sent| sent.header().producer_id == producer)
    }

    /// Compares the log with the guarantees at a moment.
    fn check(&mut self, log: &Arc<PartitionLog>, moment: Moment, is_clean: bool) {
        let offsets = log.offsets();
        let (start, end) = (offsets.start, offsets.end);
        assert_eq!(
            (offsets.high_watermark, offsets.synced),
            (end, end),
            "{offsets:?}"
        );
        let durable = latest(&self.durable, moment).unwrap_or(0);
        assert!(
            end >= durable,
            "{}: ends at {end}, durable are {durable}",
            self.name
        );
        let start_max = latest(&self.starts, moment).unwrap_or(0);
        assert!(
            start <= start_max,
            "{}: begins at {start}, not {start_max}",
            self.name
        );
        let found = self.read_all(log);
        let seen = latest(&self.epochs, moment).unwrap_or(-1);
        let epoch = found.last().map_or(-1, |last| last.leader_epoch);
        self.epoch_min = seen.max(epoch) + i32::from(!is_clean);
        self.batches.retain(|sent| sent.place.base_offset < end);
        self.check_producers(log);
        self.log = Some(Arc::clone(log));
    }

    /// Each producer that the log remembers can go on after its latest batch. A batch without an
    /// answer is unknown here if it was hidden before it could be read; its producer knows it.
    fn check_producers(&mut self, log: &PartitionLog) {
        let producers: Vec<_> = self.queued.iter().map(|(id, end)| (*id, *end)).collect();
        for (producer, queued) in producers {
            let latest = self.latest_of(producer).map(Sent::header);
            let known = latest.map_or(0, |latest| latest.last_sequence() + 1);
            let remembered = lock(&log.appender).producers.next_sequence(producer);
            let Some(next) = remembered.filter(|next| *next != known) else {
                continue;
            };
            assert!(
                self.has_unanswered && (known..=queued).contains(&next),
                "{}: producer {producer} can go on with {next}, not {known}; {queued} were queued",
                self.name
            );
            self.sequences.insert(producer, next);
        }
    }

    /// Reads the whole log and expects consecutive sent batches. Looks them up by their timestamps
    /// and epochs, too.
    fn read_all(&mut self, log: &PartitionLog) -> Vec<BatchHeader> {
        let offsets = log.offsets();
        let mut found: Vec<BatchHeader> = Vec::new();
        let mut next = offsets.start;
        while next < offsets.end {
            let bytes = read(log, next, 1);
            let header = BatchHeader::parse(&bytes);
            let header = header.unwrap_or_else(|| panic!("{}: no batch at {next}", self.name));
            let place = Appended {
                base_offset: header.base_offset,
                next_offset: header.next_offset(),
            };
            let is_it = |sent: &&Sent| sent.place == place;
            match self.batches.iter().find(is_it) {
                Some(sent) => {
                    let is_same = content(&bytes) == content(&sent.bytes);
                    assert!(is_same, "{}: other bytes at {next}", self.name);
                }
                None => {
                    assert!(self.has_unanswered, "{}: {place:?} was not sent", self.name);
                    assert!(is_intact(&bytes, &header), "{}: torn at {next}", self.name);
                    self.sent(place, bytes);
                }
            }
            let first = found.is_empty() && place.base_offset <= next;
            assert!(
                first || place.base_offset == next,
                "{}: gap at {next}",
                self.name
            );
            let before = found.last().map_or(0, |last| last.leader_epoch);
            assert!(
                header.leader_epoch >= before,
                "{}: epoch at {next}",
                self.name
            );
            found.push(header);
            next = header.next_offset();
        }
        assert_eq!(next, offsets.end);
        for header in &found {
            let time = header.max_timestamp;
            let first = found.iter().find(|other| other.max_timestamp >= time);
            // The bytes of the records are random, so any record of the batch may match.
            let first =
                first.map(|first| first.base_offset.max(offsets.start)..=first.last_offset());
            let at_time = log.offset_of_time(time).unwrap();
            assert!(
                first
                    .zip(at_time)
                    .is_some_and(|(first, (offset, _))| first.contains(&offset)),
                "{} at time {time}: {at_time:?}",
                self.name
            );
            let epoch = header.leader_epoch;
            let end = found.iter().find(|other| other.leader_epoch > epoch);
            let end = end.map_or(offsets.end, |next| next.base_offset);
            let of_epoch = log.end_of_epoch(epoch);
            assert_eq!(
                of_epoch,
                Some((epoch, end)),
                "{}: {epoch}: {found:?}",
                self.name
            );
        }
        found
    }
}

/// An answer, and when it came.
type Answer = (Moment, u64, Vec<u8>, Acks, Result<Appended, AppendError>);

/// The sizes of batches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BatchShape {
    Any,
    /// Two batches per page, with the same number of records.
    Aligned,
}

/// A data folder used on this thread only, so that a seed determines the order of operations.
pub(super) struct Session {
    root: PathBuf,
    flush: FlushPolicy,
    pub(super) random: Random,
    pub(super) shape: BatchShape,
    trace: Arc<Trace>,
    /// `None` during a restart.
    manager: Option<Arc<LogManager>>,
    has_threads: bool,
    /// The number of pending answers.
    waiting: usize,
    pub(super) histories: Vec<History>,
    answers: (Sender<Answer>, Receiver<Answer>),
}

/// The record of a session.
pub(super) struct Recorded {
    pub(super) operations: Vec<Operation>,
    histories: Vec<History>,
}

impl Recorded {
    /// Returns the state known at a moment when the process ended.
    pub(super) fn at(&self, moment: Moment) -> Vec<History> {
        self.histories
            .iter()
            .filter_map(|history| history.at(moment))
            .collect()
    }
}

pub(super) fn config() -> Arc<TopicConfig> {
    Arc::new(TopicConfig {
        segment_bytes: 12_000,
        index_interval_bytes: 500,
        retention_ms: -1,
        file_delete_delay_ms: 0,
        ..TopicConfig::default()
    })
}

fn opened(root: &std::path::Path, flush: FlushPolicy) -> (Arc<LogManager>, Vec<FoundPartition>) {
    let options = DataFolderOptions {
        flush,
        producer_id_expiration: Duration::from_secs(u64::MAX / 1000),
        ..DataFolderOptions::default()
    };
    let folder = root.join(DATA);
    let opened = LogManager::prepare(&folder, options, &|_| config(), Box::new(|_| ()), 1);
    opened.unwrap_or_else(|error| panic!("{error}"))
}

impl Session {
    /// Opens a folder and checks its content.
    pub(super) fn open(
        root: PathBuf,
        flush: FlushPolicy,
        histories: Vec<History>,
        seed: u64,
    ) -> Session {
        let trace = Arc::new(Trace::begin(&root));
        let is_clean = is_clean(&root);
        let (manager, found) = opened(&root, flush);
        let mut session = Session {
            root,
            flush,
            random: Random(seed),
            shape: BatchShape::Any,
            trace,
            manager: Some(manager),
            has_threads: false,
            waiting: 0,
            histories,
            answers: mpsc::channel(),
        };
        session.check(&found, 0, is_clean);
        session
    }

    /// Lets the threads of the log do queued work, up to a restart.
    pub(super) fn start_threads(&mut self) {
        self.has_threads = true;
        self.manager().start().unwrap();
    }

    /// Checks that a crash would leave the partitions unchanged.
    pub(super) fn check_synced(&self, before: &Disk, random: &mut Random) {
        let mut disk = before.clone();
        disk.apply_all(&self.trace.operations());
        let (now, later) = (disk.after_kill(), disk.after_crash(random));
        for number in self.present() {
            let folder = format!("{DATA}/{}", self.histories[number].name);
            assert!(
                now.find(&folder) == later.find(&folder),
                "{folder} is not synced"
            );
        }
    }

    fn manager(&self) -> Arc<LogManager> {
        Arc::clone(self.manager.as_ref().unwrap())
    }

    /// Returns the number of operations made.
    pub(super) fn now(&self) -> Moment {
        self.trace.len()
    }

    fn check(&mut self, found: &[FoundPartition], began: Moment, is_clean: bool) {
        let now = self.now();
        for one in found {
            let (name, id) = (one.log.name(), one.log.topic_id());
            let is_it = |history: &&mut History| history.name == *name && history.topic_id == id;
            let mut known = self.histories.iter_mut().filter(is_it);
            match known.find(|history| history.may_exist(began)) {
                Some(history) => history.check(&one.log, began, is_clean),
                None => {
                    assert!(
                        id.is_empty() && one.log.offsets().end == 0,
                        "{name} {id:?} is there"
                    );
                    self.manager().delete(name).unwrap();
                }
            }
        }
        for history in &mut self.histories {
            if !history.may_exist(began) {
                continue;
            }
            let Some(log) = &history.log else {
                assert!(!history.must_exist(began), "{} is missing", history.name);
                history.deleted = (history.deleted.0.min(began), history.deleted.1.min(now));
                continue;
            };
            let offsets = log.offsets();
            history.created.1 = history.created.1.min(now);
            history.durable.push((now, offsets.synced));
            history.starts.push((began, offsets.start));
            history
                .epochs
                .push((now, history.epoch_min - i32::from(!is_clean)));
        }
    }

    /// Creates a partition.
    pub(super) fn create(&mut self, name: TopicPartition) {
        let id = format!("id-{}-{}", self.now(), self.random.next());
        let mut history = History::new(name.clone(), id.clone(), self.now());
        history.log = Some(self.manager().create(name, &id, config()).unwrap());
        history.created.1 = self.now();
        self.histories.push(history);
    }

    pub(super) fn delete(&mut self, number: usize) {
        let manager = self.manager();
        let history = &mut self.histories[number];
        history.deleted.0 = self.trace.len();
        history.log = None;
        manager.delete(&history.name).unwrap();
        history.has_unanswered = true;
        history.deleted.1 = self.trace.len();
    }

    /// Returns the existing partitions.
    pub(super) fn present(&self) -> Vec<usize> {
        let numbered = self.histories.iter().enumerate();
        let present = numbered.filter(|(_, history)| history.log.is_some());
        present.map(|(number, _)| number).collect()
    }

    /// Queues a batch, with a producer or without.
    pub(super) fn send(&mut self, number: usize, producer: Option<i64>, acks: Acks) {
        let (count, size) = match self.shape {
            // The rest of a truncated page can start with a batch that would fit.
            BatchShape::Aligned => (2, 2048 - HEADER_BYTES),
            BatchShape::Any => match self.random.below(8) {
                0 => (1, self.random.below(9000)),
                1 => (1 + self.random.below(5), 0),
                _ => (1 + self.random.below(5), self.random.below(1200)),
            },
        };
        let count = count as i32;
        let history = &mut self.histories[number];
        let time = history.log.as_ref().unwrap().offsets().end / 2;
        let mut bytes = batch(count, size, time);
        if let Some(producer) = producer {
            let before = history.latest_of(producer).map(|sent| sent.header());
            let sequence = before.map_or(0, |before| before.last_sequence() + 1);
            let next = history.sequences.entry(producer).or_insert(sequence);
            let sequence = std::mem::replace(next, *next + count);
            let queued = history.queued.entry(producer).or_default();
            *queued = (*queued).max(sequence + count);
            bytes[43..51].copy_from_slice(&producer.to_be_bytes());
            bytes[51..53].copy_from_slice(&0i16.to_be_bytes());
            bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
        }
        for byte in &mut bytes[HEADER_BYTES..] {
            *byte = self.random.next() as u8;
        }
        seal(&mut bytes);
        self.queue(number, bytes, acks);
    }

    fn queue(&mut self, number: usize, batch: Vec<u8>, acks: Acks) {
        let log = Arc::clone(self.histories[number].log.as_ref().unwrap());
        let (trace, answers) = (Arc::clone(&self.trace), self.answers.0.clone());
        let (of, sent) = (log.number(), batch.clone());
        let done = Box::new(move |outcome| {
            drop(answers.send((trace.len(), of, sent, acks, outcome)));
        });
        self.waiting += 1;
        self.manager().append(Append {
            log,
            batch: batch.into(),
            acks,
            done,
        });
    }

    /// Writes queued batches. Batches of one producer are sent one after another.
    pub(super) fn write(&mut self) {
        if !self.has_threads {
            self.manager().threads.write_queued();
        }
        self.take_answers();
    }

    pub(super) fn sync(&mut self) {
        match self.has_threads {
            false => self.manager().threads.sync_dirty(),
            true => {
                for _ in 0..self.waiting {
                    let answer = self
                        .answers
                        .1
                        .recv_timeout(underpass_testkit::WAIT_MAX)
                        .unwrap();
                    self.take_answer(answer);
                }
            }
        }
        self.take_answers();
        let now = self.now();
        for history in &mut self.histories {
            if let Some(log) = &history.log {
                history.durable.push((now, log.offsets().synced));
            }
        }
    }

    fn take_answers(&mut self) {
        while let Ok(answer) = self.answers.1.try_recv() {
            self.take_answer(answer);
        }
    }

    fn take_answer(&mut self, (moment, of, bytes, acks, outcome): Answer) {
        self.waiting -= 1;
        {
            let is_it = |log: &Arc<PartitionLog>| log.number() == of;
            let mut histories = self.histories.iter_mut();
            let history = histories.find(|history| history.log.as_ref().is_some_and(is_it));
            let Some(history) = history else { return };
            let appended = outcome.unwrap_or_else(|error| panic!("{}: {error}", history.name));
            let epoch = history.log.as_ref().unwrap().offsets().leader_epoch;
            assert!(
                epoch >= history.epoch_min,
                "{}: appended in epoch {epoch}, expected {}",
                history.name,
                history.epoch_min
            );
            history.sent(appended, bytes);
            history.epochs.push((moment, epoch));
            if self.flush == FlushPolicy::Acks && acks == Acks::All {
                history.durable.push((moment, appended.next_offset));
            }
        }
    }

    /// Sends the latest batch of each producer again. It must be a known duplicate.
    pub(super) fn send_again(&mut self, producers: [i64; 3]) {
        self.write();
        self.sync();
        for number in self.present() {
            let history = &self.histories[number];
            let log = Arc::clone(history.log.as_ref().unwrap());
            let before = log.offsets();
            let latest = producers
                .into_iter()
                .filter_map(|producer| history.latest_of(producer));
            let survived = latest.filter(|sent| sent.place.base_offset >= before.start);
            for again in survived.cloned().collect::<Vec<_>>() {
                self.queue(number, again.bytes.clone(), Acks::All);
                self.write();
                self.sync();
                // If it had been appended, there would be another batch.
                assert_eq!(
                    log.offsets().end,
                    before.end,
                    "{} of {:?}",
                    log.name(),
                    again.place
                );
            }
        }
    }

    /// Deletes the oldest segments of a partition that exceed this size.
    pub(super) fn retain(&mut self, number: usize, bytes: i64) {
        let (began, manager) = (self.now(), self.manager());
        let history = &mut self.histories[number];
        let log = history.log.as_ref().unwrap();
        log.set_config(Arc::new(TopicConfig {
            retention_bytes: bytes,
            ..TopicConfig::clone(&config())
        }));
        manager.retain();
        log.set_config(config());
        history.starts.push((began, log.offsets().start));
    }

    /// Deletes records before some offset.
    pub(super) fn delete_records(&mut self, number: usize) {
        let (began, manager) = (self.now(), self.manager());
        let history = &mut self.histories[number];
        let log = history.log.as_ref().unwrap();
        let offsets = log.offsets();
        let before = match self.random.once_in(2) {
            true => offsets.high_watermark,
            false => {
                let visible = (offsets.high_watermark - offsets.start) as usize;
                offsets.start + self.random.below(visible) as i64
            }
        };
        let before = [(Arc::clone(log), before)];
        manager.delete_records(&before).unwrap();
        history.starts.push((began, log.offsets().start));
    }

    pub(super) fn checkpoint(&self) {
        self.manager().tend(&mut Duration::from_secs(3600));
    }

    /// Ends cleanly and restarts: everything is present, and nothing needs a repair.
    pub(super) fn restart(&mut self) {
        self.write();
        self.sync();
        self.manager().close().unwrap();
        // The lock of the folder must be released first.
        self.manager = None;
        let now = self.now();
        for history in &mut self.histories {
            if let Some(log) = history.log.take() {
                history.durable.push((now, log.offsets().end));
            }
        }
        assert!(is_clean(&self.root));
        let (manager, found) = opened(&self.root, self.flush);
        self.manager = Some(manager);
        if self.has_threads {
            self.start_threads();
        }
        for one in &found {
            assert_eq!(one.repairs, Repairs::default(), "{}", one.log.name());
        }
        self.check(&found, now, true);
    }

    /// Ends the session as a crash does.
    pub(super) fn end(mut self) -> Recorded {
        self.write();
        self.sync();
        Recorded {
            operations: self.trace.operations(),
            histories: std::mem::take(&mut self.histories),
        }
    }
}

fn is_clean(root: &std::path::Path) -> bool {
    fs::exists(root.join(DATA).join(".kafka_cleanshutdown")).unwrap()
}
