//! What `stat(2)` returns, in the terms that a copy needs.

use rustix::fs::{FileType, Stat};

/// Device and inode: distinguishes a file from every other one while it exists.
pub(crate) type Identity = (u64, u64);

pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(crate) fn is_folder(stat: &Stat) -> bool {
    file_type(stat) == FileType::Directory
}

pub(crate) fn is_link(stat: &Stat) -> bool {
    file_type(stat) == FileType::Symlink
}

pub(crate) fn is_regular(stat: &Stat) -> bool {
    file_type(stat) == FileType::RegularFile
}

/// The size in bytes.
pub(crate) fn size(stat: &Stat) -> u64 {
    stat.st_size.max(0).cast_unsigned()
}

/// The time of the last change of the inode.
#[allow(
    clippy::unnecessary_cast,
    reason = "its type differs between architectures"
)]
pub(crate) fn changed_at(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}
