//! The effective configuration of a topic, with the source of each value, and changes of it.

use std::collections::{BTreeMap, BTreeSet};

use underpass_log::{ConfigType, TOPIC_CONFIGS, TopicConfigKey};

/// An effective configuration value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EffectiveConfig<'a> {
    pub(crate) key: &'static TopicConfigKey,
    pub(crate) value: &'a str,
    pub(crate) source: ConfigSource,
}

/// A value that a key has under this or another name, unless another value takes precedence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Synonym {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) source: ConfigSource,
}

/// The source of a value, by Kafka's numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i8)]
pub(crate) enum ConfigSource {
    /// The topic has this value.
    Topic = 1,
    /// The configuration of the broker.
    Broker = 4,
    /// Kafka's default.
    Default = 5,
}

/// A change of a topic's own values.
#[derive(Clone, Debug)]
pub(crate) enum ConfigChange {
    /// These values replace all others.
    Replace(BTreeMap<String, String>),
    /// Only these keys change.
    Update(Vec<(String, ConfigOperation)>),
}

/// A change of one value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ConfigOperation {
    Set(String),
    /// The topic no longer has a value of its own.
    Delete,
    /// Adds elements to a list.
    Append(String),
    /// Removes elements from a list.
    Subtract(String),
}

/// The longest value: that of a string in a response.
const VALUE_BYTES_MAX: usize = i16::MAX as usize;

/// The topic key that depends on the replication factor.
const MIN_IN_SYNC_REPLICAS: &str = "min.insync.replicas";

/// Returns the value of `min.insync.replicas` if a value of this key is above 1.
pub(crate) fn replicas_in_sync(name: &str, value: Option<&str>) -> Option<i32> {
    let value = value.filter(|_| name == MIN_IN_SYNC_REPLICAS);
    let count = value?.trim().parse().ok();
    count.filter(|count| *count > 1)
}

impl ConfigSource {
    pub(crate) fn number(self) -> i8 {
        self as i8
    }
}

/// Returns the whole configuration of a topic: its own values take precedence over those of the
/// broker, and these over Kafka's defaults.
pub(crate) fn effective<'a>(
    topic: &'a BTreeMap<String, String>,
    broker: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = EffectiveConfig<'a>> {
    TOPIC_CONFIGS.iter().map(|key| {
        let own = topic
            .get(key.name)
            .map(|value| (value, ConfigSource::Topic));
        let found = own.or_else(|| Some((broker.get(key.name)?, ConfigSource::Broker)));
        let (value, source) = match found {
            Some((value, source)) => (value.trim(), source),
            None => (key.default, ConfigSource::Default),
        };
        EffectiveConfig { key, value, source }
    })
}

impl ConfigChange {
    /// Returns the values after the change. They still have to be checked.
    ///
    /// # Errors
    /// An operation does not fit the type of its key, or a value is too long.
    pub(crate) fn of(
        &self,
        present: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, String> {
        let changed = match self {
            ConfigChange::Replace(values) => values.clone(),
            ConfigChange::Update(updates) => {
                let mut changed = present.clone();
                for (name, operation) in updates {
                    match updated(name, changed.get(name), operation)? {
                        Some(value) => changed.insert(name.clone(), value),
                        None => changed.remove(name),
                    };
                }
                changed
            }
        };
        match changed
            .iter()
            .find(|(_, value)| value.len() > VALUE_BYTES_MAX)
        {
            Some((name, _)) => Err(format!(
                "the value of {name} is too long; expected at most {VALUE_BYTES_MAX} bytes"
            )),
            None => Ok(changed),
        }
    }
}

/// Returns the value of a key after an operation, or none.
fn updated(
    name: &str,
    present: Option<&String>,
    operation: &ConfigOperation,
) -> Result<Option<String>, String> {
    let elements = || -> Result<Vec<&str>, String> {
        let key = TopicConfigKey::named(name)?;
        if key.kind != ConfigType::List {
            return Err(format!("{name} is not a list; expected SET or DELETE"));
        }
        let present = present.map_or(key.default, String::as_str);
        Ok(parts(present).collect())
    };
    Ok(match operation {
        ConfigOperation::Set(value) => Some(value.clone()),
        ConfigOperation::Delete => None,
        ConfigOperation::Append(more) => {
            let mut elements = elements()?;
            let before: BTreeSet<_> = elements.iter().copied().collect();
            elements.extend(parts(more).filter(|part| !before.contains(part)));
            Some(elements.join(","))
        }
        ConfigOperation::Subtract(less) => {
            let less: BTreeSet<_> = parts(less).collect();
            let mut elements = elements()?;
            elements.retain(|part| !less.contains(part));
            Some(elements.join(","))
        }
    })
}

/// Returns the elements of a list.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topics_own_value_is_before_the_brokers() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let topic: BTreeMap<_, _> = map(&[("retention.ms", " 1 ")]);
        let broker = map(&[("retention.ms", "2"), ("segment.ms", "3")]);
        let effective: Vec<_> = effective(&topic, &broker).collect();
        let of = |name| {
            let found = effective.iter().find(|config| config.key.name == name);
            found.map(|config| (config.value, config.source)).unwrap()
        };
        assert_eq!(of("retention.ms"), ("1", ConfigSource::Topic));
        assert_eq!(of("segment.ms"), ("3", ConfigSource::Broker));
        assert_eq!(
            of("flush.ms"),
            ("9223372036854775807", ConfigSource::Default)
        );
        assert_eq!(effective.len(), TOPIC_CONFIGS.len());
    }

    #[test]
    fn a_change_is_an_operation_on_some_keys_or_a_new_configuration() {
        use ConfigOperation::{Append, Delete, Set, Subtract};
        let replicas = "leader.replication.throttled.replicas";
        let present = BTreeMap::from([
            ("retention.ms".to_owned(), "1".to_owned()),
            (replicas.to_owned(), "0:1,1:1".to_owned()),
        ]);
        let of = |name: &str, operation: ConfigOperation| {
            let change = ConfigChange::Update(vec![(name.to_owned(), operation)]);
            let changed = change.of(&present)?;
            Ok(changed.get(name).cloned())
        };
        let some = |value: &str| Ok::<_, String>(Some(value.to_owned()));
        assert_eq!(of("retention.ms", Set("2".into())), some("2"));
        assert_eq!(of("retention.ms", Delete), Ok(None));
        assert_eq!(of("no.such.key", Delete), Ok(None));
        let appended = of(replicas, Append("1:1, 2:1".into()));
        assert_eq!(appended, some("0:1,1:1,2:1"));
        assert_eq!(of(replicas, Subtract("0:1,7:7".into())), some("1:1"));
        // A list without a value of the topic begins with the default.
        let appended = of("cleanup.policy", Append("compact".into()));
        assert_eq!(appended, some("delete,compact"));
        let wrong = of("retention.ms", Append("1".into())).unwrap_err();
        assert!(wrong.contains("retention.ms is not a list"), "{wrong}");
        let long = of(replicas, Append("x".repeat(32_760))).unwrap_err();
        assert!(long.contains("too long"), "{long}");
        let replaced = ConfigChange::Replace(BTreeMap::new()).of(&present);
        assert_eq!(replaced, Ok(BTreeMap::new()));
    }
}
