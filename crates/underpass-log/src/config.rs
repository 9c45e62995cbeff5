//! How a topic is kept, under Kafka's names, and how a data folder is.

use std::collections::BTreeMap;
use std::time::Duration;

/// How the partitions of a topic are kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TopicConfig {
    /// `segment.bytes`: a segment that would become larger is followed by another one.
    pub segment_bytes: u64,
    /// `segment.ms`: one that begins with an older record, too.
    pub segment_ms: i64,
    /// `segment.index.bytes`: the largest index.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: how many bytes of log have an entry in the indexes.
    pub index_interval_bytes: u64,
    /// `retention.bytes`: the oldest segments go while the log is larger; −1 for never.
    pub retention_bytes: i64,
    /// `retention.ms`: segments go whose latest record is older; −1 for never.
    pub retention_ms: i64,
    /// `file.delete.delay.ms`: how long their files stay under another name.
    pub file_delete_delay_ms: u64,
    /// `max.message.bytes`: the largest batch.
    pub max_message_bytes: usize,
    /// `flush.messages`: an append is answered after a sync when so many records are not synced.
    pub flush_messages: u64,
    /// `flush.ms`: records are synced after so long at the latest.
    pub flush_ms: u64,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            segment_bytes: 1 << 30,
            segment_ms: WEEK_MS,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_bytes: -1,
            retention_ms: WEEK_MS,
            file_delete_delay_ms: 60_000,
            max_message_bytes: (1 << 20) + 12,
            flush_messages: u64::MAX,
            flush_ms: u64::MAX,
        }
    }
}

const WEEK_MS: i64 = 7 * 86_400_000;

/// The largest segment: positions are 31 bits wide.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// The smallest segment that Kafka allows; tests take less.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

impl TopicConfig {
    /// The configuration that differs from this one in `values`.
    ///
    /// # Errors
    /// Which value is wrong, or not known, in words.
    pub fn with(&self, values: &BTreeMap<String, String>) -> Result<TopicConfig, String> {
        let mut config = self.clone();
        for (name, value) in values {
            config.set(name, value)?;
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "segment.bytes" => {
                self.segment_bytes = within(name, value, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
            }
            "segment.ms" => self.segment_ms = within(name, value, 1, i64::MAX)?,
            "segment.index.bytes" => {
                self.segment_index_bytes = within(name, value, 4, SEGMENT_BYTES_MAX)?;
            }
            "index.interval.bytes" => {
                self.index_interval_bytes = within(name, value, 0, SEGMENT_BYTES_MAX)?;
            }
            "retention.bytes" => self.retention_bytes = within(name, value, -1, i64::MAX)?,
            "retention.ms" => self.retention_ms = within(name, value, -1, i64::MAX)?,
            "file.delete.delay.ms" => {
                self.file_delete_delay_ms = within(name, value, 0, u64::MAX)?;
            }
            "max.message.bytes" => {
                self.max_message_bytes = within(name, value, 0, SEGMENT_BYTES_MAX as usize)?;
            }
            "flush.messages" => self.flush_messages = within(name, value, 1, u64::MAX)?,
            "flush.ms" => self.flush_ms = within(name, value, 0, u64::MAX)?,
            "cleanup.policy" => expected(name, value, "delete")?,
            "compression.type" => expected(name, value, "producer")?,
            "message.timestamp.type" => expected(name, value, "CreateTime")?,
            "min.insync.replicas" => expected(name, value, "1")?,
            _ => return Err(format!("there is no configuration {name:?} of topics")),
        }
        Ok(())
    }
}

fn within<T>(name: &str, value: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let parsed = value.trim().parse().ok();
    let within = parsed.filter(|parsed| (&least..=&most).contains(&parsed));
    within.ok_or_else(|| format!("{name}={value}: expected a number from {least} to {most}"))
}

/// Checks a configuration of which one value is supported.
fn expected(name: &str, value: &str, only: &str) -> Result<(), String> {
    match value == only {
        true => Ok(()),
        false => Err(format!("{name}={value} is not supported; expected {only}")),
    }
}

/// When records are synced.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FlushPolicy {
    /// Before an append with [`Acks::All`](crate::Acks) is answered; others within a second.
    #[default]
    Acks,
    /// Within a second.
    Interval,
    /// When the kernel sees fit.
    Never,
}

/// How a data folder is kept.
#[derive(Clone, Debug)]
pub struct DataFolderOptions {
    /// When records are synced.
    pub flush: FlushPolicy,
    /// The id of the broker, in `meta.properties`.
    pub node_id: i32,
    /// The id of the cluster for a new folder.
    pub cluster_id: String,
    /// How long a producer is known after its latest batch.
    pub producer_id_expiration: Duration,
    /// How often expired segments are looked for.
    pub retention_check_interval: Duration,
}

impl Default for DataFolderOptions {
    fn default() -> DataFolderOptions {
        DataFolderOptions {
            flush: FlushPolicy::default(),
            node_id: 1,
            cluster_id: "underpass".to_owned(),
            producer_id_expiration: Duration::from_secs(86_400),
            retention_check_interval: Duration::from_secs(300),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_checked() {
        let set = |name: &str, value: &str| {
            let values = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            TopicConfig::default().with(&values)
        };
        assert_eq!(set("retention.ms", "-1").unwrap().retention_ms, -1);
        assert_eq!(
            set("segment.bytes", "1048576").unwrap().segment_bytes,
            1 << 20
        );
        assert_eq!(set("cleanup.policy", "delete"), Ok(TopicConfig::default()));
        for (name, value) in [
            ("segment.bytes", "1"),
            ("segment.bytes", "x"),
            ("retention.ms", "-2"),
            ("cleanup.policy", "compact"),
            ("segmnt.bytes", "1048576"),
        ] {
            let wrong = set(name, value).unwrap_err();
            assert!(wrong.contains(name), "{wrong}");
        }
    }
}
