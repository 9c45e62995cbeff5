//! The reasons why a compaction ends early.

use std::io;

use crate::segment::damage::Damaged;

/// The reason why a compaction ended early. Except for `Stuck`, the log is as it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CleanError {
    /// The broker stops, or the partition is deleted or was changed.
    #[error("interrupted")]
    Interrupted,
    /// Records are damaged or missing. They may be restored.
    #[error("segment {base}: there is no batch at byte {position}")]
    Damaged {
        /// The base offset of the segment.
        base: i64,
        /// The position in its file.
        position: u64,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Disk(#[from] io::Error),
    /// Files cannot be renamed, neither forward nor back. The next start completes the replacement.
    #[error("{0}; the replacement of segments is completed by the next start")]
    Stuck(io::Error),
}

impl CleanError {
    /// Returns the cause of an I/O error, if it is damage.
    pub(crate) fn of(error: io::Error) -> CleanError {
        match Damaged::of(&error) {
            Some(damaged) => CleanError::Damaged {
                base: damaged.place.0,
                position: damaged.place.1,
            },
            None => CleanError::Disk(error),
        }
    }
}
