//! The configuration keys of Kafka's brokers, with the values that correspond to this broker's
//! options. None can be changed while the broker runs.

use std::collections::BTreeMap;

use crate::limits::FrameLimits;
use crate::metadata::configs::{ConfigSource, Synonym};
use crate::options::BrokerOptions;

/// All keys of Kafka 4.3 with type and default, from its `KafkaConfig`. A missing default is null.
const KEYS: &str = include_str!("broker_configs.tsv");

/// A configuration value of the broker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BrokerConfig {
    pub(crate) name: &'static str,
    /// Kafka's number of the type.
    pub(crate) kind: i8,
    /// The present value, from the options or the default.
    pub(crate) value: Option<String>,
    pub(crate) default: Option<&'static str>,
    pub(crate) source: ConfigSource,
}

/// Topic keys whose broker keys have another name.
const BROKER_KEYS: [(&str, &str); 22] = [
    ("cleanup.policy", "log.cleanup.policy"),
    ("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    ("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    ("flush.messages", "log.flush.interval.messages"),
    ("flush.ms", "log.flush.interval.ms"),
    ("index.interval.bytes", "log.index.interval.bytes"),
    ("local.retention.bytes", "log.local.retention.bytes"),
    ("local.retention.ms", "log.local.retention.ms"),
    ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("max.message.bytes", "message.max.bytes"),
    (
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
    ),
    (
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
    ),
    ("message.timestamp.type", "log.message.timestamp.type"),
    (
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
    ),
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    ("preallocate", "log.preallocate"),
    ("retention.bytes", "log.retention.bytes"),
    ("retention.ms", "log.retention.ms"),
    ("segment.bytes", "log.segment.bytes"),
    ("segment.index.bytes", "log.index.size.max.bytes"),
    ("segment.jitter.ms", "log.roll.jitter.ms"),
    ("segment.ms", "log.roll.ms"),
];

/// Topic keys whose broker keys have the same name.
const SAME_KEYS: [&str; 6] = [
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "min.insync.replicas",
    "unclean.leader.election.enable",
];

/// Returns the broker key with the default of a topic key, if there is one.
fn broker_key(topic_key: &'static str) -> Option<&'static str> {
    let other = BROKER_KEYS.iter().find(|(topic, _)| *topic == topic_key);
    let same = SAME_KEYS.iter().find(|name| **name == topic_key);
    other.map(|(_, broker)| *broker).or(same.copied())
}

/// Returns the values of the broker that a topic key has without a value of the topic, the first
/// of which counts.
pub(crate) fn synonyms(
    topic_key: &'static str,
    defaults: &BTreeMap<String, String>,
) -> Vec<Synonym> {
    let Some(name) = broker_key(topic_key) else {
        return Vec::new();
    };
    let synonym = |source| {
        move |value: &str| Synonym {
            name,
            value: value.trim().to_owned(),
            source,
        }
    };
    let configured = defaults.get(topic_key);
    let configured = configured.map(|value| synonym(ConfigSource::Broker)(value));
    let default = default_of(name).map(synonym(ConfigSource::Default));
    configured.into_iter().chain(default).collect()
}

fn default_of(name: &str) -> Option<&'static str> {
    let mut keys = keys();
    let found = keys.find(|(key, ..)| *key == name);
    found.and_then(|(_, _, default)| default)
}

/// Returns name, type and default of each key.
fn keys() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    KEYS.lines().filter_map(|line| {
        let mut fields = line.split('\t');
        let (name, kind) = (fields.next()?, fields.next()?);
        let default = fields.next();
        Some((name, kind, default.map(|text| text.trim_matches('"'))))
    })
}

/// Returns all configuration values of the broker, sorted by name.
pub(crate) fn all(options: &BrokerOptions) -> Vec<BrokerConfig> {
    let mut values = values(options);
    for (key, value) in &options.topics.config {
        let names = BROKER_KEYS.iter().map(|(topic, broker)| (*topic, *broker));
        let mut names = names.chain(SAME_KEYS.map(|name| (name, name)));
        if let Some((_, name)) = names.find(|(topic, _)| topic == key) {
            values.insert(name, value.trim().to_owned());
        }
    }
    let configs = keys().map(|(name, kind, default)| {
        let value = values.remove(name);
        let source = match value.as_deref() {
            Some(value) if Some(value) != default => ConfigSource::Broker,
            _ => ConfigSource::Default,
        };
        BrokerConfig {
            name,
            kind: kind_of(kind),
            value: value.or_else(|| default.map(str::to_owned)),
            default,
            source,
        }
    });
    configs.collect()
}

