//! Names of partitions, and places in them.

use std::fmt;
use std::sync::Arc;

/// The largest offset accepted as valid: a larger one is damage, as no log gets there. Leaves room
/// for additions.
pub(crate) const OFFSET_MAX: i64 = i64::MAX / 2;

/// The longest topic name, in bytes.
const TOPIC_BYTES_MAX: usize = 249;

/// Parses an offset from a text file.
pub(crate) fn parse_offset(text: &str) -> Option<i64> {
    let offset = text.parse().ok()?;
    (0..=OFFSET_MAX).contains(&offset).then_some(offset)
}

/// The topic and number of a partition.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Makes the name of a partition of a topic.
    pub fn new(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition {
            topic: topic.into(),
            partition,
        }
    }

    /// Parses the name of a folder `TOPIC-PARTITION`; `None` if Kafka forbids the topic name.
    pub(crate) fn of_folder(name: &str) -> Option<TopicPartition> {
        let (topic, partition) = name.rsplit_once('-')?;
        let number: i32 = partition.parse().ok()?;
        let is_plain = number >= 0 && number.to_string() == partition;
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_topic = (1..=TOPIC_BYTES_MAX).contains(&topic.len())
            && topic.bytes().all(is_legal)
            && ![".", ".."].contains(&topic);
        (is_plain && is_topic).then(|| TopicPartition::new(topic, number))
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// An offset and its position on disk.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct LogPosition {
    pub(crate) offset: i64,
    /// The base offset of the segment.
    pub(crate) segment: i64,
    pub(crate) position: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_the_names_of_partitions() {
        for (name, expected) in [
            ("orders-0", Some(("orders", 0))),
            ("a-b-12", Some(("a-b", 12))),
            ("__consumer_offsets-49", Some(("__consumer_offsets", 49))),
            ("orders", None),
            ("orders-", None),
            ("orders-01", None),
            ("-1", None),
            ("orders-x", None),
            ("orders-0.5f3e-delete", None),
            ("my orders-0", None),
            ("..-0", None),
            (&format!("{}-0", "t".repeat(250)), None),
        ] {
            let of = TopicPartition::of_folder(name);
            let expected = expected.map(|(topic, partition)| TopicPartition::new(topic, partition));
            assert_eq!(of, expected, "{name}");
            if let Some(of) = of {
                assert_eq!(of.to_string(), name);
            }
        }
    }
}
