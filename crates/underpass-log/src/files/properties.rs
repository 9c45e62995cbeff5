//! Small files that identify the owner of a folder.

use std::io;
use std::path::Path;

use crate::config::DataFolderOptions;
use crate::error::LogError;
use crate::files::disk;

const META: &str = "meta.properties";
const PARTITION: &str = "partition.metadata";

/// The largest properties file that is read, in bytes.
const BYTES_MAX: u64 = 64 << 10;

/// The identity of a data folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct MetaProperties {
    pub(crate) cluster_id: String,
}

impl MetaProperties {
    /// Reads the properties of a data folder, or writes them if the folder is new.
    ///
    /// # Errors
    /// `Foreign` if the folder belongs to another broker; `Disk`.
    pub(crate) fn read_or_write(
        folder: &Path,
        options: &DataFolderOptions,
    ) -> Result<MetaProperties, LogError> {
        let path = folder.join(META);
        let disk_error = |source| LogError::Disk {
            path: path.clone(),
            source,
        };
        let text = match disk::read(&path, BYTES_MAX) {
            Ok(content) => String::from_utf8_lossy(&content).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!(
                    "version=1\ncluster.id={}\nnode.id={}\n",
                    options.cluster_id, options.node_id
                );
                disk::replace(&path, text.as_bytes()).map_err(disk_error)?;
                text
            }
            Err(error) => return Err(disk_error(error)),
        };
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines
                .find(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim().to_owned())
        };
        let foreign = |what: String| LogError::Foreign {
            path: path.clone(),
            what,
        };
        let version = value("version").unwrap_or_default();
        if version != "1" {
            let advice = match &*version {
                "0" => "; Kafka with ZooKeeper has left it: migrate it to KRaft by Kafka first",
                _ => "; if it is damaged, write version=1, cluster.id=… and node.id=… into it",
            };
            return Err(foreign(format!(
                "version={version:?}, and this broker reads version=1{advice}"
            )));
        }
        let node = value("node.id").unwrap_or_default();
        if node != options.node_id.to_string() {
            return Err(foreign(format!(
                "node.id={node}, and this broker is {}; set node-id = {node} in the configuration",
                options.node_id
            )));
        }
        Ok(MetaProperties {
            cluster_id: value("cluster.id").unwrap_or_default(),
        })
    }
}

/// Returns the topic ID of a partition.
pub(crate) fn read_topic_id(folder: &Path) -> Option<String> {
    let path = folder.join(PARTITION);
    let content = match disk::read(&path, BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        content => content.map_err(|error| error.to_string()),
    };
    let id = content.and_then(|content| {
        let text = String::from_utf8_lossy(&content);
        let id = text.strip_prefix("version: 0\ntopic_id: ");
        let id = id.map(str::trim).filter(|id| !id.contains('\n'));
        id.map(str::to_owned)
            .ok_or("there is no topic id in it".to_owned())
    });
    let warn = |wrong: &String| tracing::warn!("{}: {wrong}", path.display());
    id.inspect_err(warn).ok()
}

pub(crate) fn write_topic_id(folder: &Path, id: &str) -> io::Result<()> {
    let text = format!("version: 0\ntopic_id: {id}\n");
    disk::replace(&folder.join(PARTITION), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_of_another_broker_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let options = DataFolderOptions::default();
        let first = MetaProperties::read_or_write(folder.path(), &options).unwrap();
        assert_eq!(first.cluster_id, options.cluster_id);
        let again = MetaProperties::read_or_write(folder.path(), &options);
        assert_eq!(again.unwrap(), first);
        let other = DataFolderOptions {
            node_id: 2,
            ..options.clone()
        };
        let refused = MetaProperties::read_or_write(folder.path(), &other).unwrap_err();
        assert!(refused.to_string().contains("node.id=1"), "{refused}");
        fs::write(folder.path().join(META), "version=0\nbroker.id=1\n").unwrap();
        let old = MetaProperties::read_or_write(folder.path(), &options).unwrap_err();
        assert!(old.to_string().contains("ZooKeeper"), "{old}");
    }

    #[test]
    fn the_id_of_a_topic_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_topic_id(folder.path()), None);
        write_topic_id(folder.path(), "4nQ8c9q0Q6uTZ3J9q5iKJw").unwrap();
        let id = read_topic_id(folder.path());
        assert_eq!(id.as_deref(), Some("4nQ8c9q0Q6uTZ3J9q5iKJw"));
    }
}