/// Returns the values that follow from options, or from the limits of this broker.
fn values(options: &BrokerOptions) -> BTreeMap<&'static str, String> {
    let node = options.node_id.to_string();
    let folder = std::path::absolute(&options.data);
    let folder = folder.unwrap_or_else(|_| options.data.clone());
    let listeners = options.listeners.iter().map(|listener| {
        let protocol = match (listener.sasl.is_empty(), listener.is_secured(&options.tls)) {
            (true, true) => "SSL",
            (true, false) => "PLAINTEXT",
            (false, true) => "SASL_SSL",
            (false, false) => "SASL_PLAINTEXT",
        };
        format!("{protocol}://{}", listener.at)
    });
    let (topics, groups, cleaner) = (&options.topics, &options.groups, &options.cleaner);
    let idle = options.connections.idle_timeout.as_millis();
    let mut values = BTreeMap::from([
        ("auto.create.topics.enable", topics.auto_create.to_string()),
        ("broker.id", node.clone()),
        (
            "connection.failed.authentication.delay.ms",
            options.sasl.failure_delay_ms.to_string(),
        ),
        ("connections.max.idle.ms", idle.to_string()),
        (
            "connections.max.reauth.ms",
            options.sasl.reauth_ms_max.to_string(),
        ),
        (
            "group.coordinator.rebalance.protocols",
            "classic".to_owned(),
        ),
        (
            "group.initial.rebalance.delay.ms",
            groups.initial_rebalance_delay_ms.to_string(),
        ),
        ("listeners", Vec::from_iter(listeners).join(",")),
        ("log.cleaner.backoff.ms", cleaner.backoff_ms.to_string()),
        (
            "log.cleaner.dedupe.buffer.size",
            cleaner.dedupe_buffer_bytes.to_string(),
        ),
        ("log.dirs", folder.display().to_string()),
        ("node.id", node),
        ("num.partitions", topics.partitions.to_string()),
        (
            "offsets.retention.minutes",
            groups.offsets_retention_minutes.to_string(),
        ),
        ("offsets.topic.replication.factor", "1".to_owned()),
        (
            "sasl.server.max.receive.size",
            FrameLimits::BEFORE_LOGIN.bytes.to_string(),
        ),
    ]);
    if cleaner.io_bytes_per_second_max > 0 {
        let limit = cleaner.io_bytes_per_second_max.to_string();
        values.insert("log.cleaner.io.max.bytes.per.second", limit);
    }
    values
}

/// Returns the number of a type in DescribeConfigs.
fn kind_of(name: &str) -> i8 {
    let names = [
        "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
    ];
    let place = names.iter().zip(1..).find(|(one, _)| **one == name);
    place.map_or(0, |(_, number)| number)
}

/// The type of values that clients are not shown.
pub(crate) const PASSWORD: i8 = 9;

#[cfg(test)]
mod tests {
    use underpass_log::TOPIC_CONFIGS;

    use super::*;

    #[test]
    fn every_key_has_a_type_and_every_topic_key_the_default_of_its_broker_key() {
        let keys: Vec<_> = keys().collect();
        assert!(keys.is_sorted() && keys.len() > 300);
        for (name, kind, _) in keys {
            assert_ne!(kind_of(kind), 0, "{name}");
        }
        for key in &TOPIC_CONFIGS {
            let Some(name) = broker_key(key.name) else {
                continue;
            };
            // The default of some is in a key with another unit.
            let default = default_of(name).unwrap_or(key.default);
            assert_eq!(default, key.default, "{name}");
        }
    }

    #[test]
    fn values_come_from_the_options_and_from_the_defaults_of_topics() {
        let mut options = BrokerOptions::default();
        options.topics.partitions = 4;
        options.node_id = 7;
        let retention = ("retention.ms".to_owned(), "1000".to_owned());
        options.topics.config = BTreeMap::from([retention]);
        let all = all(&options);
        let of = |name: &str| {
            let config = all.iter().find(|config| config.name == name).unwrap();
            (config.value.as_deref(), config.source)
        };
        assert_eq!(of("num.partitions"), (Some("4"), ConfigSource::Broker));
        assert_eq!(of("node.id"), (Some("7"), ConfigSource::Broker));
        assert_eq!(of("log.retention.ms"), (Some("1000"), ConfigSource::Broker));
        assert_eq!(of("log.roll.ms"), (None, ConfigSource::Default));
        let buffer = of("log.cleaner.dedupe.buffer.size");
        assert_eq!(buffer, (Some("33554432"), ConfigSource::Broker));
        let enabled = of("log.cleaner.enable");
        assert_eq!(enabled, (Some("true"), ConfigSource::Default));
        let auto = of("auto.create.topics.enable");
        assert_eq!(auto, (Some("true"), ConfigSource::Default));
    }

    #[test]
    fn a_topic_key_has_the_values_of_its_broker_key() {
        let defaults = BTreeMap::from([("segment.bytes".to_owned(), " 1048576 ".to_owned())]);
        let found = synonyms("segment.bytes", &defaults);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.name, &*it.value, it.source))
            .collect();
        let name = "log.segment.bytes";
        let (first, second) = (ConfigSource::Broker, ConfigSource::Default);
        assert_eq!(
            found,
            [(name, "1048576", first), (name, "1073741824", second)]
        );
        assert!(synonyms("retention.ms", &BTreeMap::new()).is_empty());
        assert!(synonyms("remote.storage.enable", &BTreeMap::new()).is_empty());
    }
}
