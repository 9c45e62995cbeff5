//! The walk through a tree: one thread, a stack of open folders, no path resolved twice.
//!
//! Only the deepest [`CopyRun::folders_max`] folders of the stack stay open. A closed one is
//! reopened from its child by `..`, and must then be the same folder: so a tree may be a hundred
//! thousand levels deep, and a folder that is moved meanwhile does not mislead the walk.

use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{FileType, OFlags, Stat, fstat};
use rustix::io::Errno;

use crate::entry::execute::CopyWorker;
use crate::entry::folder::{FolderCopy, open_source};
use crate::entry::{Destination, Entry};
use crate::fs::folder::{Folder, Identity, Listing, file_type, identity, is_link, joined, plain};
use crate::metadata::Creation;
use crate::report::event::EntryOutcome;
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;
use crate::run::CopyRun;
use crate::tree::inode_table::KnownFolder;
use crate::tree::level::{FolderFinish, FolderPair, Level, Role, Task};
use crate::workers::pool::BATCH_MAX;

/// The number of later names after which an incomplete batch is submitted.
const WAITS_MAX: u64 = 1024;

/// A walk below one operand.
pub(crate) struct TreeWalk<'a> {
    run: &'a CopyRun<'a>,
    worker: &'a CopyWorker<'a>,
    stack: Vec<WalkedFolder>,
    /// Folders of the stack below this one are closed.
    open_from: usize,
    /// The folders on the stack, to detect a loop of symbolic links.
    above: HashSet<Identity>,
    /// Their copies, to detect a folder that is copied into itself.
    filling: HashSet<Identity>,
    device: u64,
    /// This operand has created a folder.
    has_made: bool,
    /// It has been reported that this operand would be copied into itself.
    has_met_itself: bool,
    /// Names of the folder on top that are not submitted yet.
    batch: VecDeque<Task>,
    operand: (OsString, OsString),
}

/// A folder that is being walked.
struct WalkedFolder {
    level: Arc<Level>,
    /// `None` while it is closed.
    folders: Option<Arc<FolderPair>>,
    /// The reason why it could not be reopened.
    lost: Option<Errno>,
    listing: Listing,
    stat: Stat,
    dest: Option<Identity>,
    creation: Creation,
    /// It was reached by a link: it is not the `..` of what is in it.
    is_linked: bool,
}

impl<'a> TreeWalk<'a> {
    /// Starts at an operand that is a folder.
    pub(crate) fn new(worker: &'a CopyWorker<'a>, operand: &Entry<'_>) -> Self {
        Self {
            run: worker.run,
            worker,
            stack: Vec::new(),
            open_from: 0,
            above: HashSet::new(),
            filling: HashSet::new(),
            device: 0,
            has_made: false,
            has_met_itself: false,
            batch: VecDeque::new(),
            operand: (operand.source_shown(), operand.dest_shown()),
        }
    }

    /// Copies the content of all folders that were entered.
    pub(crate) fn walk(&mut self) {
        while !self.stack.is_empty() {
            self.step();
        }
    }

    /// Processes one name of the folder on top, or its end.
    fn step(&mut self) {
        if self.run.stopped() {
            return self.leave();
        }
        let Some(top) = self.stack.last_mut() else {
            return;
        };
        let Some(folders) = top.folders.clone() else {
            // It was closed and can't be reopened.
            let shown = top.level.source();
            self.run.reporter.problem(match top.lost {
                None | Some(Errno::NOENT) => Problem::new(ProblemKind::Moved, shown),
                Some(errno) => Problem::failed(ProblemKind::OpenDirectory, shown, errno),
            });
            return self.leave();
        };
        match top.listing.next(folders.source.fd()) {
            Ok(Some((name, hint))) => self.name(&folders, name, hint),
            Ok(None) => self.leave(),
            Err(errno) => {
                let unread = Problem::failed(ProblemKind::ReadDirectory, top.level.source(), errno);
                self.run.reporter.problem(unread);
                self.leave();
            }
        }
    }

