//! The walk through what is copied: one thread, a stack of open folders, no path resolved twice.
//!
//! Only the deepest [`OPEN_MAX`] folders of the stack stay open. One that was closed is opened
//! again from its child by `..`, and must then be the folder that it was: so a tree may be a
//! hundred thousand levels deep, and who moves a folder meanwhile leads the walk nowhere.

mod imagined;

use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, chmod, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::entry::decide::file_type;
use crate::entry::execute::{Begun, Entry, Hand, Made, Way};
use crate::fs::listing::Listing;
use crate::metadata;
use crate::options::{Borders, Effect};
use crate::report::event::{EntryKind, Outcome};
use crate::report::problem::{Problem, What};
use crate::report::reporter::Voice;
use crate::run::{Role, Run, Task};
use crate::tree::inode_table::MetFolder;
use crate::tree::level::{
    Closing, Folder, Folders, Identity, Level, Surroundings, append, identity,
};
use crate::workers::pool::BATCH_MAX;

/// Folders of the stack that stay open, two descriptors each.
const OPEN_MAX: usize = 64;

/// Folders whose walk is over and that wait for what is in them, two descriptors each.
const UNCLOSED_MAX: usize = 64;

/// Names that may come after one that waits for its batch to be full.
const WAITS_MAX: u64 = 1024;

/// A walk below one operand.
pub(crate) struct Walk<'a> {
    run: &'a Run<'a>,
    hand: &'a Hand<'a>,
    stack: Vec<Frame>,
    /// Frames below this one are closed.
    open_from: usize,
    /// The folders on the stack, to tell a loop of symbolic links.
    above: HashSet<Identity>,
    /// Their copies, to tell a folder that is copied into itself.
    filling: HashSet<Identity>,
    device: u64,
    first_made: FirstMade,
    /// Names of the folder on top that nobody has got yet.
    batch: VecDeque<Task>,
    top: (std::ffi::OsString, std::ffi::OsString),
}

/// Whether this operand has made a folder yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstMade {
    No,
    Yes,
}

/// A folder that is being walked.
struct Frame {
    level: Arc<Level>,
    folders: Option<Arc<Folders>>,
    listing: Listing,
    stat: Stat,
    dest: Option<Identity>,
    made: metadata::Made,
    narrowed: Option<u32>,
    surroundings: Surroundings,
    reached: Reached,
}

/// How a folder was reached: only what is a name in its parent has it as its `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    ByName,
    ByLink,
}

impl<'a> Walk<'a> {
    /// Copies an operand, and all that is below it. The stack is empty afterwards.
    pub(crate) fn operand(hand: &'a Hand<'a>, task: Task) {
        let mut walk = Self {
            run: hand.run,
            hand,
            stack: Vec::new(),
            open_from: 0,
            above: HashSet::new(),
            filling: HashSet::new(),
            device: 0,
            first_made: FirstMade::No,
            batch: VecDeque::new(),
            top: Default::default(),
        };
        let entry = hand.entry(&task);
        walk.top = (entry.source_shown(), entry.dest_shown());
        walk.folder_or_not(task);
        while !walk.stack.is_empty() {
            walk.step();
        }
    }

    /// One name of the folder on top, or its end.
    fn step(&mut self) {
        if self.run.stopped() {
            return self.leave();
        }
        let Some(frame) = self.stack.last_mut() else {
            return;
        };
        let Some(folders) = frame.folders.clone() else {
            return self.reopen();
        };
        match frame.listing.next(folders.source.fd()) {
            Ok(Some((name, hint))) => self.name(&folders, name, hint),
            Ok(None) => self.leave(),
            Err(errno) => {
                let shown = frame.level.source();
                self.tell(Problem::of(What::ReadDirectory, shown, errno));
                self.leave();
            }
        }
    }

