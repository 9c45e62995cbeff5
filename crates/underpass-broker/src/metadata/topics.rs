//! The topics of a broker: their metadata and their logs.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, getrlimit};
use underpass_log::{
    FoundPartition, LogError, LogManager, PartitionLog, TopicConfig, TopicPartition,
};

use crate::lock::lock;
use crate::metadata::file::{MetadataFile, MetadataRecord, TopicRecord};
use crate::metadata::names::{BadTopicName, OFFSETS_TOPIC, check_name, collision_key, is_internal};
use crate::metadata::topic_id::TopicId;

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) id: TopicId,
    /// The partitions, by number.
    pub(crate) partitions: Vec<Arc<PartitionLog>>,
    /// The values that differ from the defaults, under Kafka's names.
    pub(crate) config: BTreeMap<String, String>,
}

/// The topics at a point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopicMap {
    by_name: BTreeMap<Arc<str>, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
}

/// The topics, with the operations that change them.
pub(crate) struct Topics {
    file: MetadataFile,
    pub(crate) log: Arc<LogManager>,
    defaults: TopicConfig,
    present: Mutex<Arc<TopicMap>>,
    pub(crate) record: Mutex<TopicRecords>,
    /// Held while partitions are added, so that one thread does it at a time.
    pub(crate) growing: Mutex<()>,
    /// The largest number of partitions of all topics.
    pub(crate) partitions_max: usize,
}

/// The state that decides about changes of topics. Its lock is not held while folders are created,
/// which takes seconds for a large topic.
#[derive(Default)]
pub(crate) struct TopicRecords {
    /// The content of the file.
    pub(crate) written: MetadataRecord,
    /// Topics being created or extended, with the numbers of new partitions.
    pub(crate) coming: BTreeMap<String, i32>,
}

/// The settings of a new topic.
#[derive(Clone, Debug)]
pub(crate) struct NewTopic {
    pub(crate) name: String,
    pub(crate) partitions: i32,
    pub(crate) config: BTreeMap<String, String>,
}

/// The reason why topics cannot be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopicError {
    #[error("{0}")]
    Name(BadTopicName),
    #[error("the topic exists")]
    Exists,
    #[error(
        "the name collides with that of the topic {0}: dots and underscores are the same in \
         metrics"
    )]
    Collides(Arc<str>),
    #[error("{0}")]
    Config(String),
    #[error("{0} is no number of partitions; expected 1 to {PARTITIONS_MAX}")]
    Partitions(i32),
    #[error(
        "{wanted} partitions beside the {present} that there are would be more than {max}; each \
         takes an open file: the limit is a quarter of those that the process may have (ulimit \
         -Hn), and {PARTITIONS_ALL_MAX} at most"
    )]
    TooMany {
        wanted: i32,
        present: usize,
        max: usize,
    },
    #[error("{wanted} partitions are not an increase; the topic has {present}")]
    NotMore { wanted: i32, present: i32 },
    #[error("the topic is internal: the broker sets its partitions and its configuration")]
    Internal,
    #[error("there is no such topic")]
    Unknown,
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("the metadata cannot be written: {0}")]
    Disk(#[from] io::Error),
    #[error(
        "{}: {source}; restore it, or move it away: topics are adopted then, without their \
         configurations", path.display()
    )]
    Unreadable { path: PathBuf, source: io::Error },
}

/// The largest number of partitions of a topic: each is a folder with open files.
pub(crate) const PARTITIONS_MAX: i32 = 10_000;

/// The largest number of partitions of all topics that clients can create: each takes an open file
/// and about 2 KiB. Partitions found in the data folder are always opened.
const PARTITIONS_ALL_MAX: usize = 20_000;

/// The fraction of the process's descriptors that partitions may take; the rest is for connections
/// and the files sent to them.
const DESCRIPTORS_PART: u64 = 4;

/// The number of producer IDs reserved with one write of the file.
const PRODUCER_IDS_BLOCK: i64 = 1000;

impl TopicMap {
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    pub(crate) fn with_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// Returns all topics, sorted by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    pub(crate) fn add(&mut self, topic: Arc<Topic>) {
        self.by_id.insert(topic.id, Arc::clone(&topic));
        self.by_name.insert(Arc::clone(&topic.name), topic);
    }
}

impl Topic {
    /// Returns a partition, if the number is in range.
    pub(crate) fn partition(&self, number: i32) -> Option<&Arc<PartitionLog>> {
        self.partitions.get(usize::try_from(number).ok()?)
    }
}

