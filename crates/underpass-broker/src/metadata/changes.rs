//! Changes of topics that exist: more partitions, and other configurations.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use underpass_log::{TopicConfig, TopicPartition};

use crate::lock::lock;
use crate::metadata::configs::ConfigChange;
use crate::metadata::names::is_internal;
use crate::metadata::topics::{PARTITIONS_MAX, Topic, TopicError, TopicMap, TopicRecords, Topics};

/// Whether a change is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ChangeMode {
    Write,
    CheckOnly,
}

impl Topics {
    /// Checks whether a topic can get this number of partitions.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn check_extension(&self, name: &str, partitions: i32) -> Result<(), TopicError> {
        self.check_more(&lock(&self.record), name, partitions)
            .map(drop)
    }

    /// Returns the number of partitions that are missing.
    fn check_more(
        &self,
        record: &TopicRecords,
        name: &str,
        wanted: i32,
    ) -> Result<i32, TopicError> {
        let topic = record.written.topics.get(name);
        let present = topic.ok_or(TopicError::Unknown)?.partitions;
        if is_internal(name) {
            return Err(TopicError::Internal);
        }
        if wanted <= present {
            return Err(TopicError::NotMore { wanted, present });
        }
        if wanted > PARTITIONS_MAX {
            return Err(TopicError::Partitions(wanted));
        }
        self.check_room(record, wanted - present)?;
        Ok(wanted - present)
    }

    /// Adds partitions to a topic until it has this number. Blocks for some syncs. After a crash
    /// meanwhile the topic may have some of them.
    ///
    /// # Errors
    /// [`TopicError`]; the topic stays as it was.
    pub(crate) fn extend(&self, name: &str, partitions: i32) -> Result<(), TopicError> {
        let _alone = lock(&self.growing);
        let topic = {
            let mut record = lock(&self.record);
            let missing = self.check_more(&record, name, partitions)?;
            record.coming.insert(name.to_owned(), missing);
            self.present().named(name).cloned()
        };
        let extended = topic.ok_or(TopicError::Unknown).and_then(|topic| {
            let from = topic.partitions.len() as i32;
            let extended = self.extend_checked(&topic, from..partitions);
            if extended.is_err() {
                let partitions = (from..partitions).map(|number| TopicPartition::new(name, number));
                partitions.for_each(|partition| drop(self.log.delete(&partition)));
            }
            extended
        });
        lock(&self.record).coming.remove(name);
        extended
    }

    fn extend_checked(&self, topic: &Topic, numbers: Range<i32>) -> Result<(), TopicError> {
        let (name, id, partitions) = (&*topic.name, topic.id.to_string(), numbers.end);
        let config = self.log_config(name, &topic.config)?;
        let logs = numbers.map(|number| {
            let partition = TopicPartition::new(name, number);
            self.log.create(partition, &id, Arc::clone(&config))
        });
        let logs = logs.collect::<Result<Vec<_>, _>>()?;
        let mut record = lock(&self.record);
        // It may have been deleted, or its configuration changed.
        let present = self.present();
        let present = present.with_id(topic.id).ok_or(TopicError::Unknown)?;
        let config = self.log_config(name, &present.config)?;
        logs.iter()
            .for_each(|log| log.set_config(Arc::clone(&config)));
        self.write(&mut record, |next| {
            if let Some(topic) = next.topics.get_mut(name) {
                topic.partitions = partitions;
            }
        })?;
        let partitions = present.partitions.iter().cloned().chain(logs);
        let extended = Arc::new(Topic {
            name: Arc::clone(&topic.name),
            id: topic.id,
            partitions: partitions.collect(),
            config: present.config.clone(),
        });
        self.change(|map| map.add(extended));
        Ok(())
    }

    /// Changes the configurations of topics with one write, or only checks the changes. Returns a
    /// result for each. Blocks for some syncs.
    pub(crate) fn alter_configs(
        &self,
        changes: &[(&str, &ConfigChange)],
        mode: ChangeMode,
    ) -> Vec<Result<(), TopicError>> {
        let mut record = lock(&self.record);
        let configs = changes.iter().map(|(name, change)| {
            let topic = record.written.topics.get(*name);
            let topic = topic.ok_or(TopicError::Unknown)?;
            if is_internal(name) {
                return Err(TopicError::Internal);
            }
            let config = change.of(&topic.config).map_err(TopicError::Config)?;
            Ok((*name, self.log_config(name, &config)?, config))
        });
        let configs: Vec<_> = configs.collect();
        let changed: Vec<_> = configs.iter().flatten().collect();
        if mode == ChangeMode::Write && !changed.is_empty() {
            let written = self.write(&mut record, |next| {
                for (name, _, config) in &changed {
                    if let Some(topic) = next.topics.get_mut(*name) {
                        topic.config = config.clone();
                    }
                }
            });
            if let Err(error) = written {
                let failed = |_| Err(io::Error::new(error.kind(), error.to_string()).into());
                return configs
                    .into_iter()
                    .map(|one| one.and_then(failed))
                    .collect();
            }
            self.change(|map| {
                for (name, log_config, config) in changed {
                    map.reconfigure(name, log_config, config);
                }
            });
        }
        configs.into_iter().map(|one| one.map(drop)).collect()
    }
}

