//! Copies one entry: queries, decides, removes obstacles, creates the copy, and reports.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Access, AtFlags, FileType, Stat, accessat, renameat, unlinkat};
use rustix::io::Errno;
use underpass::drive::blocking::SigxfszGuard;

use crate::entry::decide::{Action, decide, refuse_source};
use crate::entry::{
    Destination, DestinationFacts, Entry, ExistingDestination, Replaced, destination, file, special,
};
use crate::fs::atomic_file::replace;
use crate::fs::backup;
use crate::fs::folder::{file_type, identity, is_folder, is_link, is_regular, size};
use crate::options::{CopyMode, RemoveExisting};
use crate::report::event::{
    EntryKind, EntryOutcome, Event, EventDetail, Finished, OverwriteQuestion,
};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::{ContentReport, EventBuffer};
use crate::run::{CopyRun, SourceCount};
use crate::tree::inode_table::{CopiedFile, NamedFile};
use crate::tree::level::Task;
use crate::workers::pool::{Batch, WorkerPool};

/// One of the copying threads.
pub(crate) struct CopyWorker<'a> {
    pub(crate) run: &'a CopyRun<'a>,
    sigxfsz_guard: SigxfszGuard,
}

impl<'a> CopyWorker<'a> {
    /// Returns a worker for the calling thread.
    pub(crate) fn of(run: &'a CopyRun<'a>) -> Self {
        Self {
            run,
            sigxfsz_guard: SigxfszGuard::thread(),
        }
    }

    /// Copies entries submitted by other workers, until it is dismissed.
    pub(crate) fn work(&self, pool: &WorkerPool) {
        pool.work(&|task| self.copy(&task));
    }

    /// Submits entries of one folder, to be copied by any worker.
    pub(crate) fn submit(&self, batch: Batch) {
        match &self.run.pool {
            Some(pool) => pool.submit(batch, &|task| self.copy(&task)),
            None => batch.into_iter().for_each(|task| self.copy(&task)),
        }
    }

    /// Copies until all submitted entries are done; blocks for those of other workers.
    pub(crate) fn drain(&self) {
        if let Some(pool) = &self.run.pool {
            pool.drain(&|task| self.copy(&task));
        }
    }

    pub(crate) fn entry<'t>(&'t self, task: &'t Task) -> Entry<'t> {
        Entry {
            run: self.run,
            task,
            sigxfsz_guard: &self.sigxfsz_guard,
        }
    }

    /// Copies an entry that its folder reports as not a folder.
    fn copy(&self, task: &Task) {
        self.perform(task, |entry, _, _, events| {
            events.problem(Problem::new(ProblemKind::Replaced, entry.source_shown()));
        });
    }

    /// Copies an entry; calls `enter` for a folder, which must make or find its copy and copy its
    /// entries.
    pub(crate) fn perform(
        &self,
        task: &Task,
        enter: impl FnOnce(&Entry<'_>, &Stat, &Destination, &mut EventBuffer<'_>),
    ) {
        let mut events = self.run.reporter.buffer(task.sequence);
        let entry = self.entry(task);
        if let Some((source, dest)) = entry.execute(&mut events) {
            enter(&entry, &source, &dest, &mut events);
        }
        events.submit();
        self.run.child_done(&task.level);
    }
}

/// The previous state of a link's name.
#[derive(Clone, Copy, PartialEq)]
enum LinkPlace {
    /// No file, or the same link.
    Free,
    /// Another file, which the link has replaced.
    Taken,
}