impl Topics {
    /// Opens the topics of a data folder: those in its file, and those whose folders come from
    /// elsewhere, which are adopted with the defaults.
    ///
    /// # Errors
    /// Errors of the file, and of partitions that must be created or deleted.
    pub(crate) fn open(
        folder: &Path,
        log: Arc<LogManager>,
        found: &[FoundPartition],
        defaults: TopicConfig,
    ) -> Result<Topics, TopicError> {
        let file = MetadataFile::of(folder);
        let mut record = file.read().map_err(|source| TopicError::Unreadable {
            path: file.path(),
            source,
        })?;
        let (logs, adopted) = adopt(&mut record, &log, found)?;
        if adopted {
            file.write(&record)?;
        }
        let topics = Topics {
            file,
            log,
            defaults,
            present: Mutex::default(),
            record: Mutex::default(),
            growing: Mutex::default(),
            partitions_max: partitions_max(),
        };
        let mut map = TopicMap::default();
        for (name, topic) in &record.topics {
            let there = (0..topic.partitions)
                .filter(|number| logs.contains_key(&TopicPartition::new(name, *number)));
            let missing = topic.partitions as usize - there.count();
            if missing > 0 {
                tracing::warn!(
                    "topic {name}: the folders of {missing} of its {} partitions are not there; \
                     these are made again, and empty",
                    topic.partitions
                );
            }
            let log = |partition, id: &str, config| match logs.get(&partition) {
                Some(log) => {
                    log.set_config(config);
                    Ok(Arc::clone(log))
                }
                None => topics.log.create_again(partition, id, config),
            };
            map.add(Arc::new(topics.assembled(name, topic, log)?));
        }
        *lock(&topics.present) = Arc::new(map);
        lock(&topics.record).written = record;
        Ok(topics)
    }

    /// Returns the current topics.
    pub(crate) fn present(&self) -> Arc<TopicMap> {
        Arc::clone(&lock(&self.present))
    }

    /// Creates a topic. Blocks for some syncs.
    ///
    /// # Errors
    /// [`TopicError`]; the topic is not created.
    pub(crate) fn create(&self, new: &NewTopic) -> Result<Arc<Topic>, TopicError> {
        let id = TopicId::random();
        {
            let mut record = lock(&self.record);
            self.check(&record, new)?;
            self.write(&mut record, |next| {
                next.unfinished.insert(id, new.name.clone());
            })?;
            record.coming.insert(new.name.clone(), new.partitions);
        }
        let created = self.create_checked(new, id);
        if created.is_err() {
            // Delete the created partitions. The next start adopts those that cannot be deleted.
            let partitions =
                (0..new.partitions).map(|number| TopicPartition::new(&new.name, number));
            partitions.for_each(|partition| drop(self.log.delete(&partition)));
        }
        lock(&self.record).coming.remove(&new.name);
        created
    }

    fn create_checked(&self, new: &NewTopic, id: TopicId) -> Result<Arc<Topic>, TopicError> {
        let topic = TopicRecord {
            id,
            partitions: new.partitions,
            config: new.config.clone(),
        };
        let log = |partition, id: &str, config| self.log.create(partition, id, config);
        let made = Arc::new(self.assembled(&new.name, &topic, log)?);
        self.write(&mut lock(&self.record), |next| {
            next.topics.insert(new.name.clone(), topic);
            next.unfinished.remove(&id);
        })?;
        self.change(|map| map.add(Arc::clone(&made)));
        Ok(made)
    }

