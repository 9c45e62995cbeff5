//! The committed offsets of a group.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::group::record::CommittedOffset;

/// The committed offsets of a group by topic and partition, without those still being written.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    topics: BTreeMap<String, BTreeMap<i32, CommittedOffset>>,
    /// The number of commits being written.
    pub(crate) commits_pending: usize,
}

impl Offsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.commits_pending == 0
    }

    pub(crate) fn committed(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.topics.get(topic)?.get(&partition)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        let topics = self.topics.iter();
        topics.flat_map(|(topic, partitions)| {
            let partitions = partitions.iter();
            partitions.map(move |(partition, offset)| (topic.as_str(), *partition, offset))
        })
    }

    pub(crate) fn insert(&mut self, topic: String, partition: i32, offset: CommittedOffset) {
        self.topics
            .entry(topic)
            .or_default()
            .insert(partition, offset);
    }

    pub(crate) fn remove(&mut self, topic: &str, partition: i32) {
        if let Entry::Occupied(mut entry) = self.topics.entry(topic.to_owned()) {
            entry.get_mut().remove(&partition);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// Returns the partitions of a topic that have an offset.
    pub(crate) fn partitions(&self, topic: &str) -> Vec<i32> {
        let partitions = self.topics.get(topic);
        partitions.map_or_else(Vec::new, |partitions| partitions.keys().copied().collect())
    }
}
