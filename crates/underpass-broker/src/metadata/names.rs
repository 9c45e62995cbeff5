//! Names of topics.

use std::fmt;

/// The longest name: with a dash and a partition number it is the name of a folder, which Linux
/// limits to 255 bytes.
const NAME_BYTES_MAX: usize = 249;

/// The reason why a topic name is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BadTopicName {
    Empty,
    Dots,
    TooLong,
    Character(char),
}

/// Checks the name of a new topic, by Kafka's rules.
pub(crate) fn check_name(name: &str) -> Result<(), BadTopicName> {
    let is_legal = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    match name {
        "" => Err(BadTopicName::Empty),
        "." | ".." => Err(BadTopicName::Dots),
        _ if name.len() > NAME_BYTES_MAX => Err(BadTopicName::TooLong),
        _ => match name.chars().find(|character| !is_legal(*character)) {
            Some(character) => Err(BadTopicName::Character(character)),
            None => Ok(()),
        },
    }
}

/// Returns the key that two names share if they collide in metric names, where dots become
/// underscores. Kafka rejects a topic with the key of another one.
pub(crate) fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

/// Whether a topic is internal: clients neither write to it nor delete it.
pub(crate) fn is_internal(name: &str) -> bool {
    [OFFSETS_TOPIC, CONTROLLER_TOPIC].contains(&name)
}

/// The topic with the offsets of consumer groups.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The metadata topic of Kafka's controller, whose folder may be left in a data folder.
const CONTROLLER_TOPIC: &str = "__cluster_metadata";

impl fmt::Display for BadTopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTopicName::Empty => f.write_str("the name of a topic must not be empty"),
            BadTopicName::Dots => f.write_str("the name of a topic must not be \".\" or \"..\""),
            BadTopicName::TooLong => write!(
                f,
                "the name of a topic must have at most {NAME_BYTES_MAX} bytes"
            ),
            BadTopicName::Character(character) => write!(
                f,
                "the name of a topic must not contain {character:?}; letters, digits, '.', '_' \
                 and '-' are allowed"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_kafka_takes() {
        let long = "a".repeat(NAME_BYTES_MAX);
        for name in ["a", "A.b_c-9", "...", "-", &long] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for (name, expected) in [
            ("", BadTopicName::Empty),
            (".", BadTopicName::Dots),
            ("..", BadTopicName::Dots),
            ("a/b", BadTopicName::Character('/')),
            ("a b", BadTopicName::Character(' ')),
            ("\u{fc}", BadTopicName::Character('\u{fc}')),
            (&"a".repeat(NAME_BYTES_MAX + 1), BadTopicName::TooLong),
        ] {
            assert_eq!(check_name(name), Err(expected), "{name}");
        }
        assert_eq!(collision_key("a.b"), collision_key("a_b"));
    }
}
