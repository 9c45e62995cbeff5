//! What can be wrong with a data folder.

use std::io;
use std::path::{Path, PathBuf};

use crate::position::TopicPartition;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process uses it.
    #[error(
        "the data folder {} is in use by another process: stop that broker, or choose another \
         folder",
        folder.display()
    )]
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
    #[error("{}: {source}{}", path.display(), advice(source))]
    Disk {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What to try.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; the data folder and all in it has to be writable for the user of the broker"
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
            "; move it out of the data folder, and start again"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room on the disk",
        _ => "",
    }
}

/// The error of the file system at a path.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> LogError {
    move |source| LogError::Disk {
        path: path.to_owned(),
        source,
    }
}
