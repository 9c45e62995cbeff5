//! The events of a copy, and the observer that receives them.

use std::ffi::OsString;

use rustix::fs::{FileType, Stat};
use serde::Serialize;
use underpass::{Account, Plan};

use crate::fs::folder::file_type;
use crate::report::problem::Problem;

/// Receives the events of a copy. Events of one entry come together, and entries in the order of
/// the walk, however many files are copied at once; with one job every event comes as it happens.
pub trait Observer: Sync {
    /// Receives an event. Never called by two threads at the same time.
    fn on_event(&self, event: Event);

    /// Whether an existing destination may be overwritten (`-i`). Asked with one job only.
    fn confirm_overwrite(&self, overwriting: &OverwriteQuestion) -> bool;

    /// The detail that is wanted: paths and plans cost time to record.
    fn event_detail(&self) -> EventDetail;
}

/// How much detail an observer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventDetail {
    /// Problems only.
    Problems,
    /// Also what was made or removed (`-v`).
    Changes,
    /// Also how every file was copied (`--explain`, `--debug`, `--json`).
    Everything,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A copy, link or folder is being made, and the old destination was renamed.
    Making {
        /// The source, as it is shown.
        source: OsString,
        /// The destination, as it is shown.
        dest: OsString,
        /// The old destination's new name.
        backup: Option<OsString>,
    },
    /// The copy failed, and the old destination has its name again.
    Restored {
        /// The name it had as a backup.
        backup: OsString,
        /// Its name.
        dest: OsString,
    },
    /// A folder above a copy was made (`--parents`).
    MadeParent {
        /// The source, as it is shown.
        source: OsString,
        /// The destination, as it is shown.
        dest: OsString,
    },
    /// Something that was in the way was removed.
    Removed(OsString),
    /// An existing destination stays.
    Skipped {
        /// The source, as it is shown.
        source: OsString,
        /// The destination, as it is shown.
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
    /// The source, as it is shown.
    pub source: OsString,
    /// The destination, as it is shown.
    pub dest: OsString,
    /// What has become of it.
    pub outcome: EntryOutcome,
    /// What kind of thing it is.
    pub kind: EntryKind,
    /// A regular file's size in bytes.
    pub size: u64,
    /// How its bytes were to travel, and how they did: of regular files that were copied.
    pub travel: Option<Box<TransferReport>>,
    /// Bytes of the destination that were there already and equal (`--resume`).
    pub resumed: u64,
    /// The hash of source and copy, which were found equal (`--verify`), in hexadecimal: BLAKE3 of
    /// the content, unless it has zeros for 16 MiB and more, which are then described and not
    /// hashed.
    pub hash: Option<String>,
}

/// How the bytes of a file travelled.
#[derive(Clone, Debug)]
pub struct TransferReport {
    /// What was planned.
    pub plan: Plan,
    /// What happened.
    pub account: Account,
    /// Whether the source was asked where its holes are.
    pub holes_sought: HoleDetection,
}

/// Whether holes were looked for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HoleDetection {
    /// Not at all: the source has as many blocks as it has bytes, or its holes are of no interest.
    No,
    /// By asking the file system (`SEEK_HOLE`).
    Asked,
    /// By looking for zeros in the data.
    Zeros,
    /// Both.
    AskedAndZeros,
}

/// What has become of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryOutcome {
    /// It was copied.
    Copied,
    /// It has become another name of a file copied before.
    Linked,
    /// The destination stays.
    Skipped,
    /// It could not be copied; a problem gives the reason.
    Failed,
    /// Nothing was done (`--dry-run`).
    Planned,
}

/// What kind of thing a name is.
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
    /// The destination, as it is shown.
    pub dest: OsString,
    /// Its permission bits, if they keep us from writing it.
    pub unwritable_mode: Option<u32>,
    /// What will happen instead of overwriting it in place.
    pub replaces: bool,
}
