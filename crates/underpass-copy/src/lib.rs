//! Copies files and trees: what GNU `cp` does, in parallel and without races, and telling how every
//! byte travelled.

#![forbid(unsafe_code)]

mod backup;
mod compare;
mod event;
mod filter;
mod metadata;
mod options;
mod problem;
mod progress;
mod quote;
mod summary;

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use underpass::Host;

pub use event::{
    Curiosity, EntryKind, Event, Finished, HolesSought, Observer, Outcome, Overwriting, Travel,
};
pub use options::{
    Backup, Borders, Dangling, Durability, Effect, Existing, FolderLinks, Leftovers, Links,
    MakingWay, Manner, Naming, Options, Placement, Preserve, Recursion, Rule, Slashes, Specials,
    Target, Update, Verification, Wish,
};
pub use problem::{Problem, Severity, What, Worded};
pub use progress::Progress;
pub use quote::{Charset, Quoted, QuotedIfNeeded, Word};
pub use summary::{Ended, Summary};

/// Who is around while a copy goes on.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// What this kernel can do.
    pub host: &'a Host,
    /// Who is told.
    pub observer: &'a dyn Observer,
    /// Where it is counted how far it has come.
    pub progress: &'a Progress,
    /// Set from elsewhere to stop it within 100 ms.
    pub stop: &'a AtomicBool,
}

/// Copies `operands` as `options` say.
///
/// With [`Target::Folder`] all operands are sources; otherwise the last one of at least two is the
/// target. Blocks until all is done, and goes on after an error: what could not be done is told as
/// a [`Problem`], and counted in the [`Summary`].
pub fn copy(operands: &[OsString], options: &Options, around: Around<'_>) -> Summary {
    let _ = (operands, options, around);
    todo!()
}
