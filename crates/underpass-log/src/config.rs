//! Configuration of topics, under Kafka's names, and options of a data folder.

use std::collections::BTreeMap;
use std::time::Duration;

use ConfigType::{Boolean, Double, Int, List, Long, String as Text};
use ConfigValues::{AnyBoolean, AnyNumber, AnyReplicas, DefaultOnly, Followed, Policies, Ratio};

/// The configuration of a topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`: whether old segments are deleted, and whether the log is compacted.
    pub cleanup_policy: CleanupPolicy,
    /// `min.cleanable.dirty.ratio`: the log is compacted when more than this part of its closed
    /// segments was written since the last compaction.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: the least age of compacted records.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: the log is compacted, whatever the ratio, when a record is older.
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`: the time that tombstones are kept after a compaction has met them.
    pub delete_retention_ms: i64,
    /// `segment.bytes`: the largest size of a segment.
    pub segment_bytes: u64,
    /// `segment.ms`: the longest time that a segment spans.
    pub segment_ms: i64,
    /// `segment.index.bytes`: the largest index.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: the number of log bytes between two index entries.
    pub index_interval_bytes: u64,
    /// `retention.bytes`: the oldest segments are deleted while the log is larger; −1 for never.
    pub retention_bytes: i64,
    /// `retention.ms`: segments whose latest record is older are deleted; −1 for never.
    pub retention_ms: i64,
    /// `file.delete.delay.ms`: the time that deleted files are kept under another name.
    pub file_delete_delay_ms: u64,
    /// `max.message.bytes`: the largest batch.
    pub max_message_bytes: usize,
    /// `flush.messages`: with this many unsynced records, appends are answered after a sync.
    pub flush_messages: u64,
    /// `flush.ms`: the longest time until records are synced.
    pub flush_ms: u64,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            cleanup_policy: CleanupPolicy::Delete,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: DAY_MS,
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

const DAY_MS: i64 = 86_400_000;
const WEEK_MS: i64 = 7 * DAY_MS;

/// How a log is kept small.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CleanupPolicy {
    /// Segments are deleted by age and size.
    Delete,
    /// Of each key, the latest record is kept.
    Compact,
    /// Both.
    CompactAndDelete,
}

impl CleanupPolicy {
    /// Whether segments are deleted by age and size.
    pub fn deletes(self) -> bool {
        self != CleanupPolicy::Compact
    }

    /// Whether the log is compacted.
    pub fn compacts(self) -> bool {
        self != CleanupPolicy::Delete
    }

    /// Parses a list of `delete` and `compact`.
    fn of(list: &str) -> Option<CleanupPolicy> {
        let (mut deletes, mut compacts) = (false, false);
        for policy in list.split(',') {
            match policy.trim() {
                "delete" => deletes = true,
                "compact" => compacts = true,
                _ => return None,
            }
        }
        Some(match (deletes, compacts) {
            (true, true) => CleanupPolicy::CompactAndDelete,
            (false, true) => CleanupPolicy::Compact,
            _ => CleanupPolicy::Delete,
        })
    }
}

/// The largest value of Kafka's type `int`; positions in a segment are 31 bits wide.
const INT_MAX: i64 = i32::MAX as i64;

/// The smallest segment size that Kafka allows; tests use smaller ones.
const SEGMENT_BYTES_MIN: i64 = 1 << 20;

impl TopicConfig {
    /// Returns this configuration with the changes in `values`.
    ///
    /// # Errors
    /// A message that names the invalid or unknown value.
    pub fn with(&self, values: &BTreeMap<String, String>) -> Result<TopicConfig, String> {
        let mut config = self.clone();
        for (name, value) in values {
            TopicConfigKey::named(name)?.set(&mut config, value)?;
        }
        let (min, max) = (config.min_compaction_lag_ms, config.max_compaction_lag_ms);
        if min > max {
            return Err(format!(
                "min.compaction.lag.ms={min} is more than max.compaction.lag.ms={max}"
            ));
        }
        Ok(config)
    }

    /// Returns the longest time that a segment spans. Only closed segments are compacted.
    pub(crate) fn roll_ms(&self) -> i64 {
        match self.cleanup_policy.compacts() {
            true => self.segment_ms.min(self.max_compaction_lag_ms),
            false => self.segment_ms,
        }
    }
}

/// A topic configuration key of Kafka.
#[derive(Debug)]
pub struct TopicConfigKey {
    /// The name.
    pub name: &'static str,
    /// The type of the values.
    pub kind: ConfigType,
    /// The default value.
    pub default: &'static str,
    /// The accepted values and their effect.
    pub values: ConfigValues,
}

/// The types of Kafka's configuration keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConfigType {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// A 32-bit number.
    Int,
    /// A 64-bit number.
    Long,
    /// A number with a fraction.
    Double,
    /// A comma-separated list of words.
    List,
}

/// The accepted values of a configuration key.
#[derive(Debug)]
pub enum ConfigValues {
    /// Numbers from the first to the second; the log obeys them.
    Followed(i64, i64, fn(&mut TopicConfig, i64)),
    /// Numbers from the first to the second; they have no effect.
    AnyNumber(i64, i64),
    /// Numbers from 0 to 1; the log obeys them.
    Ratio(fn(&mut TopicConfig, f64)),
    /// A list of `delete` and `compact`.
    Policies,
    /// `true` and `false`; they have no effect.
    AnyBoolean,
    /// `*`, or replicas as `PARTITION:BROKER,…`; they have no effect.
    AnyReplicas,
    /// Only the default: any other value would have an effect.
    DefaultOnly,
}

const fn key(
    name: &'static str,
    kind: ConfigType,
    default: &'static str,
    values: ConfigValues,
) -> TopicConfigKey {
    TopicConfigKey {
        name,
        kind,
        default,
        values,
    }
}

/// The largest value of Kafka's type `long`: never, or no limit.
const LONG_MAX: &str = "9223372036854775807";

/// All topic configuration keys of Kafka 4.3, sorted by name. Recompression, replication
/// and remote storage are not supported: values for these have no effect.
pub const TOPIC_CONFIGS: [TopicConfigKey; 33] = [
    key("cleanup.policy", List, "delete", Policies),
    key("compression.gzip.level", Int, "-1", AnyNumber(-1, 9)),
    key("compression.lz4.level", Int, "9", AnyNumber(1, 17)),
    key("compression.type", Text, "producer", DefaultOnly),
    key("compression.zstd.level", Int, "3", AnyNumber(-131_072, 22)),
    key(
        "delete.retention.ms",
        Long,
        "86400000",
        Followed(0, i64::MAX, |config, value| {
            config.delete_retention_ms = value;
        }),
    ),
    key(
        "file.delete.delay.ms",
        Long,
        "60000",
        Followed(0, i64::MAX, |config, value| {
            config.file_delete_delay_ms = value.unsigned_abs();
        }),
    ),
    key(
        "flush.messages",
        Long,
        LONG_MAX,
        Followed(1, i64::MAX, |config, value| {
            config.flush_messages = unless_never(value);
        }),
    ),
    key(
        "flush.ms",
        Long,
        LONG_MAX,
        Followed(0, i64::MAX, |config, value| {
            config.flush_ms = unless_never(value);
        }),
    ),
    key(
        "follower.replication.throttled.replicas",
        List,
        "",
        AnyReplicas,
    ),
    key(
        "index.interval.bytes",
        Int,
        "4096",
        Followed(0, INT_MAX, |config, value| {
            config.index_interval_bytes = value.unsigned_abs();
        }),
    ),
    key(
        "leader.replication.throttled.replicas",
        List,
        "",
        AnyReplicas,
    ),
    key("local.retention.bytes", Long, "-2", AnyNumber(-2, i64::MAX)),
    key("local.retention.ms", Long, "-2", AnyNumber(-2, i64::MAX)),
    key(
        "max.compaction.lag.ms",
        Long,
        LONG_MAX,
        Followed(1, i64::MAX, |config, value| {
            config.max_compaction_lag_ms = value;
        }),
    ),
    key(
        "max.message.bytes",
        Int,
        "1048588",
        Followed(0, INT_MAX, |config, value| {
            config.max_message_bytes = usize::try_from(value).unwrap_or(usize::MAX);
        }),
    ),
    key(
        "message.timestamp.after.max.ms",
        Long,
        "3600000",
        DefaultOnly,
    ),
    key(
        "message.timestamp.before.max.ms",
        Long,
        LONG_MAX,
        DefaultOnly,
    ),
    key("message.timestamp.type", Text, "CreateTime", DefaultOnly),
    key(
        "min.cleanable.dirty.ratio",
        Double,
        "0.5",
        Ratio(|config, value| config.min_cleanable_dirty_ratio = value),
    ),
    key(
        "min.compaction.lag.ms",
        Long,
        "0",
        Followed(0, i64::MAX, |config, value| {
            config.min_compaction_lag_ms = value;
        }),
    ),
    key("min.insync.replicas", Int, "1", DefaultOnly),
    key("preallocate", Boolean, "false", DefaultOnly),
    key("remote.log.copy.disable", Boolean, "false", AnyBoolean),
    key("remote.log.delete.on.disable", Boolean, "false", AnyBoolean),
    key("remote.storage.enable", Boolean, "false", DefaultOnly),
    key(
        "retention.bytes",
        Long,
        "-1",
        Followed(-1, i64::MAX, |config, value| {
            config.retention_bytes = value;
        }),
    ),
    key(
        "retention.ms",
        Long,
        "604800000",
        Followed(-1, i64::MAX, |config, value| {
            config.retention_ms = value;
        }),
    ),
    key(
        "segment.bytes",
        Int,
        "1073741824",
        Followed(SEGMENT_BYTES_MIN, INT_MAX, |config, value| {
            config.segment_bytes = value.unsigned_abs();
        }),
    ),
    key(
        "segment.index.bytes",
        Int,
        "10485760",
        Followed(4, INT_MAX, |config, value| {
            config.segment_index_bytes = value.unsigned_abs();
        }),
    ),
    key("segment.jitter.ms", Long, "0", DefaultOnly),
    key(
        "segment.ms",
        Long,
        "604800000",
        Followed(1, i64::MAX, |config, value| {
            config.segment_ms = value;
        }),
    ),
    key(
        "unclean.leader.election.enable",
        Boolean,
        "false",
        AnyBoolean,
    ),
];

/// Converts a number; `i64::MAX` means never.
fn unless_never(value: i64) -> u64 {
    match value {
        i64::MAX => u64::MAX,
        value => value.unsigned_abs(),
    }
}

impl TopicConfigKey {
    /// Returns the configuration key with this name.
    ///
    /// # Errors
    /// A message that names the unknown key.
    pub fn named(name: &str) -> Result<&'static TopicConfigKey, String> {
        let found = TOPIC_CONFIGS.iter().find(|key| key.name == name);
        found.ok_or_else(|| format!("there is no configuration {name:?} of topics"))
    }

    /// Sets an accepted value. Ignores spaces around it, as Kafka does.
    ///
    /// # Errors
    /// A message that gives the reason.
    fn set(&self, config: &mut TopicConfig, value: &str) -> Result<(), String> {
        let (name, text) = (self.name, value.trim());
        let within = |least: i64, most: i64| {
            let number = text.parse().ok();
            let number = number.filter(|number| (least..=most).contains(number));
            let expected = || format!("{name}={value}: expected a number from {least} to {most}");
            number.ok_or_else(expected)
        };
        let accepted = |is_accepted: bool, expected: &str| match is_accepted {
            true => Ok(()),
            false => Err(format!("{name}={value}: expected {expected}")),
        };
        match self.values {
            ConfigValues::Followed(least, most, set) => set(config, within(least, most)?),
            ConfigValues::AnyNumber(least, most) => drop(within(least, most)?),
            ConfigValues::Ratio(set) => {
                let ratio = text.parse().ok();
                let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
                accepted(ratio.is_some(), "a number from 0 to 1")?;
                ratio.into_iter().for_each(|ratio| set(config, ratio));
            }
            ConfigValues::Policies => {
                let policy = CleanupPolicy::of(text);
                accepted(policy.is_some(), "delete, compact or compact,delete")?;
                config.cleanup_policy = policy.unwrap_or(config.cleanup_policy);
            }
            ConfigValues::AnyBoolean => accepted(is_boolean(text), "true or false")?,
            ConfigValues::AnyReplicas => accepted(are_replicas(text), "* or PARTITION:BROKER,…")?,
            ConfigValues::DefaultOnly => {
                let default = self.default;
                let is_default = match self.kind {
                    ConfigType::Boolean => text.eq_ignore_ascii_case(default),
                    ConfigType::Int | ConfigType::Long => {
                        text.parse::<i64>().ok() == default.parse().ok()
                    }
                    _ => text == default,
                };
                if !is_default {
                    return Err(format!(
                        "{name}={value} is not supported; expected {default}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn is_boolean(text: &str) -> bool {
    ["true", "false"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

fn are_replicas(text: &str) -> bool {
    let is_replica = |replica: &str| {
        let parts = replica.trim().split_once(':');
        parts.is_some_and(|(partition, broker)| {
            [partition, broker]
                .iter()
                .all(|part| part.parse::<u32>().is_ok())
        })
    };
    text.is_empty() || text == "*" || text.split(',').all(is_replica)
}

/// When records are synced.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FlushPolicy {
    /// Before an append with [`Acks::All`](crate::Acks) is answered; other records within a second.
    #[default]
    Acks,
    /// Within a second.
    Interval,
    /// When the kernel writes them back.
    Never,
}

/// Options of a data folder.
#[derive(Clone, Debug)]
pub struct DataFolderOptions {
    /// When records are synced.
    pub flush: FlushPolicy,
    /// How long to wait for another process that uses the folder to leave it.
    pub wait_for_folder: Duration,
    /// The ID of the broker, in `meta.properties`.
    pub node_id: i32,
    /// The ID of the cluster, for a new folder.
    pub cluster_id: String,
    /// The time after its latest batch until a producer is forgotten.
    pub producer_id_expiration: Duration,
    /// The interval between two checks for expired segments.
    pub retention_check_interval: Duration,
    /// Compaction.
    pub cleaner: CleanerOptions,
}

/// Options of compaction.
#[derive(Clone, Copy, Debug)]
pub struct CleanerOptions {
    /// The memory for the keys of a pass, in bytes. More keys take more passes.
    pub dedupe_buffer_bytes: usize,
    /// The pause between two checks for partitions to compact.
    pub backoff: Duration,
    /// The largest number of bytes read and written per second.
    pub io_bytes_per_second_max: u64,
}

impl Default for CleanerOptions {
    fn default() -> CleanerOptions {
        CleanerOptions {
            dedupe_buffer_bytes: 32 << 20,
            backoff: Duration::from_secs(15),
            io_bytes_per_second_max: u64::MAX,
        }
    }
}

impl Default for DataFolderOptions {
    fn default() -> DataFolderOptions {
        DataFolderOptions {
            flush: FlushPolicy::default(),
            wait_for_folder: Duration::ZERO,
            node_id: 1,
            cluster_id: "underpass".to_owned(),
            producer_id_expiration: Duration::from_secs(86_400),
            retention_check_interval: Duration::from_secs(300),
            cleaner: CleanerOptions::default(),
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
        for (value, policy) in [
            ("compact", CleanupPolicy::Compact),
            (" compact, delete", CleanupPolicy::CompactAndDelete),
            ("delete,compact", CleanupPolicy::CompactAndDelete),
        ] {
            let config = set("cleanup.policy", value).unwrap();
            assert_eq!(config.cleanup_policy, policy, "{value}");
        }
        let ratio = set("min.cleanable.dirty.ratio", "0.01").unwrap();
        assert_eq!(ratio.min_cleanable_dirty_ratio, 0.01);
        for (name, value) in [
            ("segment.bytes", "1"),
            ("segment.bytes", "x"),
            ("retention.ms", "-2"),
            ("cleanup.policy", "compacted"),
            ("cleanup.policy", ""),
            ("min.cleanable.dirty.ratio", "NaN"),
            ("segmnt.bytes", "1048576"),
            ("preallocate", "true"),
            ("preallocate", "x"),
            ("segment.jitter.ms", "1"),
            ("delete.retention.ms", "-1"),
            ("compression.type", "zstd"),
            ("message.timestamp.type", "LogAppendTime"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("unclean.leader.election.enable", "maybe"),
            ("leader.replication.throttled.replicas", "1"),
            ("remote.storage.enable", "true"),
            ("message.format.version", "3.0"),
        ] {
            let wrong = set(name, value).unwrap_err();
            assert!(wrong.contains(name), "{wrong}");
        }
    }

    #[test]
    fn the_default_of_each_configuration_is_taken_and_changes_nothing() {
        for key in &TOPIC_CONFIGS {
            let values = BTreeMap::from([(key.name.to_owned(), format!(" {} ", key.default))]);
            let with_default = TopicConfig::default().with(&values);
            assert_eq!(with_default, Ok(TopicConfig::default()), "{}", key.name);
        }
        assert!(TOPIC_CONFIGS.is_sorted_by_key(|key| key.name));
    }

    #[test]
    fn values_without_an_effect_are_taken() {
        for (name, value) in [
            ("preallocate", "False"),
            ("segment.jitter.ms", "00"),
            ("unclean.leader.election.enable", "TRUE"),
            ("follower.replication.throttled.replicas", "*"),
            ("leader.replication.throttled.replicas", "0:1,1:1"),
            ("local.retention.ms", "1000"),
            ("compression.zstd.level", "-5"),
        ] {
            let values = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let with_value = TopicConfig::default().with(&values);
            assert_eq!(with_value, Ok(TopicConfig::default()), "{name}={value}");
        }
    }
}
