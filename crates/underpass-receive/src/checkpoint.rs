//! How much of a tree has been received: what its record keeps.

use serde::{Deserialize, Serialize};
use underpass_tar::{HeaderChain, TarTime};

/// How much of a tree is in files. Everything up to here need not be sent again.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct TreeCheckpoint {
    /// Members of the stream that are complete.
    pub members: u64,
    /// The hash over their headers.
    #[serde(with = "chain_text")]
    pub chain: HeaderChain,
    /// The path of the last complete member; bytes other than printable ASCII, and `%`, are spelt
    /// `%XX`.
    pub path: String,
    /// Bytes of content so far, that of a cut member included.
    pub bytes: u64,
    /// The member after these, if a part of its content is there.
    pub cut: Option<CutMember>,
    /// Members that are not folders: as many names as there are in the tree.
    pub(crate) entries: u64,
    /// Whether all of this was on disk before the record was written.
    pub(crate) is_durable: bool,
    /// The folder of the last member, spelt likewise.
    pub(crate) folder: String,
    /// What the folders from the top to this one get when they are left.
    pub(crate) levels: Vec<FolderState>,
}

/// A member that was cut within its content.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CutMember {
    /// The hash over the headers, its own included.
    #[serde(with = "chain_text")]
    pub chain: HeaderChain,
    /// Bytes of its content in the stream that are there.
    pub offset: u64,
}

/// Metadata that a folder gets after its content.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct FolderState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<u32>,
    /// Seconds and nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<(i64, u32)>,
}

impl FolderState {
    pub(crate) fn new(mode: Option<u32>, modified: Option<TarTime>) -> FolderState {
        FolderState {
            mode,
            modified: modified.map(|time| (time.seconds, time.nanoseconds)),
        }
    }

    pub(crate) fn modified(&self) -> Option<TarTime> {
        self.modified.map(|(seconds, nanoseconds)| TarTime {
            seconds,
            nanoseconds,
        })
    }
}

/// Spells a path of any bytes as ASCII.
pub(crate) fn spell(path: &[u8]) -> String {
    let spell = |&byte: &u8| match byte {
        b'%' => "%25".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.iter().map(spell).collect()
}

/// Reads a path that was spelt.
pub(crate) fn unspell(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut path = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        path.push(u8::from_str_radix(digits, 16).ok()?);
        path.extend_from_slice(rest.as_bytes());
    }
    Some(path)
}

mod chain_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use underpass_tar::HeaderChain;

    pub(super) fn serialize<S: Serializer>(
        chain: &HeaderChain,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(chain)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<HeaderChain, D::Error> {
        let text = String::deserialize(deserializer)?;
        HeaderChain::parse(&text).ok_or_else(|| D::Error::custom("expected 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_any_bytes_are_spelt_and_read() {
        let all: Vec<u8> = (1..=255).collect();
        assert_eq!(unspell(&spell(&all)).as_ref(), Some(&all));
        assert_eq!(spell("a/\u{fc} %".as_bytes()), "a/%C3%BC %25");
        assert_eq!(unspell("%"), None);
        assert_eq!(unspell("%G0"), None);
    }
}
