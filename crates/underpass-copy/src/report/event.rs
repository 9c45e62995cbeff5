//! The events of a copy, and the observer that receives them.

use std::ffi::OsString;

use rustix::fs::{FileType, Stat};
use serde::Serialize;
use underpass::{Account, Plan};

use crate::fs::folder::file_type;
use crate::report::problem::Problem;

/// Receives the events of a copy. Events of one entry come together, and entries in the order of
/// the walk, even if files are copied in parallel; with one job every event comes as it happens.
pub trait Observer: Sync {
    /// Receives an event. Never called concurrently.
    fn on_event(&self, event: Event);

    /// Returns whether an existing destination may be overwritten (`-i`). Called with one job only.
    fn confirm_overwrite(&self, overwriting: &OverwriteQuestion) -> bool;

    /// Returns the requested detail: paths and plans cost time to record.
    fn event_detail(&self) -> EventDetail;
}

/// The level of detail an observer requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventDetail {
    /// Problems only.
    Problems,
    /// Also created and removed names (`-v`).
    Changes,
    /// Also how every file was copied (`--explain`, `--debug`, `--json`).
    Everything,
}

/// An event of a copy.
#[derive(Clone, Debug)]
pub enum Event {
    /// A copy, link or folder is being created, and the old destination was renamed.
    Making {
        /// The displayed path of the source.
        source: OsString,
        /// The displayed path of the destination.
        dest: OsString,
        /// The old destination's new name.
        backup: Option<OsString>,
    },
    /// The copy failed, and the old destination has its name again.
    Restored {
        /// Its name as a backup.
        backup: OsString,
        /// Its original name.
        dest: OsString,
    },
    /// A folder above a copy was created (`--parents`).
    MadeParent {
        /// The displayed path of the source.
        source: OsString,
        /// The displayed path of the destination.
        dest: OsString,
    },
    /// An obstructing file was removed.
    Removed(OsString),
    /// An existing destination stays.
    Skipped {
        /// The displayed path of the source.
        source: OsString,
        /// The displayed path of the destination.
        dest: OsString,
    },
    /// An entry is done, successfully or not.
    Finished(Box<Finished>),
    /// Something went wrong.
    Problem(Box<Problem>),
}

/// One entry that is done.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The displayed path of the source.
    pub source: OsString,
    /// The displayed path of the destination.
    pub dest: OsString,
    /// The outcome of the entry.
    pub outcome: EntryOutcome,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// A regular file's size in bytes.
    pub size: u64,
    /// The plan and the account of its bytes, for regular files that were copied.
    pub travel: Option<Box<TransferReport>>,
    /// Bytes of the destination that already existed and were equal (`--resume`).
    pub resumed: u64,
    /// The hash of source and copy, which were found equal (`--verify`), in hexadecimal: BLAKE3 of
    /// the content, unless it has 16 MiB of zeros or more, which are then described and not hashed.
    pub hash: Option<String>,
}

/// The plan and the result of a file's transfer.
#[derive(Clone, Debug)]
pub struct TransferReport {
    /// The plan.
    pub plan: Plan,
    /// The result.
    pub account: Account,
    /// The method of finding the source's holes.
    pub holes_sought: HoleDetection,
}

/// The method of finding holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HoleDetection {
    /// None: the source has as many blocks as it has bytes, or its holes do not matter.
    No,
    /// Querying the file system (`SEEK_HOLE`).
    Asked,
    /// Searching for zeros in the data.
    Zeros,
    /// Both methods.
    AskedAndZeros,
}

/// The outcome of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryOutcome {
    /// It was copied.
    Copied,
    /// It became another name of a file copied before.
    Linked,
    /// The destination stays.
    Skipped,
    /// It could not be copied; a problem gives the reason.
    Failed,
    /// Nothing was done (`--dry-run`).
    Planned,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO, socket or device.
    Special,
}

impl EntryKind {
    pub(crate) fn of(stat: &Stat) -> Self {
        match file_type(stat) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Special,
        }
    }
}

/// A question of `-i`.
#[derive(Clone, Debug)]
pub struct OverwriteQuestion {
    /// The displayed path of the destination.
    pub dest: OsString,
    /// Its permission bits, if they prevent writing it.
    pub unwritable_mode: Option<u32>,
    /// Whether it will be replaced instead of overwritten in place.
    pub replaces: bool,
}