impl TopicMap {
    /// Changes the configuration of a topic and its logs.
    fn reconfigure(
        &mut self,
        name: &str,
        log_config: &Arc<TopicConfig>,
        config: &BTreeMap<String, String>,
    ) {
        let Some(topic) = self.named(name) else {
            return;
        };
        let partitions = topic.partitions.iter();
        partitions.for_each(|log| log.set_config(Arc::clone(log_config)));
        self.add(Arc::new(Topic {
            name: Arc::clone(&topic.name),
            id: topic.id,
            partitions: topic.partitions.clone(),
            config: config.clone(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use underpass_log::{CleanupPolicy, DataFolderOptions, LogManager};

    use super::*;
    use crate::metadata::configs::ConfigOperation;
    use crate::metadata::file::MetadataFile;
    use crate::metadata::topics::NewTopic;

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

    fn update(values: &[(&str, &str)]) -> ConfigChange {
        let updates = values.iter().map(|(name, value)| {
            let set = ConfigOperation::Set((*value).to_owned());
            ((*name).to_owned(), set)
        });
        ConfigChange::Update(updates.collect())
    }

    #[test]
    fn partitions_are_added_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        let made = topics.create(&new("t", 2)).unwrap();
        topics.create(&new("__consumer_offsets", 1)).unwrap();
        let refused = |name: &str, count: i32| {
            let checked = topics.check_extension(name, count).unwrap_err();
            let refused = topics.extend(name, count).unwrap_err();
            assert_eq!(checked.to_string(), refused.to_string());
            refused
        };
        for count in [i32::MIN, 0, 1, 2] {
            assert!(matches!(
                refused("t", count),
                TopicError::NotMore { present: 2, .. }
            ));
        }
        assert!(matches!(refused("u", 3), TopicError::Unknown));
        assert!(matches!(
            refused("t", PARTITIONS_MAX + 1),
            TopicError::Partitions(_)
        ));
        assert!(matches!(
            refused("__consumer_offsets", 2),
            TopicError::Internal
        ));
        let change = update(&[("retention.ms", "1")]);
        let mut altered = topics.alter_configs(&[("t", &change)], ChangeMode::Write);
        altered.remove(0).unwrap();
        topics.extend("t", 5).unwrap();
        let present = topics.present();
        let extended = present.named("t").unwrap();
        assert_eq!((extended.id, extended.partitions.len()), (made.id, 5));
        for partition in &extended.partitions {
            assert_eq!(partition.config().retention_ms, 1);
            assert_eq!(partition.topic_id(), made.id.to_string());
        }
        log.close().unwrap();
        drop((topics, log));
        let (topics, _log) = opened(folder.path());
        let present = topics.present();
        assert_eq!(present.named("t").unwrap().partitions.len(), 5);
        assert!(lock(&topics.record).coming.is_empty());
    }

    #[test]
    fn a_topic_that_cannot_be_extended_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (mut topics, log) = opened(folder.path());
        topics.partitions_max = 10;
        topics.create(&new("t", 2)).unwrap();
        assert!(matches!(
            topics.extend("t", 11),
            Err(TopicError::TooMany { .. })
        ));
        let obstacle = folder.path().join("t-3");
        std::fs::write(&obstacle, "").unwrap();
        topics.extend("t", 5).unwrap_err();
        assert_eq!(log.partitions().len(), 2);
        assert_eq!(topics.present().named("t").unwrap().partitions.len(), 2);
        std::fs::remove_file(obstacle).unwrap();
        topics.extend("t", 5).unwrap();
        assert_eq!(log.partitions().len(), 5);
    }

    #[test]
    fn configurations_change_for_good_and_without_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        for name in ["t", "u", "__consumer_offsets"] {
            topics.create(&new(name, 2)).unwrap();
        }
        let change = update(&[("retention.ms", "1000"), ("segment.bytes", "1048576")]);
        let wrong = update(&[("retention.ms", "soon")]);
        let changes = [
            ("t", &change),
            ("u", &wrong),
            ("v", &change),
            ("__consumer_offsets", &change),
        ];
        for mode in [ChangeMode::CheckOnly, ChangeMode::Write] {
            let results = topics.alter_configs(&changes, mode);
            let refused: Vec<_> = results.into_iter().map(|result| result.err()).collect();
            assert!(matches!(
                &refused[..],
                [
                    None,
                    Some(TopicError::Config(why)),
                    Some(TopicError::Unknown),
                    Some(TopicError::Internal)
                ] if why.contains("retention.ms=soon")
            ));
            let present = topics.present();
            let config = present.named("t").unwrap().partitions[1].config();
            let is_changed = (config.retention_ms, config.segment_bytes) == (1000, 1 << 20);
            assert_eq!(is_changed, mode == ChangeMode::Write);
        }
        log.close().unwrap();
        drop((topics, log));
        let (topics, _log) = opened(folder.path());
        let present = topics.present();
        let topic = present.named("t").unwrap();
        assert_eq!(topic.config["retention.ms"], "1000");
        assert_eq!(topic.partitions[0].config().retention_ms, 1000);
        let other = present.named("u").unwrap();
        assert!(other.config.is_empty());
        let offsets = present.named("__consumer_offsets").unwrap();
        assert_eq!(offsets.config["cleanup.policy"], "compact");
        let policy = offsets.partitions[1].config().cleanup_policy;
        assert_eq!(policy, CleanupPolicy::Compact);
    }

    #[test]
    fn a_configuration_that_cannot_be_written_does_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, _log) = opened(folder.path());
        let made = topics.create(&new("t", 1)).unwrap();
        let obstacle = MetadataFile::of(folder.path())
            .path()
            .with_extension("json.new");
        std::fs::create_dir(&obstacle).unwrap();
        let change = update(&[("retention.ms", "1000")]);
        let mut altered = topics.alter_configs(&[("t", &change)], ChangeMode::Write);
        assert!(matches!(altered.remove(0), Err(TopicError::Disk(_))));
        assert_ne!(made.partitions[0].config().retention_ms, 1000);
        assert!(topics.present().named("t").unwrap().config.is_empty());
        topics.extend("t", 2).unwrap_err();
        assert_eq!(topics.present().named("t").unwrap().partitions.len(), 1);
    }

