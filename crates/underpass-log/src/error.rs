//! Errors of a data folder.

use std::io;
use std::path::{Path, PathBuf};

use crate::position::TopicPartition;

/// The reason why a data folder cannot be used.
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
    /// The folder belongs to another broker or a later version.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// The file that shows it.
        path: PathBuf,
        /// The contradiction, in words.
        what: String,
    },
    /// A partition with this name exists.
    #[error("the partition {0} exists")]
    Exists(TopicPartition),
    /// A file system operation failed.
    #[error("{}: {source}{}", path.display(), advice(source))]
    Disk {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
}

/// Returns advice for an I/O error.
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

/// Makes an error for a path.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> LogError {
    move |source| LogError::Disk {
        path: path.to_owned(),
        source,
    }
}
