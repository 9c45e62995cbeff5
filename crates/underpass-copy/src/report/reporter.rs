//! Delivers events in the order of the walk, even if files are copied in parallel; counts totals,
//! and the progress for other threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, Stat};
use serde::Serialize;
use underpass::Account;

use crate::fs::folder::file_type;
use crate::report::event::{Event, EventDetail, Observer, TransferReport};
use crate::report::problem::{Problem, Severity};

/// The number of entries that may be done before an earlier one is: their events are kept so long.
const AHEAD_MAX: u64 = 1 << 16;

/// The place of an entry in the order of the walk.
pub(crate) type SequenceNumber = u64;

/// Delivers the events of all entries in order.
pub(crate) struct OrderedReporter<'a> {
    observer: &'a dyn Observer,
    delivery: Delivery,
    state: Mutex<ReporterState>,
    advanced: Condvar,
}

/// The time of delivery of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Immediately: only one thread copies.
    Immediate,
    /// Once all earlier entries are done.
    Ordered,
}

#[derive(Default)]
struct ReporterState {
    /// The next number to assign.
    next: SequenceNumber,
    /// The first entry that is not done.
    delivered: SequenceNumber,
    /// The events of entries done before an earlier one.
    early: BTreeMap<SequenceNumber, Vec<Event>>,
    /// Threads in [`OrderedReporter::sequence`].
    waiting: usize,
    summary: CopySummary,
}

impl<'a> OrderedReporter<'a> {
    pub(crate) fn new(observer: &'a dyn Observer, delivery: Delivery) -> Self {
        Self {
            observer,
            delivery,
            state: Mutex::default(),
            advanced: Condvar::new(),
        }
    }

    /// Returns the next sequence number. Blocks while too many entries wait for an earlier one.
    pub(crate) fn sequence(&self) -> SequenceNumber {
        let mut state = self.state();
        while state.next - state.delivered > AHEAD_MAX {
            state.waiting += 1;
            let woken = self.advanced.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.next += 1;
        state.next - 1
    }

    /// Returns a buffer for the events of one entry. Every sequence number needs a buffer, and
    /// every buffer must be submitted.
    pub(crate) fn buffer(&self, sequence: SequenceNumber) -> EventBuffer<'_> {
        EventBuffer {
            reporter: self,
            sequence,
            events: Vec::new(),
            counts: CopySummary::default(),
            content: ContentReport::default(),
        }
    }

    /// Reports a problem that belongs to no entry.
    pub(crate) fn problem(&self, problem: Problem) {
        let mut events = self.buffer(self.sequence());
        events.problem(problem);
        events.submit();
    }

    /// Consumes the reporter and returns the totals of all entries.
    pub(crate) fn finish(self) -> CopySummary {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).summary
    }

    fn state(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of one entry, until they are delivered.
pub(crate) struct EventBuffer<'r> {
    reporter: &'r OrderedReporter<'r>,
    sequence: SequenceNumber,
    events: Vec<Event>,
    /// The contribution of this entry to the totals.
    pub(crate) counts: CopySummary,
    pub(crate) content: ContentReport,
}

/// The report on the content of a file.
#[derive(Default)]
pub(crate) struct ContentReport {
    pub(crate) travel: Option<Box<TransferReport>>,
    pub(crate) resumed: u64,
    pub(crate) hash: Option<String>,
}

impl EventBuffer<'_> {
    pub(crate) fn push(&mut self, event: Event) {
        match self.reporter.delivery {
            Delivery::Immediate => self.reporter.observer.on_event(event),
            Delivery::Ordered => self.events.push(event),
        }
    }

    pub(crate) fn problem(&mut self, problem: Problem) {
        match problem.severity {
            Severity::Error => self.counts.errors += 1,
            Severity::Warning => self.counts.warnings += 1,
        }
        self.push(Event::Problem(Box::new(problem)));
    }

    /// Reports a created or removed name, to an observer that requests it.
    pub(crate) fn changed(&mut self, event: impl FnOnce() -> Event) {
        if self.wants(EventDetail::Changes) {
            self.push(event());
        }
    }

    pub(crate) fn wants(&self, detail: EventDetail) -> bool {
        self.reporter.observer.event_detail() >= detail
    }

    /// Ends the entry: delivers its events, and those of later entries that waited for it.
    pub(crate) fn submit(self) {
        let Self { reporter, .. } = self;
        let mut state = reporter.state();
        state.summary.add(&self.counts);
        state.early.insert(self.sequence, self.events);
        loop {
            let next = state.delivered;
            let Some(events) = state.early.remove(&next) else {
                break;
            };
            for event in events {
                reporter.observer.on_event(event);
            }
            state.delivered += 1;
        }
        if state.waiting > 0 {
            reporter.advanced.notify_all();
        }
    }
}

