//! Copies files and trees: what GNU `cp` does, in parallel and without races, and telling how every
//! byte travelled.

#![forbid(unsafe_code)]

mod backup;
mod compare;
mod crew;
mod decide;
mod dest;
mod entry;
mod event;
mod existing;
mod fifo;
mod file;
mod filter;
mod ledger;
mod level;
mod listing;
mod metadata;
mod operand;
mod options;
mod parents;
mod problem;
mod progress;
mod quote;
mod run;
mod seen;
mod special;
mod staged;
mod summary;
mod survey;
mod sync;
mod throttle;
mod walk;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use underpass::Kernel;

use crew::Crew;
use entry::Hand;
use filter::Filter;
use ledger::{Ledger, Order};
use run::{Operands, Run};

pub use event::{
    Curiosity, EntryKind, Event, Finished, HolesSought, Observer, Outcome, Overwriting, Travel,
};
pub use options::{
    Backup, Borders, Dangling, Durability, Effect, Existing, FolderLinks, Leftovers, Links,
    MakingWay, Manner, Naming, Options, Placement, Preserve, Recursion, Rule, Slashes, Specials,
    Target, Update, Verification, Wish,
};
pub use problem::{OtherEnd, Problem, Severity, What, Worded};
pub use progress::Progress;
pub use quote::{Charset, Quoted, QuotedIfNeeded, Word};
pub use summary::{Ended, Summary};
pub use survey::survey;

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
        operand::copy_all(&Hand::of(&run), operands);
        for _ in 0..others {
            run.crew.dismiss();
        }
    });
    run.finish()
}
