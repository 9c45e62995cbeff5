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

use entry::execute::CopyWorker;
use report::reporter::{Delivery, OrderedReporter};
use run::{CopyRun, SourceCount};
use tree::filter::NameFilter;
use workers::pool::WorkerPool;

pub use options::{
    AskWhen, Backup, CopyMode, CopyOptions, CopyTarget, Dereference, FilterRule, Fsync,
    OverwritePolicy, Preserve, PreserveLevel, RemoveExisting,
};
pub use report::event::{
    EntryKind, EntryOutcome, Event, EventDetail, Finished, HoleDetection, Observer,
    OverwriteQuestion, TransferReport,
};
pub use report::problem::{OtherEnd, Problem, ProblemKind, ProblemMessage, Severity};
pub use report::progress::CopyProgress;
pub use report::quote::{Charset, Quoted, QuotedIfNeeded, QuotedWord};
pub use report::summary::{CopyEnd, CopySummary};
pub use run::CopyContext;
pub use walk::survey::survey;

/// Copies `operands` as `options` say.
///
/// With [`CopyTarget::Folder`] all operands are sources; otherwise the last one of at least two is the
/// target. Blocks until all is done, and goes on after an error: what could not be done is told as
/// a [`Problem`], and counted in the [`CopySummary`].
pub fn copy(operands: &[OsString], options: &CopyOptions, context: CopyContext<'_>) -> CopySummary {
    let jobs = options.jobs.map_or(1, NonZeroUsize::get);
    let jobs = jobs.min(CopyOptions::JOBS_MAX);
    let delivery = match jobs {
        1 => Delivery::Immediate,
        _ => Delivery::Ordered,
    };
    let reporter = OrderedReporter::new(context.observer, delivery);
    let filter = match NameFilter::of(&options.filters) {
        Ok(filter) => filter,
        Err(why) => {
            reporter.problem(Problem::new(ProblemKind::Pattern(why), OsString::new()));
            return reporter.finish();
        }
    };
    let one = match options.target {
        CopyTarget::Folder(_) => 1,
        _ => 2,
    };
    let sources = match operands.len() > one {
        true => SourceCount::IntoFolder,
        false => SourceCount::One,
    };
    let run = CopyRun::new(
        options,
        context,
        reporter,
        WorkerPool::of(jobs),
        filter,
        sources,
    );
    std::thread::scope(|scope| {
        // Where no more threads can be started, the others do it all.
        let others = (1..jobs).map_while(|_| {
            let work = || CopyWorker::of(&run).work();
            std::thread::Builder::new().spawn_scoped(scope, work).ok()
        });
        let others = others.count();
        walk::operands::copy_all(&CopyWorker::of(&run), operands);
        for _ in 0..others {
            run.pool.dismiss();
        }
    });
    run.finish()
}