/// The totals of a copy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CopySummary {
    /// Regular files copied.
    pub files: u64,
    /// Folders created.
    pub directories: u64,
    /// Symbolic links created.
    pub symlinks: u64,
    /// FIFOs, sockets and devices created.
    pub specials: u64,
    /// Names that became other names of a file copied before.
    pub hard_links: u64,
    /// Names whose destination was kept.
    pub skipped: u64,
    /// Skipped names that the user declined to overwrite.
    pub declined: u64,
    /// Errors.
    pub errors: u64,
    /// Warnings.
    pub warnings: u64,
    /// Bytes left by an earlier copy that were equal, and not copied again.
    pub resumed_bytes: u64,
    /// Bytes of the files whose destination stays as it is, without their holes.
    pub skipped_bytes: u64,
    /// Bytes that were copied of files that are incomplete.
    pub incomplete_bytes: u64,
    /// Files that were read back and found equal.
    pub verified: u64,
    /// How the bytes of all files travelled.
    pub account: Account,
    /// Whether it was stopped before its end.
    pub ended: CopyEnd,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyEnd {
    /// It came to its end.
    #[default]
    ByItself,
    /// It was stopped.
    Stopped,
}

impl CopySummary {
    pub(crate) fn count_copied(&mut self, source: &Stat) {
        let counter = match file_type(source) {
            FileType::RegularFile => &mut self.files,
            FileType::Directory => &mut self.directories,
            FileType::Symlink => &mut self.symlinks,
            _ => &mut self.specials,
        };
        *counter += 1;
    }

    /// Adds the counts of another part.
    pub(crate) fn add(&mut self, other: &CopySummary) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.specials += other.specials;
        self.hard_links += other.hard_links;
        self.skipped += other.skipped;
        self.declined += other.declined;
        self.errors += other.errors;
        self.warnings += other.warnings;
        self.resumed_bytes += other.resumed_bytes;
        self.skipped_bytes += other.skipped_bytes;
        self.incomplete_bytes += other.incomplete_bytes;
        self.verified += other.verified;
        self.account.add(&other.account);
    }
}

/// Counters that only grow. They may be read at any time, and are not consistent with each other.
#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Regular files that a [`survey`](crate::survey) has found so far, under all their names.
    pub files_found: AtomicU64,
    /// Regular files done.
    pub files_done: AtomicU64,
    /// Bytes of the files found.
    pub bytes_found: AtomicU64,
    /// Bytes in place, holes included.
    pub bytes_done: AtomicU64,
    /// Not 0 once a survey is complete: nothing more will be found.
    pub all_found: AtomicU64,
}

impl CopyProgress {
    pub(crate) fn advanced(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::report::event::OverwriteQuestion;

    /// The names that were removed.
    #[derive(Default)]
    struct Removals(Mutex<Vec<OsString>>);

    impl Observer for Removals {
        fn on_event(&self, event: Event) {
            if let Event::Removed(name) = event {
                self.0.lock().expect("nobody panicked").push(name);
            }
        }

        fn confirm_overwrite(&self, _: &OverwriteQuestion) -> bool {
            false
        }

        fn event_detail(&self) -> EventDetail {
            EventDetail::Changes
        }
    }

    fn delivered(delivery: Delivery, done: [usize; 3]) -> Vec<OsString> {
        let removals = Removals::default();
        let reporter = OrderedReporter::new(&removals, delivery);
        let sequence = [
            reporter.sequence(),
            reporter.sequence(),
            reporter.sequence(),
        ];
        for turn in done {
            let mut events = reporter.buffer(sequence[turn]);
            events.push(Event::Removed(turn.to_string().into()));
            events.counts.files += 1;
            events.submit();
        }
        assert_eq!(reporter.finish().files, 3);
        removals.0.into_inner().expect("nobody panicked")
    }

    #[test]
    fn events_keep_the_order_of_their_sequence_numbers() {
        for done in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            assert_eq!(
                delivered(Delivery::Ordered, done),
                ["0", "1", "2"],
                "{done:?}"
            );
        }
        assert_eq!(delivered(Delivery::Immediate, [1, 0, 2]), ["1", "0", "2"]);
    }
}
