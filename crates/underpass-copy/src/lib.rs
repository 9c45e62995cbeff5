//! Copies files and trees as GNU `cp` does, in parallel and without races, and reports how every
//! byte was moved.

#![forbid(unsafe_code)]

mod compare;
mod entry;
mod fs;
mod metadata;
mod options;
mod report;
mod run;
mod tree;
mod walk;
mod workers;

pub use options::{
    AskWhen, Backup, CopyMode, CopyOptions, CopyTarget, Dereference, FilterRule, Fsync,
    OverwritePolicy, Preserve, PreserveLevel, RemoveExisting,
};
pub use report::event::{
    EntryKind, EntryOutcome, Event, EventDetail, Finished, HoleDetection, Observer,
    OverwriteQuestion, TransferReport,
};
pub use report::problem::{OtherEnd, Problem, ProblemKind, ProblemMessage, Severity};
pub use report::quote::{Charset, Quoted, QuotedIfNeeded, QuotedWord};
pub use report::reporter::{CopyEnd, CopyProgress, CopySummary};
pub use run::{CopyContext, RunStart};
pub use walk::operands::{begin, copy};
pub use walk::survey::survey;