    fn name(&mut self, folders: &Arc<FolderPair>, name: CString, hint: FileType) {
        let Some(top) = self.stack.last() else {
            return;
        };
        let hint = self.certain(folders, &name, hint);
        if !self.admits(&top.level, &name, hint) {
            return;
        }
        top.level.expect_child();
        let task = Task {
            level: Arc::clone(&top.level),
            folders: Arc::clone(folders),
            dest: name.clone(),
            source: name,
            role: Role::Inside,
            sequence: self.run.reporter.sequence(),
        };
        if hint == FileType::Directory || hint == FileType::Unknown {
            let sequence = task.sequence;
            // A possible folder is handled here, since only the walk enters folders.
            let worker = self.worker;
            worker.perform(&task, |entry, source, dest, events| {
                self.enter(entry, source, dest, events);
            });
            // Entries waiting in the batch delay the events of all later names, and then the walk.
            let first = self.batch.front();
            if first.is_some_and(|first| sequence - first.sequence > WAITS_MAX) {
                self.submit();
            }
        } else {
            self.batch.push_back(task);
            if self.batch.len() >= BATCH_MAX || self.run.pool.is_none() {
                self.submit();
            }
        }
    }

    fn submit(&mut self) {
        if !self.batch.is_empty() {
            self.worker.submit(std::mem::take(&mut self.batch));
        }
    }

    /// Returns the type of a name, if its folder doesn't report it or if links are followed.
    fn certain(&self, folders: &FolderPair, name: &CStr, hint: FileType) -> FileType {
        let looked = match (hint, self.run.options.follows(Role::Inside)) {
            (FileType::Symlink | FileType::Unknown, true) => folders.source.look_behind(name),
            (FileType::Unknown, false) => folders.source.look_at(name),
            _ => return hint,
        };
        looked.map_or(hint, |stat| file_type(&stat))
    }

    fn admits(&self, level: &Level, name: &CStr, kind: FileType) -> bool {
        let Some(filter) = &self.run.filter else {
            return true;
        };
        let path = joined(&level.below_operand(), name.to_bytes());
        filter.admits(path.as_bytes(), kind)
    }

    /// Creates or finds a folder's copy, and pushes the folder on the stack.
    pub(crate) fn enter(
        &mut self,
        entry: &Entry<'_>,
        source: &Stat,
        dest: &Destination,
        events: &mut EventBuffer<'_>,
    ) {
        if let Err(problem) = self.try_to_enter(entry, source, dest, events) {
            events.problem(problem);
            self.run.inodes.operands().folders.remove(&identity(source));
            entry.finished(source, EntryOutcome::Failed, events);
        }
    }

