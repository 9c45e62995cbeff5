//! What can be wrong with a data folder.

use std::io;
use std::path::{Path, PathBuf};

use crate::position::TopicPartition;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process uses it.
    #[error("the data folder {} is in use by another process", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// It belongs to another broker, or a later version.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
        what: String,
    },
    /// A partition of this name is there.
    #[error("the partition {0} exists")]
    Exists(TopicPartition),
    /// The file system fails.
    #[error("{}: {source}", path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The error of the file system at a path.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> LogError {
    move |source| LogError::Disk {
        path: path.to_owned(),
        source,
    }
}
