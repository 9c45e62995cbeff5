//! The state of a file, as fstat(2) reports it.

use rustix::fs::Stat;
use underpass_http::fields::validator::FileTime;

/// The identity of a file and the attributes that reveal a change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct FileStamp {
    /// Device and inode.
    pub(crate) identity: (u64, u64),
    pub(crate) size: u64,
    /// The modification time of the content.
    pub(crate) modified: FileTime,
    /// The change time, which cannot be set.
    pub(crate) changed: FileTime,
}

impl FileStamp {
    pub(crate) fn of(stat: &Stat) -> FileStamp {
        FileStamp {
            identity: (stat.st_dev, stat.st_ino),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: modified(stat),
            changed: FileTime {
                seconds: stat.st_ctime,
                nanoseconds: stat.st_ctime_nsec as u32,
            },
        }
    }
}

/// Returns the modification time of the content.
pub(crate) fn modified(stat: &Stat) -> FileTime {
    FileTime {
        seconds: stat.st_mtime,
        nanoseconds: stat.st_mtime_nsec as u32,
    }
}
