//! The record of an upload that can be resumed: a JSON file beside its partial file.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::checkpoint::TreeCheckpoint;
use crate::error::{Doing, Error};
use crate::overwrite::{FileVersion, Overwrite};

/// The name of an upload: 128 random bits, which nobody can guess.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct UploadId(String);

const ID_DIGITS: usize = 32;

impl UploadId {
    /// Returns a new one.
    ///
    /// # Errors
    /// [`Error::Io`] where the kernel has no random bytes.
    pub fn random() -> Result<UploadId, Error> {
        let mut bytes = [0u8; ID_DIGITS / 2];
        getrandom(&mut bytes, GetRandomFlags::empty()).doing("a random name for the upload")?;
        Ok(UploadId(format!("{:032x}", u128::from_ne_bytes(bytes))))
    }

    /// Reads one: 32 lower-case hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<UploadId> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let text = std::str::from_utf8(text).ok()?;
        let is_id = text.len() == ID_DIGITS && text.as_bytes().iter().all(is_digit);
        is_id.then(|| UploadId(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of an upload that can be resumed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UploadRecord {
    /// The form of the record.
    pub(crate) version: u32,
    /// The path that the file gets, beneath the area; none for a part of another upload.
    pub target: Option<String>,
    /// Bytes of the whole file, once that is known.
    pub length: Option<u64>,
    /// Whether a file of that name may be replaced.
    pub(crate) replaces: bool,
    /// The version of the file that alone may be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaced: Option<FileVersion>,
    /// The name of the user who started it, where that is known; nobody else may continue it.
    pub owner: Option<String>,
    /// The client that it counts for; one limit is about all uploads of a client.
    #[serde(default)]
    pub client: Option<String>,
    /// What the protocol wants to be given back or reminded of, by names of its own.
    pub details: BTreeMap<String, String>,
    /// When it expires, in seconds since 1970, if nothing arrives before that.
    pub expires: u64,
    /// Seconds from the last byte until it expires.
    pub(crate) lifetime: u64,
    /// The boot of the machine in which the partial file was last written.
    pub(crate) boot: String,
    /// Bytes that were on disk when the record was written: they survive a crash of the machine.
    pub(crate) durable: u64,
    /// How much of it there is, if it is a tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tree: Option<TreeCheckpoint>,
}

const VERSION: u32 = 1;

/// The end of the year 9999, in seconds since 1970.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Longest record, in bytes: the metadata of some hundred open folders of a tree, and two paths.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 10;

/// Longest record without those.
const FILE_RECORD_BYTES_MAX: usize = 4096;

impl UploadRecord {
    /// Returns the record of a new upload that expires after `lifetime`.
    pub fn new(target: Option<&str>, length: Option<u64>, lifetime: Duration) -> UploadRecord {
        UploadRecord {
            version: VERSION,
            target: target.map(str::to_owned),
            length,
            replaces: false,
            replaced: None,
            owner: None,
            client: None,
            details: BTreeMap::new(),
            expires: seconds(SystemTime::now()).saturating_add(lifetime.as_secs()),
            lifetime: lifetime.as_secs(),
            boot: String::new(),
            durable: 0,
            tree: None,
        }
    }

    /// Notes whether a file of that name may be replaced.
    pub fn set_overwrite(&mut self, overwrite: Overwrite) {
        self.replaces = overwrite != Overwrite::Refused;
        self.replaced = match overwrite {
            Overwrite::Only(version) => Some(version),
            Overwrite::Allowed | Overwrite::Refused => None,
        };
    }

    /// Whether a file of that name may be replaced.
    pub fn overwrite(&self) -> Overwrite {
        match (self.replaces, self.replaced) {
            (true, Some(version)) => Overwrite::Only(version),
            (true, None) => Overwrite::Allowed,
            (false, _) => Overwrite::Refused,
        }
    }

    /// How much of a tree has been received; none for a file.
    pub fn tree(&self) -> Option<&TreeCheckpoint> {
        self.tree.as_ref()
    }

    /// Whether it is of a tree that is in files as the record says, in this `boot` of the machine.
    pub(crate) fn has_trusted_tree(&self, boot: &str) -> bool {
        let tree = self.tree.as_ref();
        tree.is_some_and(|tree| tree.is_durable || self.boot == boot)
    }

    /// Whether it has expired at `now`.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        seconds(now) >= self.expires
    }

    /// When it expires, at the end of the year 9999 at the latest, which is the last that HTTP can
    /// write.
    pub fn expires_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.expires.min(SECONDS_MAX))
    }

    /// Postpones the expiry for bytes that arrived at `modified`, in seconds since 1970.
    pub(crate) fn postpone(&mut self, modified: u64) {
        self.expires = self.expires.max(modified.saturating_add(self.lifetime));
    }

    /// Reads one; `None` for anything that is not a whole record of this version.
    pub(crate) fn parse(text: &[u8]) -> Option<UploadRecord> {
        let record: UploadRecord = serde_json::from_slice(text).ok()?;
        (record.version == VERSION).then_some(record)
    }

    /// Returns its text.
    pub(crate) fn text(&self) -> Result<Vec<u8>, Error> {
        let text = serde_json::to_vec(self).map_err(|_| Error::Name("the record is invalid"))?;
        let bytes_max = match self.tree {
            Some(_) => RECORD_BYTES_MAX,
            None => FILE_RECORD_BYTES_MAX,
        };
        match text.len() > bytes_max {
            true => Err(Error::Name("the metadata of the upload are too long")),
            false => Ok(text),
        }
    }

    /// The bytes of a partial file of `size` bytes that need not be sent again, in this `boot` of
    /// the machine; `None` where bytes may be lost that were reported as received.
    ///
    /// Within one boot the page cache keeps every byte, whatever becomes of the process. After
    /// another one only durable bytes are known to be in the file.
    pub(crate) fn trusted(&self, size: u64, boot: &str) -> Option<u64> {
        match (self.boot == boot, self.durable) {
            (true, _) => Some(size),
            (false, durable) => (durable > 0 && durable <= size).then_some(durable),
        }
    }
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_survived_is_trusted() {
        let mut record = UploadRecord::new(Some("a"), Some(9), Duration::from_secs(1));
        record.boot = "one".to_owned();
        assert_eq!(record.trusted(7, "one"), Some(7));
        assert_eq!(record.trusted(7, "two"), None);
        record.durable = 5;
        assert_eq!(record.trusted(7, "two"), Some(5));
        assert_eq!(record.trusted(4, "two"), None);
    }

    #[test]
    fn records_are_whole_or_nothing() {
        let record = UploadRecord::new(Some("a/b"), None, Duration::from_secs(60));
        let text = record.text().unwrap();
        assert_eq!(UploadRecord::parse(&text), Some(record.clone()));
        for end in 0..text.len() {
            assert_eq!(UploadRecord::parse(&text[..end]), None);
        }
        let mut long = record;
        long.details.insert("m".to_owned(), "x".repeat(5000));
        assert!(long.text().is_err());
        assert!(UploadId::parse(b"../../etc/passwd").is_none());
        let id = UploadId::random().unwrap();
        assert_eq!(UploadId::parse(id.as_str().as_bytes()), Some(id));
    }
}