    #[test]
    fn a_topic_that_was_adopted_gets_another_configuration_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        topics.create(&new("t", 2)).unwrap();
        log.close().unwrap();
        drop((topics, log));
        std::fs::remove_file(MetadataFile::of(folder.path()).path()).unwrap();
        let (topics, log) = opened(folder.path());
        let present = topics.present();
        let adopted = present.named("t").unwrap();
        assert_eq!(adopted.config["retention.ms"], "-1");
        assert_eq!(adopted.partitions[0].config().retention_ms, -1);
        let delete = ("retention.ms".to_owned(), ConfigOperation::Delete);
        let change = ConfigChange::Update(vec![delete]);
        let mut altered = topics.alter_configs(&[("t", &change)], ChangeMode::Write);
        altered.remove(0).unwrap();
        let default = TopicConfig::default().retention_ms;
        assert_eq!(adopted.partitions[1].config().retention_ms, default);
        topics.extend("t", 3).unwrap();
        log.close().unwrap();
        drop((topics, log));
        let (topics, _log) = opened(folder.path());
        let present = topics.present();
        let topic = present.named("t").unwrap();
        assert_eq!(Vec::from_iter(topic.config.keys()), ["retention.bytes"]);
        assert_eq!(topic.partitions[2].config().retention_ms, default);
    }

    #[test]
    fn a_topic_that_is_deleted_while_it_is_extended_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        topics.create(&new("t", 1)).unwrap();
        std::thread::scope(|scope| {
            let extended = scope.spawn(|| topics.extend("t", 150));
            while lock(&topics.record).coming.is_empty() {}
            topics.delete("t").unwrap();
            assert!(matches!(
                topics.create(&new("t", 1)),
                Ok(_) | Err(TopicError::Exists)
            ));
            // Either the deletion came first, or it took all partitions along.
            let _ = extended.join().unwrap();
        });
        let count = topics
            .present()
            .named("t")
            .map_or(0, |topic| topic.partitions.len());
        assert_eq!(log.partitions().len(), count);
    }

    #[test]
    fn a_crash_while_partitions_are_added_leaves_some_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let (topics, log) = opened(folder.path());
        let made = topics.create(&new("t", 2)).unwrap();
        let config = made.partitions[0].config();
        let third = TopicPartition::new("t", 2);
        log.create(third, &made.id.to_string(), config).unwrap();
        log.close().unwrap();
        let id = made.id;
        drop((topics, log, made));
        let (topics, _log) = opened(folder.path());
        let present = topics.present();
        let topic = present.named("t").unwrap();
        assert_eq!((topic.id, topic.partitions.len()), (id, 3));
        assert!(topic.config.is_empty());
        topics.extend("t", 4).unwrap();
    }
}