    fn name(&mut self, folders: &Arc<Folders>, name: CString, hint: FileType) {
        let Some(frame) = self.stack.last() else {
            return;
        };
        let hint = self.certain(folders, &name, hint);
        if !self.admits(&frame.level, &name, hint) {
            return;
        }
        frame.level.expect_child();
        let task = Task {
            level: Arc::clone(&frame.level),
            folders: Arc::clone(folders),
            dest: name.clone(),
            source: name,
            role: Role::Inside,
            ticket: self.run.ledger.ticket(),
        };
        if hint == FileType::Directory || hint == FileType::Unknown {
            let turn = task.ticket;
            self.folder_or_not(task);
            // What waits here keeps all later names from being told of, and the walk from going on.
            if self
                .batch
                .front()
                .is_some_and(|first| turn - first.ticket > WAITS_MAX)
            {
                self.hand_out();
            }
        } else {
            self.batch.push_back(task);
            if self.batch.len() >= BATCH_MAX || !self.run.crew.has_others() {
                self.hand_out();
            }
        }
    }

    fn hand_out(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.run.crew.submit(batch, &|task| self.hand.perform(task));
        }
    }

    /// What a name is, where its folder doesn't say or where links are followed.
    fn certain(&self, folders: &Folders, name: &CStr, hint: FileType) -> FileType {
        let follows = self.run.follows(Role::Inside);
        let flags = match (hint, follows) {
            (FileType::Symlink | FileType::Unknown, true) => AtFlags::empty(),
            (FileType::Unknown, false) => AtFlags::SYMLINK_NOFOLLOW,
            _ => return hint,
        };
        statat(folders.source.fd(), name, flags).map_or(hint, |stat| file_type(&stat))
    }

    fn admits(&self, level: &Level, name: &CStr, hint: FileType) -> bool {
        let Some(filter) = &self.run.filter else {
            return true;
        };
        let mut path = level.below_operand();
        append(&mut path, name.to_bytes());
        let kind = match hint {
            FileType::Directory => EntryKind::Directory,
            _ => EntryKind::File,
        };
        filter.admits(&path, kind)
    }

    /// Something that may be a folder: looked at here, since only the walk enters folders.
    fn folder_or_not(&mut self, task: Task) {
        let (run, hand) = (self.run, self.hand);
        let mut voice = run.ledger.voice(task.ticket);
        let entry = hand.entry(&task);
        if let Begun::Folder(folder) = entry.begin(&mut voice) {
            let (source, way) = *folder;
            if let Err(problem) = self.enter(&entry, &source, &way, &mut voice) {
                voice.problem(*problem);
                run.seen.forget_folder(identity(&source));
                entry.finished(&source, Outcome::Failed, Made::default(), &mut voice);
            }
        }
        voice.settle();
        run.child_done(&task.level);
    }

    /// Makes or finds a folder's copy, and puts the folder on the stack.
    fn enter(
        &mut self,
        entry: &Entry<'_>,
        source: &Stat,
        way: &Way,
        voice: &mut Voice<'_>,
    ) -> Result<(), Box<Problem>> {
        if !self.may_enter(entry, source, voice)? {
            return Ok(());
        }
        let (dest, made, surroundings) = self.destination(entry, source, way, voice)?;
        let (dest, narrowed) = match made {
            metadata::Made::New(_) => fillable(entry, dest)?,
            metadata::Made::Before => (dest, None),
        };
        if entry.task.role == Role::Operand {
            self.device = source.st_dev;
        }
        let device_kept = self.run.options.borders == Borders::Kept && source.st_dev != self.device;
        let done = match surroundings {
            Surroundings::Imagined => Outcome::Planned,
            _ => Outcome::Copied,
        };
        if device_kept {
            entry.finished(source, done, Made::default(), voice);
            self.close_at_once(entry, source, dest, made);
            return Ok(());
        }
        let folder = match self.open_source(entry, source) {
            Ok(folder) => folder,
            Err(problem) if problem.what == What::Replaced => return Err(problem),
            Err(problem) => {
                voice.problem(*problem);
                self.close_at_once(entry, source, dest, made);
                return Ok(());
            }
        };
        let dest_identity = match &dest {
            Folder::Imagined => None,
            dest => fstat(dest.fd()).ok().map(|stat| identity(&stat)),
        };
        if matches!(made, metadata::Made::New(_)) {
            entry.finished(source, done, Made::default(), voice);
        }
        self.hand_out();
        self.above.insert(identity(source));
        self.filling.extend(dest_identity);
        self.stack.push(Frame {
            level: entry.task.level.below(&entry.task.source, &entry.task.dest),
            folders: Some(Arc::new(Folders {
                source: Folder::Open(folder),
                dest,
                surroundings,
            })),
            listing: Listing::default(),
            stat: *source,
            dest: dest_identity,
            made,
            narrowed,
            surroundings,
            reached: self.reached(entry, way),
        });
        self.meet_imagined(source, voice);
        self.close_one();
        Ok(())
    }

    /// Opens a folder that is what was seen.
    fn open_source(&self, entry: &Entry<'_>, seen: &Stat) -> Result<OwnedFd, Box<Problem>> {
        let task = entry.task;
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if !self.run.follows(task.role) {
            flags |= OFlags::NOFOLLOW;
        }
        let failed = |errno| Problem::of(What::OpenDirectory, entry.source_shown(), errno);
        let folder = task.folders.source.fd();
        let opened = openat(folder, &task.source, flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&opened).map_err(failed)?;
        if identity(&stat) == identity(seen) {
            Ok(opened)
        } else {
            Err(Box::new(Problem::said(
                What::Replaced,
                entry.source_shown(),
            )))
        }
    }

    /// Whether a folder is entered: not below itself, and not a second time.
    fn may_enter(
        &self,
        entry: &Entry<'_>,
        source: &Stat,
        voice: &mut Voice<'_>,
    ) -> Result<bool, Box<Problem>> {
        if self.filling.contains(&identity(source)) {
            return Err(Box::new(self.met_itself()));
        }
        if self.above.contains(&identity(source)) {
            let problem = Problem::said(What::Cycle, entry.source_shown());
            return Err(Box::new(problem));
        }
        match entry.met(source) {
            None => Ok(true),
            Some(MetFolder::Made) => Err(Box::new(self.met_itself())),
            Some(MetFolder::Copied(folder, name)) => {
                let here = statat(entry.task.folders.dest.fd(), c".", AtFlags::empty());
                let again = here.is_ok_and(|here| identity(&here) == folder)
                    && name == entry.task.dest.to_bytes();
                if again {
                    let (top_source, _) = &self.top;
                    let twice = Problem::said(What::DirectoryTwice, top_source.clone());
                    voice.problem(twice.warning());
                    return Ok(false);
                }
                if self.run.follows(entry.task.role) {
                    return Ok(true);
                }
                let problem = Problem::said(What::HardLinkToDirectory, entry.dest_shown());
                Err(Box::new(problem.and(entry.source_shown())))
            }
        }
    }

    fn destination(
        &mut self,
        entry: &Entry<'_>,
        source: &Stat,
        way: &Way,
        voice: &mut Voice<'_>,
    ) -> Result<(Folder, metadata::Made, Surroundings), Box<Problem>> {
        if entry.task.role == Role::Operand
            && let Ok(folder) = statat(entry.task.folders.dest.fd(), c".", AtFlags::empty())
        {
            let name = entry.task.dest.to_bytes().to_vec();
            let met = MetFolder::Copied(identity(&folder), name);
            self.run.seen.met_folder(identity(source), met);
        }
        let Way::New { backup } = way else {
            let dest = open_dest(entry, way)?;
            return Ok((dest, metadata::Made::Before, Surroundings::Old));
        };
        if self.run.options.effect == Effect::ToldOnly {
            entry.say_making(backup.as_deref(), voice);
            self.imagine(entry);
            let made = metadata::Made::New(0o700);
            return Ok((Folder::Imagined, made, Surroundings::Imagined));
        }
        let wishes = &self.run.options.preserve;
        let mode = metadata::mode_at_first(source, wishes, &self.run.process) | 0o700;
        let folder = entry.task.folders.dest.fd();
        mkdirat(folder, &entry.task.dest, Mode::from_raw_mode(mode))
            .map_err(|errno| Problem::of(What::CreateDirectory, entry.dest_shown(), errno))?;
        entry.say_making(backup.as_deref(), voice);
        let dest = open_dest(entry, way)?;
        if self.first_made == FirstMade::No {
            if let Ok(stat) = fstat(dest.fd()) {
                self.run.seen.met_folder(identity(&stat), MetFolder::Made);
            }
            self.first_made = FirstMade::Yes;
        }
        entry.note_made();
        Ok((dest, metadata::Made::New(mode), Surroundings::Fresh))
    }

    fn met_itself(&self) -> Problem {
        let (source, dest) = &self.top;
        Problem::said(What::IntoItself, source.clone()).and(dest.clone())
    }

    fn reached(&self, entry: &Entry<'_>, way: &Way) -> Reached {
        let dest_link = matches!(way, Way::Into(there) if there.link.is_some());
        let task = entry.task;
        let source_link = || {
            let (folder, flags) = (task.folders.source.fd(), AtFlags::SYMLINK_NOFOLLOW);
            statat(folder, &task.source, flags)
                .is_ok_and(|name| file_type(&name) == FileType::Symlink)
        };
        if dest_link || (self.run.follows(task.role) && source_link()) {
            Reached::ByLink
        } else {
            Reached::ByName
        }
    }

    /// A folder that can't be read has its copy all the same, which gets its metadata.
    fn close_at_once(&self, entry: &Entry<'_>, source: &Stat, dest: Folder, made: metadata::Made) {
        let level = entry.task.level.below(&entry.task.source, &entry.task.dest);
        let surroundings = match dest {
            Folder::Imagined => Surroundings::Imagined,
            _ => Surroundings::Old,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (folder, name) = (entry.task.folders.source.fd(), &entry.task.source);
        let source_folder = openat(folder, name, flags, Mode::empty());
        let folders = Arc::new(Folders {
            source: source_folder.map_or(Folder::Imagined, Folder::Place),
            dest,
            surroundings,
        });
        self.close_later(&level, folders, source, (made, None));
    }

    /// The walk through the folder on top is over.
    fn leave(&mut self) {
        self.hand_out();
        let Some(frame) = self.stack.pop() else {
            return;
        };
        self.above.remove(&identity(&frame.stat));
        if let Some(dest) = frame.dest {
            self.filling.remove(&dest);
        }
        let Some(folders) = frame.folders else {
            return self.run.child_done(&frame.level);
        };
        self.parent_again(&folders);
        self.close_later(
            &frame.level,
            folders,
            &frame.stat,
            (frame.made, frame.narrowed),
        );
    }

    fn close_later(
        &self,
        level: &Arc<Level>,
        folders: Arc<Folders>,
        source: &Stat,
        (made, narrowed): (metadata::Made, Option<u32>),
    ) {
        let run = self.run;
        level.close_with(Closing {
            folders,
            stat: *source,
            made,
            narrowed,
            ticket: run.ledger.ticket(),
        });
        run.unclosed.fetch_add(1, Relaxed);
        run.child_done(level);
        if run.unclosed.load(Relaxed) > UNCLOSED_MAX {
            run.crew.drain(&|task| self.hand.perform(task));
        }
    }

    /// Closes the outermost open folder where too many are open.
    fn close_one(&mut self) {
        if self.stack.len() - self.open_from <= OPEN_MAX {
            return;
        }
        // One that was entered by a link can't be found again from its child, and stays open.
        let child = &self.stack[self.open_from + 1];
        if child.reached == Reached::ByLink {
            self.open_from += 1;
            return;
        }
        let frame = &mut self.stack[self.open_from];
        let Some(folders) = frame.folders.take() else {
            return;
        };
        self.open_from += 1;
        if let Err(errno) = frame.listing.read_all(folders.source.fd()) {
            let shown = frame.level.source();
            self.tell(Problem::of(What::ReadDirectory, shown, errno));
        }
    }

    /// Opens the folder above the one that was left, if it was closed.
    fn parent_again(&mut self, child: &Folders) {
        let Some(frame) = self.stack.last_mut() else {
            return;
        };
        if frame.folders.is_some() {
            return;
        }
        let source = parent_of(&child.source, identity(&frame.stat));
        let dest = match (&child.dest, frame.dest) {
            (Folder::Imagined, _) | (_, None) => Ok(Folder::Imagined),
            (dest, Some(identity)) => parent_of(dest, identity),
        };
        if let (Ok(source), Ok(dest)) = (source, dest) {
            frame.folders = Some(Arc::new(Folders {
                source,
                dest,
                surroundings: frame.surroundings,
            }));
        }
        self.open_from = self.open_from.min(self.stack.len() - 1);
    }

    /// The folder on top is closed and can't be found again: it was moved.
    fn reopen(&mut self) {
        if let Some(frame) = self.stack.last() {
            let shown = frame.level.source();
            self.tell(Problem::said(What::Moved, shown));
        }
        self.leave();
    }

    fn tell(&self, problem: Problem) {
        let mut voice = self.run.ledger.voice(self.run.ledger.ticket());
        voice.problem(problem);
        voice.settle();
    }
}

