//! One entry: what it is, what is in its place, and what becomes of both.
//!
//! ```text
//!   look ──facts──▶ decide ──action──▶ execute ──▶ file, special
//! ```

pub(crate) mod decide;
pub(crate) mod destination;
pub(crate) mod execute;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod look;
pub(crate) mod same_file;
pub(crate) mod special;

use std::ffi::{CStr, CString, OsString};

use rustix::fs::Stat;
use rustix::io::Errno;
use underpass::drive::blocking::SigxfszGuard;

use crate::fs::path::joined;
use crate::options::Backup;
use crate::report::event::{EntryOutcome, TransferReport};
use crate::report::problem::{Problem, ProblemKind};
use crate::run::CopyRun;
use crate::tree::task::{Role, Task};

/// An entry that is being copied, and by which thread.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) run: &'a CopyRun<'a>,
    pub(crate) task: &'a Task,
    pub(crate) sigxfsz_guard: &'a SigxfszGuard,
}

/// Where the copy goes.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// Nothing is there, or not any more: the old one may have been renamed.
    New { backup: Option<CString> },
    /// Something is there that is written to, replaced or entered.
    Existing(Box<ExistingDestination>),
}

/// A destination that is there already.
#[derive(Clone, Debug)]
pub(crate) struct ExistingDestination {
    /// What it is; behind the link where the link is followed.
    pub(crate) stat: Stat,
    /// The symbolic link that leads to it.
    pub(crate) link: Option<Stat>,
    pub(crate) replaced: Replaced,
}

/// What stays of an existing destination when a complete copy replaces it (`--atomic`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// Owner and mode, as if it were overwritten in place.
    KeepsAttributes,
    /// Nothing but the name.
    Discarded,
    /// All of it, under this other name.
    BackedUp(CString),
}

impl Destination {
    /// The name of the old destination, which is renamed by now.
    pub(crate) fn renamed(&self) -> Option<&CStr> {
        match self {
            Self::New { backup } => backup.as_deref(),
            Self::Existing(_) => None,
        }
    }

    /// The name of the backup that is or will be made.
    pub(crate) fn backup(&self) -> Option<&CStr> {
        match self {
            Self::Existing(existing) => match &existing.replaced {
                Replaced::BackedUp(name) => Some(name),
                Replaced::KeepsAttributes | Replaced::Discarded => None,
            },
            Self::New { .. } => self.renamed(),
        }
    }
}

/// What came of an entry.
pub(crate) struct EntryResult {
    pub(crate) outcome: EntryOutcome,
    pub(crate) travel: Option<Box<TransferReport>>,
    pub(crate) resumed: u64,
    pub(crate) hash: Option<String>,
}

impl EntryResult {
    pub(crate) const fn of(outcome: EntryOutcome) -> Self {
        Self {
            outcome,
            travel: None,
            resumed: 0,
            hash: None,
        }
    }
}

impl Entry<'_> {
    /// Whether symbolic links are followed on the way to the source.
    pub(crate) fn follows(&self) -> bool {
        self.run.options.follows(self.task.role)
    }

    /// What happens to the old destination.
    pub(crate) fn backup(&self) -> &Backup {
        self.run.options.backup_of(self.task.role)
    }

    pub(crate) fn is_operand(&self) -> bool {
        self.task.role != Role::Inside
    }

    pub(crate) fn source_shown(&self) -> OsString {
        joined(&self.task.level.source(), self.task.source.to_bytes())
    }

    pub(crate) fn dest_shown(&self) -> OsString {
        self.beside_dest_shown(&self.task.dest)
    }

    /// Another name in the folder of the destination.
    pub(crate) fn beside_dest_shown(&self, name: &CStr) -> OsString {
        joined(&self.task.level.dest(), name.to_bytes())
    }

    /// The copy was stopped when `bytes` of the content were in place.
    pub(crate) fn stopped(&self, bytes: u64) -> Problem {
        Problem::new(ProblemKind::Stopped(bytes), self.source_shown()).with_other(self.dest_shown())
    }

    /// A call about the source failed.
    pub(crate) fn at_source(&self, kind: ProblemKind, errno: Errno) -> Problem {
        Problem::failed(kind, self.source_shown(), errno)
    }

    /// A call about the destination failed.
    pub(crate) fn at_dest(&self, kind: ProblemKind, errno: Errno) -> Problem {
        Problem::failed(kind, self.dest_shown(), errno)
    }
}