impl Entry<'_> {
    /// Does everything that is possible without entering a folder, and returns the folder to enter,
    /// if it is one, and its destination.
    fn execute(&self, events: &mut EventBuffer<'_>) -> Option<(Stat, Destination)> {
        if self.run.stopped() {
            return None;
        }
        let source = match self.admitted_source() {
            Ok(source) => source,
            Err(problem) => {
                events.problem(problem);
                return None;
            }
        };
        let result = match self.make_way(&source, events) {
            Ok(Some(dest)) if is_folder(&source) => return Some((source, dest)),
            Ok(Some(dest)) => self.create(&source, dest, events),
            Ok(None) => Ok(EntryOutcome::Skipped),
            Err(problem) => Err(problem),
        };
        let outcome = result.unwrap_or_else(|problem| {
            events.problem(problem);
            EntryOutcome::Failed
        });
        self.finished(&source, outcome, events);
        None
    }

    fn admitted_source(&self) -> Result<Stat, Problem> {
        let source = self.look_at_source()?;
        let is_repeated = self.is_repeated(&source);
        match refuse_source(&source, is_repeated, self.run.options) {
            Some(kind) => Err(self.refusal(kind)),
            None => Ok(source),
        }
    }

    /// Decides the action for the destination, and renames or removes it if necessary. Returns the
    /// destination of the copy, if one is to be made.
    fn make_way(
        &self,
        source: &Stat,
        events: &mut EventBuffer<'_>,
    ) -> Result<Option<Destination>, Problem> {
        let (run, task) = (self.run, self.task);
        let new = |backup| Ok(Some(Destination::New { backup }));
        let Some(facts) = self.facts_of_destination(source)? else {
            return new(None);
        };
        let action = decide(source, &facts, run.options, task.role);
        let DestinationFacts { dest, .. } = facts;
        let action = match action {
            Action::Ask(action) if self.confirm_overwrite(&dest) => *action,
            Action::Ask(_) => {
                events.counts.declined += 1;
                return Ok(self.skipped(events));
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
        match action {
            Action::Nothing => Ok(None),
            Action::Keep => Ok(self.skipped(events)),
            Action::KeepLinked => {
                self.keep_linked(source)?;
                Ok(self.skipped(events))
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
            Action::Remove if self.may_be_kept(source, &dest.stat) => {
                existing(Replaced::KeepsAttributes)
            }
            Action::Remove if is_real => {
                self.remove(events)?;
                new(None)
            }
            Action::BackUp | Action::Remove | Action::Ask(_) => new(None),
        }
    }

    /// Whether an existing file stays with all its names if its content is that of the source
    /// (`--resume`): where these may be the names of the source, and no other file has them.
    fn may_be_kept(&self, source: &Stat, dest: &Stat) -> bool {
        let options = self.run.options;
        options.resume
            && !options.removes_first()
            && is_regular(source)
            && is_regular(dest)
            && dest.st_nlink <= source.st_nlink
            && self.run.inodes.claim(identity(dest), identity(source))
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
        let (task, folder) = (self.task, self.task.folders.dest.fd());
        // As access(2) decides for the effective user.
        let access = || accessat(folder, &task.dest, Access::WRITE_OK, AtFlags::EACCESS);
        let is_writable = is_link(&dest.stat) || access().is_ok();
        let question = OverwriteQuestion {
            dest: self.dest_shown(),
            unwritable_mode: (!is_writable).then_some(dest.stat.st_mode & 0o7777),
            replaces: self.run.options.remove_existing != RemoveExisting::Never,
        };
        self.run.context.observer.confirm_overwrite(&question)
    }

    /// Removes the existing destination.
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

    /// Keeps the destination; if hard links are preserved, records it as a name of the file: the
    /// name itself, which may be a symbolic link to the compared file.
    fn keep_linked(&self, source: &Stat) -> Result<(), Problem> {
        if !self.keeps_links_of(source) || self.run.options.dry_run {
            return Ok(());
        }
        let inodes = &self.run.inodes;
        if let Some(copied) = inodes.begin_file(identity(source)) {
            return self.link_to(&copied).map(drop);
        }
        let task = self.task;
        match task.folders.dest.look_at(&task.dest) {
            Ok(dest) => {
                inodes.file_copied(identity(source), self.copied_file(&dest));
                Ok(())
            }
            Err(errno) => {
                inodes.file_failed(identity(source));
                Err(self.at_dest(ProblemKind::StatDestination, errno))
            }
        }
    }

    /// Creates the copy of a file that is not a folder.
    fn create(
        &self,
        source: &Stat,
        dest: Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<EntryOutcome, Problem> {
        let renamed = dest.renamed().map(CStr::to_owned);
        self.say_making(dest.backup(), events);
        if self.run.options.dry_run {
            let copies_content = match file_type(source) {
                FileType::RegularFile => true,
                FileType::Symlink => false,
                _ => self.run.options.reads_specials(),
            };
            if copies_content && self.run.options.copy_mode == CopyMode::Copy {
                destination::foresee(self, &dest)?;
            }
            return Ok(EntryOutcome::Planned);
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
                Ok(EntryOutcome::Failed)
            }
        }
    }

    fn link_or_make(
        &self,
        source: &Stat,
        dest: Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<EntryOutcome, Problem> {
        if !self.keeps_links_of(source) {
            return self.make(source, dest, events);
        }
        let inodes = &self.run.inodes;
        if let Some(copied) = inodes.begin_file(identity(source)) {
            if self.link_to(&copied)? == LinkPlace::Taken {
                events.changed(|| Event::Removed(self.dest_shown()));
            }
            events.counts.hard_links += 1;
            return Ok(EntryOutcome::Linked);
        }
        let made = self.make(source, dest, events);
        let task = self.task;
        match (&made, task.folders.dest.look_at(&task.dest)) {
            (Ok(_), Ok(dest)) => inodes.file_copied(identity(source), self.copied_file(&dest)),
            (Ok(_), Err(errno)) => {
                // The other names of the source become names of another copy.
                inodes.file_failed(identity(source));
                events.problem(self.at_dest(ProblemKind::StatDestination, errno));
            }
            (Err(_), _) => inodes.file_failed(identity(source)),
        }
        made
    }

    fn make(
        &self,
        source: &Stat,
        dest: Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<EntryOutcome, Problem> {
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

    /// Returns whether other names of this file may follow that become names of its copy.
    fn keeps_links_of(&self, source: &Stat) -> bool {
        self.run.options.keeps_links_of(source, self.task.role)
    }

    /// The bytes of a file in the progress: those of several names of one file count once.
    pub(crate) fn bytes_to_count(&self, source: &Stat) -> u64 {
        match self.keeps_links_of(source) && !self.run.inodes.count(identity(source)) {
            true => 0,
            false => self.run.options.bytes_to_move(source),
        }
    }

    fn copied_file(&self, dest: &Stat) -> CopiedFile {
        CopiedFile {
            level: Arc::clone(&self.task.level),
            folders: Arc::downgrade(&self.task.folders),
            name: self.task.dest.clone(),
            identity: identity(dest),
        }
    }

    /// Makes the destination another name of a file copied before, replacing the existing one.
    fn link_to(&self, copied: &CopiedFile) -> Result<LinkPlace, Problem> {
        let (dest, name) = (&self.task.folders.dest, &self.task.dest);
        let link_over = || match dest.look_at(name) {
            Ok(there) if identity(&there) == copied.identity => Ok(LinkPlace::Free),
            Ok(_) => {
                let linked = replace(dest.fd(), name, |name| copied.link(dest.fd(), name));
                linked.map(|()| LinkPlace::Taken)
            }
            Err(errno) => Err(errno),
        };
        let linked = match copied.link(dest.fd(), name) {
            Err(Errno::EXIST) => link_over(),
            linked => linked.map(|()| LinkPlace::Free),
        };
        linked.map_err(|errno| {
            let problem = self.at_dest(ProblemKind::CreateHardLink, errno);
            problem.with_other(copied.shown())
        })
    }

    /// Records the copy of an operand: another operand must not overwrite it.
    pub(crate) fn note_created(&self) {
        let (folder, name) = (&self.task.folders.dest, &self.task.dest);
        if self.is_operand()
            && self.run.sources == SourceCount::IntoFolder
            && let Ok(stat) = folder.look_at(name)
        {
            let named = NamedFile::new(folder, name, &stat);
            self.run.inodes.operands().created.insert(named);
        }
    }

    /// Syncs the name of an operand's copy to disk. Other names are synced by their folder.
    fn sync_name(&self, events: &mut EventBuffer<'_>) {
        if self.is_operand()
            && let Err(errno) = self
                .run
                .sync_folder(&self.task.folders.dest, || self.dest_shown())
        {
            events.problem(self.at_dest(ProblemKind::Sync, errno));
        }
    }

    /// Restores the name of the old destination, replacing the incomplete copy.
    pub(crate) fn restore(&self, backup: Option<&CStr>, events: &mut EventBuffer<'_>) {
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

    /// Reports that the destination stays: no copy is made.
    fn skipped(&self, events: &mut EventBuffer<'_>) -> Option<Destination> {
        events.counts.skipped += 1;
        events.changed(|| Event::Skipped {
            source: self.source_shown(),
            dest: self.dest_shown(),
        });
        None
    }

    /// Reports the outcome of an entry.
    pub(crate) fn finished(
        &self,
        source: &Stat,
        outcome: EntryOutcome,
        events: &mut EventBuffer<'_>,
    ) {
        let progress = self.run.context.progress;
        if outcome == EntryOutcome::Copied {
            events.counts.count_copied(source);
        }
        if is_regular(source) && outcome != EntryOutcome::Failed {
            progress.files_done.fetch_add(1, Relaxed);
            let bytes = match outcome {
                EntryOutcome::Skipped | EntryOutcome::Planned => self.bytes_to_count(source),
                _ => 0,
            };
            progress.advanced(bytes);
            if outcome == EntryOutcome::Skipped {
                events.counts.skipped_bytes += bytes;
            }
        }
        if !events.wants(EventDetail::Everything) {
            return;
        }
        let kind = EntryKind::of(source);
        let content = match outcome {
            EntryOutcome::Failed => ContentReport::default(),
            _ => std::mem::take(&mut events.content),
        };
        events.push(Event::Finished(Box::new(Finished {
            source: self.source_shown(),
            dest: self.dest_shown(),
            outcome,
            kind,
            size: match kind {
                EntryKind::File => size(source),
                _ => 0,
            },
            travel: content.travel,
            resumed: content.resumed,
            hash: content.hash,
        })));
    }
}
