//! The metadata file of a data folder: it lists the topics, is small, and is replaced as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::metadata::topic_id::TopicId;
use crate::security::acl::Acl;
use crate::security::users::UserCredentials;

/// The state of the broker that is not in the logs of partitions.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetadataRecord {
    version: u32,
    /// The first producer ID that was never handed out.
    pub(crate) next_producer_id: i64,
    pub(crate) topics: BTreeMap<String, TopicRecord>,
    /// Topics being created or deleted: a start deletes their remains.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unfinished: BTreeMap<TopicId, String>,
    /// Users that clients have added, with hashes of their passwords.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) users: UserCredentials,
    /// Access rules.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) acls: BTreeSet<Acl>,
    /// The key that makes up the salts of users that do not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) login_secret: Option<String>,
}

/// A topic, as stored in the file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicRecord {
    pub(crate) id: TopicId,
    pub(crate) partitions: i32,
    /// Values that differ from the defaults, under Kafka's names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) config: BTreeMap<String, String>,
}

/// The file of a data folder.
#[derive(Clone, Debug)]
pub(crate) struct MetadataFile {
    folder: PathBuf,
}

const NAME: &str = "underpass-metadata.json";
const VERSION: u32 = 1;

impl MetadataFile {
    pub(crate) fn of(folder: &Path) -> MetadataFile {
        let folder = folder.to_owned();
        MetadataFile { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Reads the file; returns no topics if it does not exist.
    ///
    /// # Errors
    /// I/O errors; `InvalidData` if the file is damaged or of a later version.
    pub(crate) fn read(&self) -> io::Result<MetadataRecord> {
        let text = match fs::read(self.path()) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(MetadataRecord {
                    version: VERSION,
                    ..MetadataRecord::default()
                });
            }
            Err(error) => return Err(error),
        };
        let record: MetadataRecord = serde_json::from_slice(&text)?;
        match record.version {
            VERSION => Ok(record),
            version => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("version {version} is of a later broker; this one reads {VERSION}"),
            )),
        }
    }

    /// Replaces the file: after a crash it is the old or the new one. Blocks for two syncs.
    ///
    /// # Errors
    /// I/O errors. The old file may have been replaced nevertheless, and a crash may restore it.
    pub(crate) fn write(&self, record: &MetadataRecord) -> io::Result<()> {
        let new = self.folder.join(format!("{NAME}.new"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        // It may have hashes of passwords.
        let mut file = options.mode(0o600).open(&new)?;
        serde_json::to_writer_pretty(&mut file, record)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, self.path())?;
        File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::acl::{AclOperation, PatternType, Permission, ResourceType};
    use crate::security::scram::{ScramCredential, ScramMechanism};

    fn credential() -> BTreeMap<ScramMechanism, ScramCredential> {
        let hashed = |mechanism| {
            (
                mechanism,
                ScramCredential::of_password(mechanism, b"secret"),
            )
        };
        ScramMechanism::ALL.into_iter().map(hashed).collect()
    }

    fn acl() -> Acl {
        Acl {
            resource: ResourceType::TransactionalId,
            pattern: PatternType::Prefixed,
            name: "t".to_owned(),
            principal: "User:anna".to_owned(),
            host: "*".to_owned(),
            operation: AclOperation::IdempotentWrite,
            permission: Permission::Deny,
        }
    }

    fn record() -> MetadataRecord {
        let topic = TopicRecord {
            id: TopicId::random(),
            partitions: 4,
            config: BTreeMap::from([("retention.ms".to_owned(), "1000".to_owned())]),
        };
        MetadataRecord {
            version: VERSION,
            next_producer_id: 2000,
            topics: BTreeMap::from([("t".to_owned(), topic)]),
            unfinished: [(TopicId::random(), "u".to_owned())].into(),
            users: UserCredentials::from([("anna".to_owned(), credential())]),
            acls: [acl()].into(),
            login_secret: Some("secret".to_owned()),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = MetadataFile::of(folder.path());
        assert!(file.read().unwrap().topics.is_empty());
        for _ in 0..2 {
            let written = record();
            file.write(&written).unwrap();
            assert_eq!(file.read().unwrap(), written);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_a_later_version_or_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = MetadataFile::of(folder.path());
        for text in [
            "",
            "{}",
            r#"{"version":2,"next_producer_id":0,"topics":{}}"#,
            r#"{"version":1,"next_producer_id":0,"topics":{"t":{"id":"x","partitions":1}}}"#,
        ] {
            fs::write(file.path(), text).unwrap();
            let refused = file.read().unwrap_err();
            let kind = refused.kind();
            assert!(
                matches!(
                    kind,
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ),
                "{text}: {refused}"
            );
        }
    }
}
