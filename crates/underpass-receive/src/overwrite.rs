//! Whether a file may replace another one, and the version by which a conditional request knows it.

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

/// Whether a file may replace another one of the same name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overwrite {
    /// It may. Readers see the former file or the whole new one.
    Allowed,
    /// It may not, whatever happens between looking and naming.
    Refused,
    /// It may, as long as that one is this version. Changes by other requests are waited for, in
    /// this process and in others; changes by other programs are seen until the rename.
    Only(FileVersion),
}

/// What changes with the content of a file, and identifies the file of a name.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FileVersion {
    inode: u64,
    size: i64,
    seconds: i64,
    nanoseconds: u64,
}

impl FileVersion {
    /// Returns the version that a file with this state has.
    pub fn of(stat: &Stat) -> FileVersion {
        FileVersion {
            inode: stat.st_ino,
            size: stat.st_size,
            seconds: stat.st_mtime,
            nanoseconds: stat.st_mtime_nsec,
        }
    }
}
