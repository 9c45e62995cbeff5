//! Copies files and trees: what GNU `cp` does, in parallel and without races, and telling how every
//! byte travelled.

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

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use underpass::Kernel;

use entry::execute::Hand;
use report::reporter::{Ledger, Order};
use run::{Operands, Run};
use tree::filter::Filter;
use workers::pool::Crew;

pub use options::{
    Backup, Borders, Dangling, Durability, Effect, Existing, FolderLinks, Leftovers, Links,
    MakingWay, Manner, Naming, Options, Placement, Preserve, Recursion, Rule, Slashes, Specials,
    Target, Update, Verification, Wish,
};
pub use report::event::{
    Curiosity, EntryKind, Event, Finished, HolesSought, Observer, Outcome, Overwriting, Travel,
};
pub use report::problem::{OtherEnd, Problem, Severity, What, Worded};
pub use report::progress::Progress;
pub use report::quote::{Charset, Quoted, QuotedIfNeeded, Word};
pub use report::summary::{Ended, Summary};
pub use walk::survey::survey;

/// Who is around while a copy goes on.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// What this kernel can do.
    pub kernel: &'a Kernel,
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
    let jobs = options.jobs.map_or(1, NonZeroUsize::get);
    let jobs = jobs.min(Options::JOBS_MAX);
    let order = if jobs > 1 {
        Order::InTurn
    } else {
        Order::AtOnce
    };
    let ledger = Ledger::new(around.observer, order);
    let filter = match Filter::of(&options.rules) {
        Ok(filter) => filter,
        Err(why) => {
            let mut voice = ledger.voice(ledger.ticket());
            voice.problem(Problem::said(What::Pattern(why), OsString::new()));
            voice.settle();
            return ledger.finish();
        }
    };
    let sources = operands.len();
    let several = match options.target {
        Target::Folder(_) => sources > 1,
        _ => sources > 2,
    };
    let several = if several {
        Operands::IntoFolder
    } else {
        Operands::One
    };
    let run = Run::new(options, around, ledger, Crew::of(jobs), filter, several);
    std::thread::scope(|scope| {
        // Where no more threads are to be had, those that are do it all.
        let others = (1..jobs).map_while(|_| {
            let work = || {
                let hand = Hand::of(&run);
                run.crew.work(&|task| hand.perform(task));
            };
            std::thread::Builder::new().spawn_scoped(scope, work).ok()
        });
        let others = others.count();
        walk::operands::copy_all(&Hand::of(&run), operands);
        for _ in 0..others {
            run.crew.dismiss();
        }
    });
    run.finish()
}
