//! Copies one entry: looks, decides, makes way, creates the copy, and reports.

use std::ffi::CStr;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Stat, renameat, unlinkat};
use rustix::io::Errno;
use underpass::drive::blocking::SigxfszGuard;

use crate::entry::decide::{Action, decide, refuse_source};
use crate::entry::{
    Destination, DestinationFacts, Entry, EntryResult, ExistingDestination, Replaced, file, special,
};
use crate::fs::atomic_file::replace;
use crate::fs::backup;
use crate::fs::folder::{file_type, identity, is_folder, is_link, size};
use crate::options::{CopyMode, RemoveExisting};
use crate::report::event::{
    EntryKind, EntryOutcome, Event, EventDetail, Finished, OverwriteQuestion,
};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;
use crate::run::{CopyRun, SourceCount};
use crate::tree::inode_table::{CopiedFile, NamedFile};
use crate::tree::level::Task;
use crate::workers::pool::{Batch, WorkerPool};

/// One of the threads that copy.
pub(crate) struct CopyWorker<'a> {
    pub(crate) run: &'a CopyRun<'a>,
    sigxfsz_guard: SigxfszGuard,
}

/// How far an entry has come.
pub(crate) enum EntryProgress {
    /// It is done, well or not.
    Done,
    /// It is a folder: its copy is still to be made or found, and its entries to be copied.
    Folder(Box<(Stat, Destination)>),
}

impl<'a> CopyWorker<'a> {
    /// The calling thread.
    pub(crate) fn of(run: &'a CopyRun<'a>) -> Self {
        Self {
            run,
            sigxfsz_guard: SigxfszGuard::thread(),
        }
    }

    /// Copies entries that other workers hand out, until it is dismissed.
    pub(crate) fn work(&self, pool: &WorkerPool) {
        pool.work(&|task| self.copy(task));
    }

    /// Has entries of one folder copied, by any worker.
    pub(crate) fn submit(&self, batch: Batch) {
        match &self.run.pool {
            Some(pool) => pool.submit(batch, &|task| self.copy(task)),
            None => batch.into_iter().for_each(|task| self.copy(task)),
        }
    }

    /// Blocks until all submitted entries are copied, and helps.
    pub(crate) fn drain(&self) {
        if let Some(pool) = &self.run.pool {
            pool.drain(&|task| self.copy(task));
        }
    }

    pub(crate) fn entry<'t>(&'t self, task: &'t Task) -> Entry<'t> {
        Entry {
            run: self.run,
            task,
            sigxfsz_guard: &self.sigxfsz_guard,
        }
    }

    /// Copies an entry that its folder calls no folder.
    fn copy(&self, task: Task) {
        let mut events = self.run.reporter.buffer(task.sequence);
        let entry = self.entry(&task);
        if let EntryProgress::Folder(_) = entry.execute(&mut events) {
            events.problem(Problem::new(ProblemKind::Replaced, entry.source_shown()));
        }
        events.submit();
        self.run.child_done(&task.level);
    }
}

