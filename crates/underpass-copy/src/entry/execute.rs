//! One name: what it is, what is in its place, and what becomes of both.

use std::ffi::{CStr, CString, OsString};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Stat, renameat, statat, unlinkat};
use rustix::io::Errno;

use underpass::drive::blocking::Shielded;

use crate::entry::decide::file_type;
use crate::entry::{file, special};
use crate::options::{Backup, Effect, Manner, Recursion};
use crate::report::event::{Curiosity, EntryKind, Event, Finished, Outcome, Travel};
use crate::report::problem::{Problem, What};
use crate::report::reporter::Voice;
use crate::run::{Operands, Role, Run, Task};
use crate::tree::inode_table::{Copied, Met, MetFolder, Named};
use crate::tree::level::{Folder, Level, identity, joined};
use crate::walk::operands::without_slashes;

/// A name that is being copied.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) hand: &'a Hand<'a>,
    pub(crate) task: &'a Task,
}

/// Where the copy goes.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// Nothing is there (any more): the old one may have got another name.
    New { backup: Option<CString> },
    /// Something is there that is written to, or entered.
    Into(Box<There>),
}

/// A destination that is there already.
#[derive(Clone, Debug)]
pub(crate) struct There {
    /// What it is, behind the link where it is one that is followed.
    pub(crate) stat: Stat,
    /// The symbolic link that leads to it.
    pub(crate) link: Option<Stat>,
    /// What of it outlives the copy that is put in its place (`--atomic`).
    pub(crate) legacy: Legacy,
}

/// What of an old destination outlives the copy that is put in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Legacy {
    /// Owner and mode: it is overwritten, as far as anybody can tell.
    Attributes,
    /// Nothing but the name.
    Nothing,
    /// All of it, under this other name.
    Backup(CString),
}

/// How far a name has come.
pub(crate) enum Begun {
    /// It is done with, well or not.
    Done,
    /// It is a folder: its copy is to be made or found, and what is in it to be copied.
    Folder(Box<(Stat, Way)>),
}

/// Why nothing is copied.
pub(crate) enum Stop {
    /// The destination stays.
    Kept,
    /// Somebody was asked, and wants it to stay.
    Declined,
    /// It is what it should be already.
    Same,
    /// It could not be.
    Failed(Box<Problem>),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Failed(Box::new(problem))
    }
}

/// What came of a name that was made.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) travel: Option<Box<Travel>>,
    pub(crate) resumed: u64,
    pub(crate) hash: Option<String>,
}

/// One of the threads that copy.
pub(crate) struct Hand<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) shielded: Shielded,
}

impl<'a> Hand<'a> {
    /// The calling thread.
    pub(crate) fn of(run: &'a Run<'a>) -> Self {
        Self {
            run,
            shielded: Shielded::thread(),
        }
    }

    /// Copies a name that its folder says is no folder.
    pub(crate) fn perform(&self, task: Task) {
        let mut voice = self.run.ledger.voice(task.ticket);
        let entry = self.entry(&task);
        if let Begun::Folder(_) = entry.begin(&mut voice) {
            voice.problem(Problem::said(What::Replaced, entry.source_shown()));
        }
        voice.settle();
        self.run.child_done(&task.level);
    }

    pub(crate) fn entry<'t>(&'t self, task: &'t Task) -> Entry<'t> {
        Entry {
            run: self.run,
            hand: self,
            task,
        }
    }
}

impl<'a> Entry<'a> {
    /// Does all that can be done without entering a folder.
    pub(crate) fn begin(&self, voice: &mut Voice<'_>) -> Begun {
        if self.run.stopped() {
            return Begun::Done;
        }
        let source = match self.look_at_source() {
            Ok(source) => source,
            Err(errno) => {
                voice.problem(Problem::of(What::Stat, self.source_shown(), errno));
                return Begun::Done;
            }
        };
        if let Some(problem) = self.objection(&source) {
            voice.problem(problem);
            return Begun::Done;
        }
        match self.way(&source, voice) {
            Ok(way) => self.arrive(source, way, voice),
            Err(Stop::Failed(problem)) => {
                voice.problem(*problem);
                self.finished(&source, Outcome::Failed, Made::default(), voice);
                Begun::Done
            }
            Err(stop @ (Stop::Kept | Stop::Declined)) => {
                voice.counts.skipped += 1;
                voice.counts.declined += u64::from(matches!(stop, Stop::Declined));
                self.run.around.progress.passed_over(&source);
                if voice.wants(Curiosity::Changes) {
                    voice.say(Event::Skipped {
                        source: self.source_shown(),
                        dest: self.dest_shown(),
                    });
                }
                self.finished(&source, Outcome::Skipped, Made::default(), voice);
                Begun::Done
            }
            Err(Stop::Same) => {
                self.finished(&source, Outcome::Skipped, Made::default(), voice);
                Begun::Done
            }
        }
    }

