//! The identity of a topic. A topic created again under the same name has another one.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::security::random;

/// A topic ID of 16 bytes, shown in base64url without padding, as in Kafka.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct TopicId([u8; ID_BYTES]);

const ID_BYTES: usize = 16;

impl TopicId {
    /// The ID that means no topic.
    pub(crate) const NONE: TopicId = TopicId([0; ID_BYTES]);

    /// Makes a random ID (RFC 9562, version 4). As in Kafka, its text does not start with a dash,
    /// which could be mistaken for an option.
    pub(crate) fn random() -> TopicId {
        loop {
            let mut id = random::bytes::<ID_BYTES>();
            id[6] = id[6] & 0x0f | 0x40;
            id[8] = id[8] & 0x3f | 0x80;
            let id = TopicId(id);
            if !id.to_string().starts_with('-') {
                return id;
            }
        }
    }

    pub(crate) fn from_bytes(bytes: [u8; ID_BYTES]) -> TopicId {
        TopicId(bytes)
    }

    pub(crate) fn to_bytes(self) -> [u8; ID_BYTES] {
        self.0
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl From<TopicId> for String {
    fn from(id: TopicId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for TopicId {
    type Error = String;

    fn try_from(text: String) -> Result<TopicId, String> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&text).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(TopicId)
            .ok_or_else(|| format!("{text:?} is not the id of a topic"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_shown() {
        for _ in 0..200 {
            let id = TopicId::random();
            let shown = id.to_string();
            assert_eq!(shown.len(), 22);
            assert!(!shown.starts_with('-'));
            assert_eq!(TopicId::try_from(shown), Ok(id));
            assert_ne!(id, TopicId::random());
        }
        for text in ["", "AAAA", "not base64url at all.."] {
            assert!(TopicId::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert_eq!(TopicId::NONE.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    }
}