/// `..` of an open folder, if it is the folder it should be.
fn parent_of(folder: &Folder, parent: Identity) -> Result<Folder, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open_folder(folder.fd(), c"..", flags)?;
    if identity(&fstat(opened.fd())?) == parent {
        Ok(opened)
    } else {
        Err(Errno::NOENT)
    }
}

/// Opens the copy of a folder: what was seen there, or what was just made.
fn open_dest(entry: &Entry<'_>, way: &Way) -> Result<Folder, Box<Problem>> {
    let task = entry.task;
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let seen = match way {
        Way::Into(there) => Some(there),
        Way::New { .. } => None,
    };
    if seen.is_none_or(|there| there.link.is_none()) {
        flags |= OFlags::NOFOLLOW;
    }
    let failed = |errno| {
        Box::new(Problem::of(
            What::CreateDirectory,
            entry.dest_shown(),
            errno,
        ))
    };
    let folder = open_folder(task.folders.dest.fd(), &task.dest, flags).map_err(failed)?;
    let stat = fstat(folder.fd()).map_err(failed)?;
    if seen.is_some_and(|there| identity(&there.stat) != identity(&stat)) {
        return Err(Box::new(Problem::said(What::Replaced, entry.dest_shown())));
    }
    Ok(folder)
}

/// A folder that was just made is widened where it can't be filled: an access control list of its
/// parent may have narrowed it. Answers what it had.
fn fillable(entry: &Entry<'_>, folder: Folder) -> Result<(Folder, Option<u32>), Box<Problem>> {
    if matches!(folder, Folder::Imagined) {
        return Ok((folder, None));
    }
    let failed = |errno| Box::new(Problem::of(What::Mode, entry.dest_shown(), errno));
    let mode = fstat(folder.fd()).map_err(failed)?.st_mode & 0o7777;
    if mode & 0o700 == 0o700 {
        return Ok((folder, None));
    }
    let itself = format!("/proc/self/fd/{}", folder.fd().as_raw_fd());
    chmod(itself, Mode::from_raw_mode(mode | 0o700)).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let again = open_folder(folder.fd(), c".", flags).map_err(failed)?;
    Ok((again, Some(mode)))
}

/// Opens a folder for reading, or as a place where that isn't allowed.
fn open_folder(folder: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<Folder, Errno> {
    match openat(folder, name, flags, Mode::empty()) {
        Ok(fd) => Ok(Folder::Open(fd)),
        Err(Errno::ACCESS) => {
            let fd = openat(folder.as_fd(), name, flags | OFlags::PATH, Mode::empty())?;
            Ok(Folder::Place(fd))
        }
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn a_folder_that_was_moved_does_not_lead_to_its_old_parent() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        for name in ["parent", "parent/child", "elsewhere"] {
            std::fs::create_dir(path(name)).expect("room");
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |name: &str| openat(CWD, path(name), flags, Mode::empty()).expect("a folder");
        let parent = identity(&fstat(open("parent")).expect("open"));
        let child = Folder::Open(open("parent/child"));
        let found = parent_of(&child, parent).expect("it is there");
        assert_eq!(identity(&fstat(found.fd()).expect("open")), parent);
        std::fs::rename(path("parent/child"), path("elsewhere/child")).expect("ours");
        let found = parent_of(&child, parent).map(drop);
        assert_eq!(found, Err(Errno::NOENT));
    }
}