    /// Checks whether a topic can be created.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn check_new(&self, new: &NewTopic) -> Result<(), TopicError> {
        self.check(&lock(&self.record), new)
    }

    fn check(&self, record: &TopicRecords, new: &NewTopic) -> Result<(), TopicError> {
        check_name(&new.name).map_err(TopicError::Name)?;
        let names = || record.written.topics.keys().chain(record.coming.keys());
        if names().any(|name| *name == new.name) {
            return Err(TopicError::Exists);
        }
        let key = collision_key(&new.name);
        if let Some(other) = names().find(|other| collision_key(other) == key) {
            return Err(TopicError::Collides(other.as_str().into()));
        }
        if !(1..=PARTITIONS_MAX).contains(&new.partitions) {
            return Err(TopicError::Partitions(new.partitions));
        }
        // Internal topics are exempt: without them the broker has no groups.
        if !is_internal(&new.name) {
            self.check_room(record, new.partitions)?;
        }
        self.defaults
            .with(&new.config)
            .map_err(TopicError::Config)?;
        Ok(())
    }

    /// Checks the limit of partitions of all topics.
    pub(crate) fn check_room(&self, record: &TopicRecords, wanted: i32) -> Result<(), TopicError> {
        let counts = record.written.topics.values().map(|topic| topic.partitions);
        let counts = counts.chain(record.coming.values().copied());
        let present: usize = counts.map(|count| count as usize).sum();
        match present + wanted as usize > self.partitions_max {
            true => Err(TopicError::TooMany {
                wanted,
                present,
                max: self.partitions_max,
            }),
            false => Ok(()),
        }
    }

    /// Changes the file and the state that mirrors it.
    pub(crate) fn write(
        &self,
        record: &mut TopicRecords,
        change: impl FnOnce(&mut MetadataRecord),
    ) -> io::Result<()> {
        let mut next = record.written.clone();
        change(&mut next);
        self.file.write(&next)?;
        record.written = next;
        Ok(())
    }

    /// Deletes a topic. Blocks for some syncs.
    ///
    /// # Errors
    /// [`TopicError::Unknown`]; `Disk` and `Log`: the topic is gone, but may come back with the
    /// next start, unless another change is written before.
    pub(crate) fn delete(&self, name: &str) -> Result<(), TopicError> {
        let mut record = lock(&self.record);
        if !record.written.topics.contains_key(name) {
            return Err(TopicError::Unknown);
        }
        let present = self.present();
        let topic = present.named(name).ok_or(TopicError::Unknown)?;
        self.change(|map| {
            map.by_name.remove(name);
            map.by_id.remove(&topic.id);
        });
        let written = self.write(&mut record, |next| {
            next.topics.remove(name);
            next.unfinished.insert(topic.id, name.to_owned());
        });
        // Continue if this fails on a full disk, since deletion makes room. The next start would
        // create the topic again, empty.
        record.written.topics.remove(name);
        let partitions = topic.partitions.iter();
        let deleted = partitions.map(|partition| self.log.delete(partition.name()));
        let deleted: Vec<_> = deleted.collect();
        written?;
        deleted.into_iter().collect::<Result<(), _>>()?;
        // Written with the next change.
        record.written.unfinished.remove(&topic.id);
        Ok(())
    }

    /// Reserves unused producer IDs. Returns the first of them and their number. Blocks for some
    /// syncs.
    ///
    /// # Errors
    /// Errors of the file.
    pub(crate) fn reserve_producer_ids(&self) -> io::Result<(i64, i64)> {
        let mut record = lock(&self.record);
        let first = record.written.next_producer_id;
        self.write(&mut record, |next| {
            next.next_producer_id += PRODUCER_IDS_BLOCK;
        })?;
        Ok((first, PRODUCER_IDS_BLOCK))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut TopicMap)) {
        let mut present = lock(&self.present);
        change(Arc::make_mut(&mut present));
    }

    /// Makes a topic with its logs.
    fn assembled(
        &self,
        name: &str,
        topic: &TopicRecord,
        log: impl Fn(TopicPartition, &str, Arc<TopicConfig>) -> Result<Arc<PartitionLog>, LogError>,
    ) -> Result<Topic, TopicError> {
        let own = match name {
            OFFSETS_TOPIC => compacted(),
            _ if is_internal(name) => kept_forever(),
            _ => topic.config.clone(),
        };
        let config = self.log_config(name, &own)?;
        let id = topic.id.to_string();
        let partitions = (0..topic.partitions)
            .map(|number| log(TopicPartition::new(name, number), &id, Arc::clone(&config)));
        Ok(Topic {
            name: name.into(),
            id: topic.id,
            partitions: partitions.collect::<Result<_, _>>()?,
            config: own,
        })
    }

    /// Returns the configuration that the logs of a topic obey. The defaults of the configuration
    /// file do not apply to internal topics.
    pub(crate) fn log_config(
        &self,
        name: &str,
        config: &BTreeMap<String, String>,
    ) -> Result<Arc<TopicConfig>, TopicError> {
        let config = match is_internal(name) {
            true => TopicConfig::default().with(config),
            false => self.defaults.with(config),
        };
        config.map(Arc::new).map_err(TopicError::Config)
    }
}