impl Entry<'_> {
    /// Does all that can be done without entering a folder.
    pub(crate) fn execute(&self, events: &mut EventBuffer<'_>) -> EntryProgress {
        if self.run.stopped() {
            return EntryProgress::Done;
        }
        let source = match self.admitted_source() {
            Ok(source) => source,
            Err(problem) => {
                events.problem(problem);
                return EntryProgress::Done;
            }
        };
        let result = match self.make_way(&source, events) {
            Ok(Some(dest)) if is_folder(&source) => {
                return EntryProgress::Folder(Box::new((source, dest)));
            }
            Ok(Some(dest)) => self.create(&source, dest, events),
            Ok(None) => Ok(EntryResult::of(EntryOutcome::Skipped)),
            Err(problem) => Err(problem),
        };
        let result = result.unwrap_or_else(|problem| {
            events.problem(problem);
            EntryResult::of(EntryOutcome::Failed)
        });
        self.finished(&source, result, events);
        EntryProgress::Done
    }

    fn admitted_source(&self) -> Result<Stat, Problem> {
        let source = self.look_at_source()?;
        let is_repeated = self.is_repeated(&source);
        match refuse_source(&source, is_repeated, self.run.options) {
            Some(kind) => Err(self.refusal(kind)),
            None => Ok(source),
        }
    }

    /// Decides what becomes of the destination, and renames or removes it where it has to go.
    /// Returns where the copy goes, if there is to be one.
    fn make_way(
        &self,
        source: &Stat,
        events: &mut EventBuffer<'_>,
    ) -> Result<Option<Destination>, Problem> {
        let (run, task) = (self.run, self.task);
        let facts = self.facts_of_destination(source)?;
        let action = decide(source, facts.as_ref(), run.options, task.role);
        let Some(DestinationFacts { dest, .. }) = facts else {
            return Ok(Some(Destination::New { backup: None }));
        };
        let action = match action {
            Action::Ask(action) if self.confirm_overwrite(&dest) => *action,
            Action::Ask(_) => {
                events.counts.declined += 1;
                return Ok(self.skipped(source, events));
            }
            action => action,
        };
        let is_real = !run.options.dry_run;
        let folder = task.folders.dest.fd();
        let failed = |errno| self.at_dest(ProblemKind::Backup, errno);
        let existing = |replaced| {
            let dest = ExistingDestination { replaced, ..dest };
            Ok(Some(Destination::Existing(Box::new(dest))))
        };
        let new = |backup| Ok(Some(Destination::New { backup }));
        match action {
            Action::Nothing => Ok(None),
            Action::Keep => Ok(self.skipped(source, events)),
            Action::KeepLinked => {
                self.keep_linked(source, &dest.stat)?;
                Ok(self.skipped(source, events))
            }
            Action::Refuse(kind) => Err(self.refusal(kind)),
            Action::Write => existing(Replaced::KeepsAttributes),
            Action::Replace => existing(Replaced::Discarded),
            Action::BackUpAndReplace => {
                let name = backup::name_for(folder, &task.dest, self.backup()).map_err(failed)?;
                existing(Replaced::BackedUp(name))
            }
            Action::BackUp if is_real => match backup::make(folder, &task.dest, self.backup()) {
                Ok(name) => new(Some(name)),
                Err(Errno::NOENT) => new(None),
                Err(errno) => Err(failed(errno)),
            },
            Action::Remove if is_real => {
                self.remove(events)?;
                new(None)
            }
            Action::Create | Action::BackUp | Action::Remove | Action::Ask(_) => new(None),
        }
    }

    fn refusal(&self, kind: ProblemKind) -> Problem {
        let (source, dest) = (self.source_shown(), self.dest_shown());
        match kind {
            ProblemKind::FileTwice => Problem::new(kind, source).warning(),
            ProblemKind::OmittedDirectory => Problem::new(kind, source),
            ProblemKind::SameFile => Problem::new(kind, source).with_other(dest),
            ProblemKind::NotReplacing => Problem::new(kind, dest),
            _ => Problem::new(kind, dest).with_other(source),
        }
    }

    fn confirm_overwrite(&self, dest: &ExistingDestination) -> bool {
        let task = self.task;
        let is_writable =
            is_link(&dest.stat) || special::is_writable(&task.folders.dest, &task.dest);
        self.run
            .reporter
            .observer()
            .confirm_overwrite(&OverwriteQuestion {
                dest: self.dest_shown(),
                unwritable_mode: (!is_writable).then_some(dest.stat.st_mode & 0o7777),
                replaces: self.run.options.remove_existing != RemoveExisting::Never,
            })
    }

    /// Removes what is in the place of the copy.
    pub(crate) fn remove(&self, events: &mut EventBuffer<'_>) -> Result<(), Problem> {
        let task = self.task;
        match unlinkat(task.folders.dest.fd(), &task.dest, AtFlags::empty()) {
            Ok(()) => {
                events.changed(|| Event::Removed(self.dest_shown()));
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.at_dest(ProblemKind::Remove, errno)),
        }
    }

    /// The destination stays; where names of one file stay names of one file, it is one of them.
    fn keep_linked(&self, source: &Stat, dest: &Stat) -> Result<(), Problem> {
        if self.keeps_links_of(source) && !self.run.options.dry_run {
            match self.run.inodes.begin_file(identity(source)) {
                Some(copied) => self.link_to(&copied)?,
                None => {
                    let copied = self.copied_file(dest);
                    self.run.inodes.file_copied(identity(source), copied);
                }
            }
        }
        Ok(())
    }

    /// Creates the copy of something other than a folder.
    fn create(
        &self,
        source: &Stat,
        dest: Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<EntryResult, Problem> {
        let renamed = dest.renamed().map(CStr::to_owned);
        self.say_making(dest.backup(), events);
        if self.run.options.dry_run {
            return Ok(EntryResult::of(EntryOutcome::Planned));
        }
        match self.link_or_make(source, dest, events) {
            Ok(result) => {
                self.note_created();
                self.sync_name(events);
                Ok(result)
            }
            Err(problem) => {
                events.problem(problem);
                self.restore(renamed.as_deref(), events);
                Ok(EntryResult::of(EntryOutcome::Failed))
            }
        }
    }

    fn link_or_make(
        &self,
        source: &Stat,
        dest: Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<EntryResult, Problem> {
        if !self.keeps_links_of(source) {
            return self.make(source, dest, events);
        }
        let inodes = &self.run.inodes;
        if let Some(copied) = inodes.begin_file(identity(source)) {
            self.link_to(&copied)?;
            events.counts.hard_links += 1;
            return Ok(EntryResult::of(EntryOutcome::Linked));
        }
        let made = self.make(source, dest, events);
        let task = self.task;
        match (&made, task.folders.dest.look_at(&task.dest)) {
            (Ok(_), Ok(dest)) => inodes.file_copied(identity(source), self.copied_file(&dest)),
            _ => inodes.file_failed(identity(source)),
        }
        made
    }

    fn make(
        &self,
        source: &Stat,
        dest: Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<EntryResult, Problem> {
        let options = self.run.options;
        let kind = file_type(source);
        match options.copy_mode {
            CopyMode::SymbolicLink => return special::link_to_source(self, source, events),
            CopyMode::HardLink => return special::hard_link(self),
            CopyMode::Copy | CopyMode::AttributesOnly => (),
        }
        match kind {
            FileType::RegularFile => file::copy(self, source, dest, events),
            FileType::Symlink => special::symlink(self, source, &dest, events),
            _ if options.reads_specials() => file::copy(self, source, dest, events),
            FileType::Unknown => Err(Problem::new(ProblemKind::UnknownType, self.source_shown())),
            _ => special::node(self, source, events),
        }
    }

    /// Whether other names of this file may follow that are to become names of its copy.
    fn keeps_links_of(&self, source: &Stat) -> bool {
        let options = self.run.options;
        let may_come_again = source.st_nlink > 1 || self.follows();
        options.preserve.links.is_wanted()
            && options.copy_mode != CopyMode::HardLink
            && may_come_again
    }

    fn copied_file(&self, dest: &Stat) -> CopiedFile {
        CopiedFile {
            level: Arc::clone(&self.task.level),
            folders: Arc::downgrade(&self.task.folders),
            name: self.task.dest.clone(),
            identity: identity(dest),
        }
    }

    /// Makes the destination another name of a file copied before, over what is there.
    fn link_to(&self, copied: &CopiedFile) -> Result<(), Problem> {
        let (dest, name) = (&self.task.folders.dest, &self.task.dest);
        let link_over = || match dest.look_at(name) {
            Ok(there) if identity(&there) == copied.identity => Ok(()),
            Ok(_) => replace(dest.fd(), name, |name| copied.link(dest.fd(), name)),
            Err(errno) => Err(errno),
        };
        let linked = match copied.link(dest.fd(), name) {
            Err(Errno::EXIST) => link_over(),
            linked => linked,
        };
        linked.map_err(|errno| {
            let problem = self.at_dest(ProblemKind::CreateHardLink, errno);
            problem.with_other(copied.shown())
        })
    }

    /// Notes the copy of an operand: another operand must not overwrite it.
    pub(crate) fn note_created(&self) {
        let (folder, name) = (&self.task.folders.dest, &self.task.dest);
        if self.is_operand()
            && self.run.sources == SourceCount::IntoFolder
            && let Ok(stat) = folder.look_at(name)
        {
            let named = NamedFile::new(folder, name, &stat);
            self.run.inodes.note_created(named);
        }
    }

    /// Writes the name of an operand's copy to disk. For other names their folder does it.
    fn sync_name(&self, events: &mut EventBuffer<'_>) {
        if self.is_operand()
            && let Err(errno) = self.run.sync_folder(&self.task.folders.dest)
        {
            events.problem(self.at_dest(ProblemKind::Sync, errno));
        }
    }

    /// Gives the old destination its name back, over what was begun in its place.
    fn restore(&self, backup: Option<&CStr>, events: &mut EventBuffer<'_>) {
        let Some(backup) = backup else { return };
        let folder = self.task.folders.dest.fd();
        match renameat(folder, backup, folder, &self.task.dest) {
            Ok(()) => events.changed(|| Event::Restored {
                backup: self.beside_dest_shown(backup),
                dest: self.dest_shown(),
            }),
            Err(errno) => events.problem(self.at_dest(ProblemKind::Restore, errno)),
        }
    }

    pub(crate) fn say_making(&self, backup: Option<&CStr>, events: &mut EventBuffer<'_>) {
        events.changed(|| Event::Making {
            source: self.source_shown(),
            dest: self.dest_shown(),
            backup: backup.map(|name| self.beside_dest_shown(name)),
        });
    }

    /// Reports that the destination stays: there is to be no copy.
    fn skipped(&self, source: &Stat, events: &mut EventBuffer<'_>) -> Option<Destination> {
        events.counts.skipped += 1;
        self.run.context.progress.passed_over(source);
        events.changed(|| Event::Skipped {
            source: self.source_shown(),
            dest: self.dest_shown(),
        });
        None
    }

    /// Reports what has become of an entry.
    pub(crate) fn finished(
        &self,
        source: &Stat,
        result: EntryResult,
        events: &mut EventBuffer<'_>,
    ) {
        let kind = EntryKind::of(source);
        if result.outcome == EntryOutcome::Copied {
            events.counts.count_copied(kind);
        }
        if !events.wants(EventDetail::Everything) {
            return;
        }
        events.push(Event::Finished(Box::new(Finished {
            source: self.source_shown(),
            dest: self.dest_shown(),
            outcome: result.outcome,
            kind,
            size: match kind {
                EntryKind::File => size(source),
                _ => 0,
            },
            travel: result.travel,
            resumed: result.resumed,
            hash: result.hash,
        })));
    }
}