    fn try_to_enter(
        &mut self,
        entry: &Entry<'_>,
        source: &Stat,
        dest: &Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<(), Problem> {
        if !self.may_enter(entry, source, events)? {
            return Ok(());
        }
        self.note_operand(entry, source);
        let copy = FolderCopy::make_or_open(entry, source, dest, events)?;
        self.note_made(entry, &copy);
        if entry.task.role == Role::Operand {
            self.device = source.st_dev;
        }
        let done = match self.run.options.dry_run {
            true => EntryOutcome::Planned,
            false => EntryOutcome::Copied,
        };
        if self.run.options.one_file_system && source.st_dev != self.device {
            entry.finished(source, done, events);
            self.close_at_once(entry, source, copy);
            return Ok(());
        }
        let folder = match open_source(entry, source) {
            Ok(folder) => folder,
            Err(problem) if problem.kind == ProblemKind::Replaced => return Err(problem),
            Err(problem) => {
                events.problem(problem);
                self.close_at_once(entry, source, copy);
                return Ok(());
            }
        };
        if matches!(copy.creation, Creation::New { .. }) {
            entry.finished(source, done, events);
        }
        self.submit();
        self.push(entry, source, dest, (folder, copy));
        self.meet_imagined(source, events);
        self.close_one();
        Ok(())
    }

    fn push(
        &mut self,
        entry: &Entry<'_>,
        source: &Stat,
        dest: &Destination,
        (folder, copy): (Folder, FolderCopy),
    ) {
        let dest_identity = match &copy.folder {
            Folder::Imagined => None,
            dest => fstat(dest.fd()).ok().map(|stat| identity(&stat)),
        };
        self.above.insert(identity(source));
        self.filling.extend(dest_identity);
        self.stack.push(WalkedFolder {
            level: entry.task.level.below(&entry.task.source, &entry.task.dest),
            folders: Some(FolderPair::new(folder, copy.folder, copy.creation)),
            lost: None,
            listing: Listing::default(),
            stat: *source,
            dest: dest_identity,
            creation: copy.creation,
            is_linked: is_linked(entry, dest),
        });
    }

    /// Returns whether a folder is entered: not below itself, and not a second time.
    fn may_enter(
        &mut self,
        entry: &Entry<'_>,
        source: &Stat,
        events: &mut EventBuffer<'_>,
    ) -> Result<bool, Problem> {
        if self.filling.contains(&identity(source)) {
            return self.refuse_itself();
        }
        if self.above.contains(&identity(source)) {
            return Err(Problem::new(ProblemKind::Cycle, entry.source_shown()));
        }
        let known = self
            .run
            .inodes
            .operands()
            .folders
            .get(&identity(source))
            .cloned();
        let (folder, name, shown) = match known {
            None => return Ok(true),
            // The copy of this operand, or of another one in the same folder.
            Some(KnownFolder::Made) => return self.refuse_itself(),
            Some(KnownFolder::Source(folder, name, shown)) => (folder, name, shown),
        };
        let here = entry.task.folders.dest.identity();
        if here == Some(folder) && name == entry.task.dest.to_bytes() {
            let there = entry.task.folders.dest.look_behind(&entry.task.dest);
            if there.is_ok_and(|there| identity(&there) == identity(source)) {
                // It was skipped the first time: the copy would be the source itself.
                return self.refuse_itself();
            }
            let (operand, _) = &self.operand;
            events.problem(Problem::new(ProblemKind::DirectoryTwice, operand.clone()).warning());
            return Ok(false);
        }
        if entry.follows() {
            return Ok(true);
        }
        let problem = Problem::new(ProblemKind::HardLinkToDirectory, entry.dest_shown());
        Err(problem.with_other(shown))
    }

    fn note_operand(&self, entry: &Entry<'_>, source: &Stat) {
        if entry.task.role == Role::Operand
            && let Some(folder) = entry.task.folders.dest.identity()
        {
            let name = entry.task.dest.to_bytes().to_vec();
            let known = KnownFolder::Source(folder, name, entry.dest_shown());
            let mut operands = self.run.inodes.operands();
            operands.folders.entry(identity(source)).or_insert(known);
        }
    }

    /// Records a folder that was created, or that a dry run would create. The first one of an
    /// operand is met again if a folder is copied into itself: a real run finds it by its identity,
    /// a dry run by its parent folder and future name.
    fn note_made(&mut self, entry: &Entry<'_>, copy: &FolderCopy) {
        let is_first = !self.has_made;
        match (&copy.folder, copy.creation) {
            (_, Creation::Existing) => return,
            (Folder::Imagined, _) => {
                let above = &entry.task.folders.dest;
                if matches!(above, Folder::Imagined) {
                    return;
                }
                if is_first && let Some(above) = above.identity() {
                    let name = plain(&entry.task.dest);
                    let mut operands = self.run.inodes.operands();
                    operands.imagined.entry(above).or_default().push(name);
                }
            }
            (made, _) => {
                if is_first && let Ok(stat) = fstat(made.fd()) {
                    let mut operands = self.run.inodes.operands();
                    let known = operands.folders.entry(identity(&stat));
                    known.or_insert(KnownFolder::Made);
                }
                entry.note_created();
            }
        }
        self.has_made = true;
    }

    /// Reports what a real run would find in the folder on top, which has just been entered.
    fn meet_imagined(&mut self, source: &Stat, events: &mut EventBuffer<'_>) {
        if !self.run.options.dry_run {
            return;
        }
        let Some(top) = self.stack.last() else {
            return;
        };
        let operands = self.run.inodes.operands();
        let mut names = operands
            .imagined
            .get(&identity(source))
            .into_iter()
            .flatten();
        let is_met = names.any(|name| self.admits(&top.level, name, FileType::Directory));
        drop(operands);
        if is_met && let Err(problem) = self.refuse_itself() {
            events.problem(problem);
        }
    }

    /// Skips a folder that this run has created. The operand gets one message for all of them.
    fn refuse_itself(&mut self) -> Result<bool, Problem> {
        match std::mem::replace(&mut self.has_met_itself, true) {
            true => Ok(false),
            false => Err(self.copied_into_itself()),
        }
    }

    fn copied_into_itself(&self) -> Problem {
        let (source, dest) = &self.operand;
        Problem::new(ProblemKind::IntoItself, source.clone()).with_other(dest.clone())
    }

    /// Closes a folder that is not entered: its copy still gets its metadata.
    fn close_at_once(&self, entry: &Entry<'_>, source: &Stat, copy: FolderCopy) {
        let task = entry.task;
        let opened = Folder::place(task.folders.source.fd(), &task.source, OFlags::NOFOLLOW);
        let source_folder = opened.unwrap_or(Folder::Imagined);
        let folders = FolderPair::new(source_folder, copy.folder, copy.creation);
        let level = task.level.below(&task.source, &task.dest);
        self.close_later(&level, folders, source, copy.creation);
    }

    /// Ends the walk through the folder on top.
    fn leave(&mut self) {
        self.submit();
        let Some(top) = self.stack.pop() else {
            return;
        };
        self.above.remove(&identity(&top.stat));
        if let Some(dest) = top.dest {
            self.filling.remove(&dest);
        }
        let Some(folders) = top.folders else {
            return self.run.child_done(&top.level);
        };
        self.open_parent(&folders);
        self.close_later(&top.level, folders, &top.stat, top.creation);
    }

    fn close_later(
        &self,
        level: &Arc<Level>,
        folders: Arc<FolderPair>,
        source: &Stat,
        creation: Creation,
    ) {
        let run = self.run;
        level.close_with(FolderFinish {
            folders,
            stat: *source,
            creation,
            sequence: run.reporter.sequence(),
        });
        run.unclosed.fetch_add(1, Relaxed);
        run.child_done(level);
        if run.unclosed.load(Relaxed) > run.folders_max {
            self.worker.drain();
        }
    }

    /// Closes the outermost open folder if too many are open.
    fn close_one(&mut self) {
        if self.stack.len() - self.open_from <= self.run.folders_max {
            return;
        }
        // One entered by a link can't be found again from its child, and stays open.
        if self.stack[self.open_from + 1].is_linked {
            self.open_from += 1;
            return;
        }
        let outermost = &mut self.stack[self.open_from];
        let Some(folders) = outermost.folders.take() else {
            return;
        };
        self.open_from += 1;
        if let Err(errno) = outermost.listing.read_all(folders.source.fd()) {
            let shown = outermost.level.source();
            let problem = Problem::failed(ProblemKind::ReadDirectory, shown, errno);
            self.run.reporter.problem(problem);
        }
    }

    /// Reopens the folder above the one just left, if it was closed.
    fn open_parent(&mut self, child: &FolderPair) {
        let Some(parent) = self.stack.last_mut() else {
            return;
        };
        if parent.folders.is_some() {
            return;
        }
        let source = child.source.parent(identity(&parent.stat));
        let dest = match (&child.dest, parent.dest) {
            (Folder::Imagined, _) | (_, None) => Ok(Folder::Imagined),
            (dest, Some(identity)) => dest.parent(identity),
        };
        match source.and_then(|source| Ok((source, dest?))) {
            Ok((source, dest)) => {
                parent.folders = Some(FolderPair::new(source, dest, parent.creation));
            }
            Err(errno) => parent.lost = Some(errno),
        }
        self.open_from = self.open_from.min(self.stack.len() - 1);
    }
}

/// Returns whether a symbolic link led to a folder or its copy: its `..` is only the folder that
/// contains its name.
fn is_linked(entry: &Entry<'_>, dest: &Destination) -> bool {
    let task = entry.task;
    let source = || task.folders.source.look_at(&task.source);
    matches!(dest, Destination::Existing(there) if there.link.is_some())
        || (entry.follows() && source().is_ok_and(|name| is_link(&name)))
}