/// Returns the logs of the found partitions by name, and whether the record changed: unknown
/// partitions are adopted, and those of unfinished topics are deleted.
fn adopt(
    record: &mut MetadataRecord,
    log: &LogManager,
    found: &[FoundPartition],
) -> Result<(HashMap<TopicPartition, Arc<PartitionLog>>, bool), LogError> {
    let unfinished = std::mem::take(&mut record.unfinished);
    let mut adopted = !unfinished.is_empty();
    let mut logs = HashMap::new();
    for one in found {
        let (name, id) = (one.log.name(), one.log.topic_id());
        let id = TopicId::try_from(id.to_owned()).ok();
        let is_unfinished = match id {
            Some(id) => unfinished.contains_key(&id),
            // The ID was not written yet.
            None => {
                let mut names = unfinished.values();
                !record.topics.contains_key(&*name.topic) && names.any(|one| **one == *name.topic)
            }
        };
        if is_unfinished {
            log.delete(name)?;
            continue;
        }
        let id = id.unwrap_or_else(TopicId::random);
        logs.insert(name.clone(), Arc::clone(&one.log));
        let topic = record.topics.entry(name.topic.to_string());
        let topic = topic.or_insert_with(|| {
            adopted = true;
            // The folder does not contain the topic's configuration, so disable retention.
            tracing::warn!(
                "topic {} was found in the data folder: it is adopted, and kept for ever",
                name.topic
            );
            TopicRecord {
                id,
                partitions: 0,
                config: kept_forever(),
            }
        });
        adopted |= topic.partitions <= name.partition;
        topic.partitions = topic.partitions.max(name.partition + 1);
        // Another broker may have handed out this ID. Batches of a new producer with the same ID
        // would count as duplicates.
        let unused = one.log.largest_producer_id().map_or(0, |id| id + 1);
        adopted |= record.next_producer_id < unused;
        record.next_producer_id = record.next_producer_id.max(unused);
    }
    Ok((logs, adopted))
}

fn partitions_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let part = limit.maximum.unwrap_or(u64::MAX) / DESCRIPTORS_PART;
    usize::try_from(part).map_or(PARTITIONS_ALL_MAX, |part| part.min(PARTITIONS_ALL_MAX))
}

/// Returns a configuration without retention limits.
fn kept_forever() -> BTreeMap<String, String> {
    ["retention.ms", "retention.bytes"]
        .map(|name| (name.to_owned(), "-1".to_owned()))
        .into()
}