    fn look_at_source(&self) -> Result<Stat, Errno> {
        let flags = if self.run.follows(self.task.role) {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        statat(self.task.folders.source.fd(), &self.task.source, flags)
    }

    /// What speaks against a source, whatever the destination is.
    fn objection(&self, source: &Stat) -> Option<Problem> {
        let is_folder = file_type(source) == FileType::Directory;
        if is_folder && self.run.options.recursion == Recursion::Off {
            return Some(Problem::said(What::OmittedDirectory, self.source_shown()));
        }
        let counts = self.task.role == Role::Operand
            && self.run.operands == Operands::IntoFolder
            && *self.backup() == Backup::None;
        if !is_folder && counts {
            let task = self.task;
            let named = named(&task.folders.source, &task.source, source);
            if self.run.seen.first_time(named) == Met::Again {
                return Some(Problem::said(What::FileTwice, self.source_shown()).warning());
            }
        }
        None
    }

    /// The way is free.
    fn arrive(&self, source: Stat, way: Way, voice: &mut Voice<'_>) -> Begun {
        if file_type(&source) == FileType::Directory {
            return Begun::Folder(Box::new((source, way)));
        }
        let backup = match &way {
            Way::New { backup } => backup.clone(),
            Way::Into(_) => None,
        };
        let shown = match &way {
            Way::Into(there) => match &there.legacy {
                Legacy::Backup(name) => Some(name.as_c_str()),
                _ => None,
            },
            Way::New { backup } => backup.as_deref(),
        };
        self.say_making(shown, voice);
        if self.run.options.effect == Effect::ToldOnly {
            self.finished(&source, Outcome::Planned, Made::default(), voice);
            return Begun::Done;
        }
        match self.link_or_make(&source, way, voice) {
            Ok(made) => {
                self.note_made();
                self.sync_name(voice);
                let outcome = made.outcome.unwrap_or(Outcome::Copied);
                self.finished(&source, outcome, made, voice);
            }
            Err(problem) => {
                voice.problem(*problem);
                self.un_back_up(backup.as_deref(), voice);
                self.finished(&source, Outcome::Failed, Made::default(), voice);
            }
        }
        Begun::Done
    }

    pub(crate) fn say_making(&self, backup: Option<&CStr>, voice: &mut Voice<'_>) {
        if voice.wants(Curiosity::Changes) {
            voice.say(Event::Making {
                source: self.source_shown(),
                dest: self.dest_shown(),
                backup: backup.map(|name| self.beside_dest(name)),
            });
        }
    }

    fn link_or_make(
        &self,
        source: &Stat,
        way: Way,
        voice: &mut Voice<'_>,
    ) -> Result<Made, Box<Problem>> {
        if !self.remembers(source) {
            return self.make(source, way, voice);
        }
        let key = identity(source);
        if let Some(copied) = self.run.seen.begin(key) {
            self.link_to(&copied)?;
            voice.counts.hard_links += 1;
            return Ok(Made {
                outcome: Some(Outcome::Linked),
                ..Made::default()
            });
        }
        let made = self.make(source, way, voice);
        let dest = statat(
            self.task.folders.dest.fd(),
            &self.task.dest,
            AtFlags::SYMLINK_NOFOLLOW,
        );
        match (&made, dest) {
            (Ok(_), Ok(dest)) => self.run.seen.copied(key, self.as_copied(&dest)),
            _ => self.run.seen.failed(key),
        }
        made
    }

    /// Whether other names of this file may follow that are to become names of its copy.
    pub(crate) fn remembers(&self, source: &Stat) -> bool {
        let options = self.run.options;
        let may_come_again = source.st_nlink > 1 || self.run.follows(self.task.role);
        options.preserve.links.is_wanted() && options.manner != Manner::HardLink && may_come_again
    }

    pub(crate) fn as_copied(&self, dest: &Stat) -> Copied {
        Copied {
            level: Arc::clone(&self.task.level),
            folders: Arc::downgrade(&self.task.folders),
            name: self.task.dest.clone(),
            identity: identity(dest),
        }
    }

    /// Makes the destination another name of something copied before, whatever is there.
    pub(crate) fn link_to(&self, copied: &Copied) -> Result<(), Problem> {
        let folder = self.task.folders.dest.fd();
        let failed = |errno| {
            let problem = Problem::of(What::CreateHardLink, self.dest_shown(), errno);
            problem.and(joined(&copied.level.dest(), copied.name.to_bytes()))
        };
        match copied.link(folder, &self.task.dest) {
            Err(Errno::EXIST) => (),
            done => return done.map_err(failed),
        }
        let there = statat(folder, &self.task.dest, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if identity(&there) == copied.identity {
            return Ok(());
        }
        let beside = special::name_beside();
        copied.link(folder, &beside).map_err(failed)?;
        renameat(folder, &beside, folder, &self.task.dest).map_err(|errno| {
            let _left = unlinkat(folder, &beside, AtFlags::empty());
            failed(errno)
        })
    }

    fn make(&self, source: &Stat, way: Way, voice: &mut Voice<'_>) -> Result<Made, Box<Problem>> {
        let kind = file_type(source);
        let is_link = kind == FileType::Symlink;
        match self.run.options.manner {
            Manner::SymbolicLink => return special::link_to_source(self, source, voice),
            Manner::HardLink => return special::other_name(self),
            Manner::Copy | Manner::AttributesOnly => (),
        }
        match kind {
            FileType::RegularFile => file::copy(self, source, way, voice),
            _ if !is_link && self.run.reads_specials() => file::copy(self, source, way, voice),
            FileType::Symlink => special::symlink(self, source, &way, voice),
            FileType::Unknown => Err(Box::new(Problem::said(
                What::UnknownType,
                self.source_shown(),
            ))),
            _ => special::node(self, source, voice),
        }
    }

    /// An operand's copy is there: it must not be overwritten by another operand.
    pub(crate) fn note_made(&self) {
        if self.task.role == Role::Inside || self.run.operands == Operands::One {
            return;
        }
        let (folder, name) = (&self.task.folders.dest, &self.task.dest);
        if let Ok(stat) = statat(folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            self.run.seen.made(named(folder, name, &stat));
        }
    }

    /// An operand's name gets on disk; folders see to those of what is in them.
    fn sync_name(&self, voice: &mut Voice<'_>) {
        if self.task.role != Role::Inside
            && let Err(errno) = self.run.sync_folder(&self.task.folders.dest)
        {
            voice.problem(Problem::of(What::Sync, self.dest_shown(), errno));
        }
    }

    /// The old destination gets its name back, over what was begun in its place.
    pub(crate) fn un_back_up(&self, backup: Option<&CStr>, voice: &mut Voice<'_>) {
        let Some(backup) = backup else { return };
        let folder = self.task.folders.dest.fd();
        match renameat(folder, backup, folder, &self.task.dest) {
            Ok(()) if voice.wants(Curiosity::Changes) => voice.say(Event::Restored {
                backup: self.beside_dest(backup),
                dest: self.dest_shown(),
            }),
            Ok(()) => (),
            Err(errno) => {
                voice.problem(Problem::of(What::Restore, self.dest_shown(), errno));
            }
        }
    }

    /// Tells what has become of a name.
    pub(crate) fn finished(
        &self,
        source: &Stat,
        outcome: Outcome,
        made: Made,
        voice: &mut Voice<'_>,
    ) {
        let kind = entry_kind(source);
        if outcome == Outcome::Copied {
            match kind {
                EntryKind::File => voice.counts.files += 1,
                EntryKind::Directory => voice.counts.directories += 1,
                EntryKind::Symlink => voice.counts.symlinks += 1,
                EntryKind::Special => voice.counts.specials += 1,
            }
        }
        if !voice.wants(Curiosity::Everything) {
            return;
        }
        voice.say(Event::Finished(Box::new(Finished {
            source: self.source_shown(),
            dest: self.dest_shown(),
            outcome,
            kind,
            size: match kind {
                EntryKind::File => source.st_size.max(0).cast_unsigned(),
                _ => 0,
            },
            travel: made.travel,
            resumed: made.resumed,
            hash: made.hash,
        })));
    }

    /// What is known of a folder that is about to be entered.
    pub(crate) fn met(&self, source: &Stat) -> Option<MetFolder> {
        self.run.seen.folder(identity(source))
    }

    pub(crate) fn source_shown(&self) -> OsString {
        joined(&self.task.level.source(), self.task.source.to_bytes())
    }

    pub(crate) fn dest_shown(&self) -> OsString {
        self.beside_dest(&self.task.dest)
    }

    fn beside_dest(&self, name: &CStr) -> OsString {
        joined(&Level::dest(&self.task.level), name.to_bytes())
    }
}

/// A name in a folder, without slashes behind it, and what it stands for.
pub(crate) fn named(folder: &Folder, name: &CStr, stat: &Stat) -> Named {
    let folder = statat(folder.fd(), c".", AtFlags::empty());
    Named {
        folder: folder.ok().map(|folder| identity(&folder)),
        name: without_slashes(name.to_bytes()).to_vec(),
        identity: identity(stat),
    }
}

pub(crate) fn entry_kind(stat: &Stat) -> EntryKind {
    match file_type(stat) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Special,
    }
}
