//! The effective configuration of a topic, with the source of each value.

use std::collections::BTreeMap;

use underpass_log::TOPIC_CONFIGS;

/// An effective configuration value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct EffectiveConfig {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) source: ConfigSource,
}

/// The source of a value, by Kafka's numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i8)]
pub(crate) enum ConfigSource {
    /// The topic was created with this value.
    Topic = 1,
    /// The configuration of the broker.
    Broker = 4,
    /// Kafka's default.
    Default = 5,
}

impl ConfigSource {
    pub(crate) fn number(self) -> i8 {
        self as i8
    }
}

/// Returns the whole configuration of a topic: its own values take precedence over those of the
/// broker, and these over Kafka's defaults.
pub(crate) fn effective(
    topic: &BTreeMap<String, String>,
    broker: &BTreeMap<String, String>,
) -> Vec<EffectiveConfig> {
    let of_key = TOPIC_CONFIGS.iter().map(|key| {
        let own = topic
            .get(key.name)
            .map(|value| (value, ConfigSource::Topic));
        let found = own.or_else(|| Some((broker.get(key.name)?, ConfigSource::Broker)));
        let (value, source) = match found {
            Some((value, source)) => (value.trim(), source),
            None => (key.default, ConfigSource::Default),
        };
        EffectiveConfig {
            name: key.name,
            value: value.to_owned(),
            source,
        }
    });
    of_key.collect()
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
        let effective = effective(&topic, &broker);
        let of = |name| {
            let found = effective.iter().find(|config| config.name == name);
            found.map(|config| (&*config.value, config.source)).unwrap()
        };
        assert_eq!(of("retention.ms"), ("1", ConfigSource::Topic));
        assert_eq!(of("segment.ms"), ("3", ConfigSource::Broker));
        assert_eq!(
            of("flush.ms"),
            ("9223372036854775807", ConfigSource::Default)
        );
        assert_eq!(effective.len(), TOPIC_CONFIGS.len());
    }
}