/// Returns the configuration of the topic of offsets, which is Kafka's.
fn compacted() -> BTreeMap<String, String> {
    [
        ("cleanup.policy", "compact"),
        ("compression.type", "producer"),
        ("segment.bytes", "104857600"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

#[cfg(test)]
mod tests {
    use underpass_log::DataFolderOptions;

    use super::*;

    fn opened(folder: &Path) -> (Topics, Arc<LogManager>) {
        let config = |_: &str| Arc::new(TopicConfig::default());
        let options = DataFolderOptions::default();
        let (log, found) = LogManager::open(folder, options, &config, Box::new(|_| ())).unwrap();
        let topics = Topics::open(folder, Arc::clone(&log), &found, TopicConfig::default());
        (topics.unwrap(), log)
    }

    fn new(name: &str, partitions: i32) -> NewTopic {
        NewTopic {
            name: name.to_owned(),
            partitions,
            config: BTreeMap::new(),
        }
    }

    #[test]
    fn topics_are_there_until_they_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        let made = topics.create(&new("orders", 3)).unwrap();
        assert_eq!(made.partitions.len(), 3);
        topics.create(&new("other", 1)).unwrap();
        assert!(matches!(
            topics.create(&new("orders", 1)),
            Err(TopicError::Exists)
        ));
        topics.delete("other").unwrap();
        assert!(matches!(topics.delete("other"), Err(TopicError::Unknown)));
        let first = topics.reserve_producer_ids().unwrap();
        log.close().unwrap();
        drop((topics, log, made));
        let (topics, _log) = opened(folder.path());
        let present = topics.present();
        let names: Vec<_> = present.all().map(|topic| &*topic.name).collect();
        assert_eq!(names, ["orders"]);
        let orders = present.named("orders").unwrap();
        assert_eq!(present.with_id(orders.id).unwrap().partitions.len(), 3);
        assert!(orders.partition(2).is_some() && orders.partition(3).is_none());
        assert!(orders.partition(-1).is_none());
        let second = topics.reserve_producer_ids().unwrap();
        assert_eq!(second.0, first.0 + first.1);
    }

    #[test]
    fn what_cannot_be_a_topic_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, _log) = opened(folder.path());
        topics.create(&new("a.b", 1)).unwrap();
        let refused = |new: &NewTopic| topics.create(new).unwrap_err().to_string();
        assert!(refused(&new("a_b", 1)).contains("a.b"));
        assert!(refused(&new("a/b", 1)).contains("'/'"));
        assert!(refused(&new("c", 0)).contains("1 to"));
        let mut wrong = new("c", 1);
        wrong.config.insert("retention.ms".into(), "soon".into());
        assert!(refused(&wrong).contains("retention.ms=soon"));
        assert!(topics.present().named("c").is_none());
    }

    #[test]
    fn a_topic_need_not_wait_for_a_larger_one() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, _log) = opened(folder.path());
        std::thread::scope(|scope| {
            let large = scope.spawn(|| topics.create(&new("large", 500)).map(drop));
            while lock(&topics.record).coming.is_empty() {}
            topics.create(&new("small", 1)).unwrap();
            assert!(!large.is_finished());
            assert!(matches!(
                topics.create(&new("large", 1)),
                Err(TopicError::Exists)
            ));
            large.join().unwrap().unwrap();
        });
        assert_eq!(topics.present().all().count(), 2);
    }

    #[test]
    fn all_topics_together_have_a_bounded_number_of_partitions() {
        let folder = tempfile::tempdir().unwrap();
        let (mut topics, _log) = opened(folder.path());
        topics.partitions_max = 5;
        topics.create(&new("a", 3)).unwrap();
        let refused = topics.create(&new("b", 3)).unwrap_err();
        assert!(matches!(refused, TopicError::TooMany { present: 3, .. }));
        topics.create(&new("b", 2)).unwrap();
        topics.create(&new("__consumer_offsets", 50)).unwrap();
        topics.delete("a").unwrap();
        topics.delete("b").unwrap();
    }

    #[test]
    fn a_topic_that_cannot_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        let obstacle = folder.path().join("t-2");
        std::fs::write(&obstacle, "").unwrap();
        topics.create(&new("t", 4)).unwrap_err();
        assert!(log.partitions().is_empty() && topics.present().named("t").is_none());
        std::fs::remove_file(obstacle).unwrap();
        assert_eq!(topics.create(&new("t", 4)).unwrap().partitions.len(), 4);
    }

    #[test]
    fn what_was_being_made_or_deleted_is_not_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        topics.create(&new("made", 2)).unwrap();
        let metadata = MetadataFile::of(folder.path());
        let mut record = metadata.read().unwrap();
        let id = topics.create(&new("coming", 2)).unwrap().id;
        log.close().unwrap();
        drop((topics, log));
        // A crash after the folders were created or deleted, and before the topic was written.
        std::fs::remove_file(folder.path().join("coming-1/partition.metadata")).unwrap();
        record.unfinished.insert(id, "coming".to_owned());
        metadata.write(&record).unwrap();
        for _ in 0..2 {
            let (topics, log) = opened(folder.path());
            let present = topics.present();
            let names: Vec<_> = present.all().map(|topic| &*topic.name).collect();
            assert_eq!(names, ["made"]);
            assert_eq!(log.partitions().len(), 2);
            assert!(metadata.read().unwrap().unfinished.is_empty());
            let id = topics.create(&new("coming", 1)).unwrap().id;
            assert!(metadata.read().unwrap().unfinished.is_empty());
            topics.delete("coming").unwrap();
            // Written with the next change.
            let unfinished = metadata.read().unwrap().unfinished;
            assert_eq!(unfinished, [(id, "coming".to_owned())].into());
            log.close().unwrap();
        }
    }

    #[test]
    fn a_topic_goes_though_the_metadata_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        topics.create(&new("t", 2)).unwrap();
        let file = MetadataFile::of(folder.path()).path();
        let obstacle = file.with_extension("json.new");
        std::fs::create_dir(&obstacle).unwrap();
        assert!(matches!(topics.delete("t"), Err(TopicError::Disk(_))));
        assert!(log.partitions().is_empty() && topics.present().named("t").is_none());
        assert!(!folder.path().join("t-1").exists());
        std::fs::remove_dir(obstacle).unwrap();
        // The next change makes the deletion permanent.
        topics.create(&new("other", 1)).unwrap();
        assert!(!std::fs::read_to_string(file).unwrap().contains("\"t\""));
    }

    #[test]
    fn metadata_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (_, log) = opened(folder.path());
        let file = MetadataFile::of(folder.path()).path();
        std::fs::write(&file, "{").unwrap();
        let refused = Topics::open(folder.path(), log, &[], TopicConfig::default());
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains(file.to_str().unwrap()), "{refused}");
    }

    #[test]
    fn folders_that_come_from_elsewhere_are_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        let made = topics.create(&new("orders", 2)).unwrap();
        let id = made.id;
        log.close().unwrap();
        drop((topics, log, made));
        std::fs::remove_file(MetadataFile::of(folder.path()).path()).unwrap();
        let (topics, _log) = opened(folder.path());
        let present = topics.present();
        let adopted = present.named("orders").unwrap();
        assert_eq!((adopted.id, adopted.partitions.len()), (id, 2));
    }
}
