//! One entry: its source, the existing destination, and the action for both.
//!
//! ```text
//!   facts ──▶ decide ──action──▶ execute ──▶ file, special
//! ```

pub(crate) mod decide;
pub(crate) mod destination;
pub(crate) mod execute;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod same_file;
pub(crate) mod special;

use std::ffi::{CStr, CString, OsString};

use rustix::fs::Stat;
use rustix::io::Errno;
use underpass::drive::blocking::SigxfszGuard;

use crate::entry::same_file::FilePair;
use crate::fs::folder::{Folder, identity, is_folder, is_link, joined, without_slashes};
use crate::options::{Backup, OverwritePolicy, RemoveExisting};
use crate::report::problem::{Problem, ProblemKind};
use crate::run::{CopyRun, SourceCount};
use crate::tree::inode_table::NamedFile;
use crate::tree::level::{DestinationOrigin, Role, Task};

/// An entry that is being copied, and the thread that copies it.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) run: &'a CopyRun<'a>,
    pub(crate) task: &'a Task,
    pub(crate) sigxfsz_guard: &'a SigxfszGuard,
}

/// The destination of the copy.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// No file has the name, or its file was renamed as a backup.
    New { backup: Option<CString> },
    /// A file exists that is written to, replaced or entered.
    Existing(Box<ExistingDestination>),
}

/// An existing destination.
#[derive(Clone, Debug)]
pub(crate) struct ExistingDestination {
    /// The file, or its target if a symbolic link is followed.
    pub(crate) stat: Stat,
    /// The symbolic link that leads to it.
    pub(crate) link: Option<Stat>,
    pub(crate) replaced: Replaced,
}

/// The facts about an existing destination.
#[derive(Clone, Debug)]
pub(crate) struct DestinationFacts {
    pub(crate) dest: ExistingDestination,
    /// Source and destination, where they may be the same file.
    pub(crate) pair: Option<FilePair>,
    /// It is the copy of an earlier operand, and must not be overwritten by another one.
    pub(crate) is_just_created: bool,
    /// Its backup would replace the source.
    pub(crate) backup_is_source: bool,
}

/// The parts of an existing destination kept when a complete copy replaces it (`--atomic`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// Owner and mode, as if it were overwritten in place.
    KeepsAttributes,
    /// Nothing except the name.
    Discarded,
    /// Everything, under this other name.
    BackedUp(CString),
}

impl Destination {
    /// Returns the new name of the old destination, if it was renamed.
    pub(crate) fn renamed(&self) -> Option<&CStr> {
        match self {
            Self::New { backup } => backup.as_deref(),
            Self::Existing(_) => None,
        }
    }

    /// Returns the name of the backup, whether made already or not.
    pub(crate) fn backup(&self) -> Option<&CStr> {
        match self {
            Self::Existing(existing) => match &existing.replaced {
                Replaced::BackedUp(name) => Some(name),
                Replaced::KeepsAttributes | Replaced::Discarded => None,
            },
            Self::New { .. } => self.renamed(),
        }
    }
}

impl Entry<'_> {
    /// Returns whether symbolic links to the source are followed.
    pub(crate) fn follows(&self) -> bool {
        self.run.options.follows(self.task.role)
    }

    /// Returns how the old destination is backed up.
    pub(crate) fn backup(&self) -> &Backup {
        self.run.options.backup_of(self.task.role)
    }

    pub(crate) fn is_operand(&self) -> bool {
        self.task.role != Role::Inside
    }

    pub(crate) fn source_shown(&self) -> OsString {
        joined(&self.task.level.source(), self.task.source.to_bytes())
    }

    pub(crate) fn dest_shown(&self) -> OsString {
        self.beside_dest_shown(&self.task.dest)
    }

    /// Returns the displayed path of another name in the folder of the destination.
    pub(crate) fn beside_dest_shown(&self, name: &CStr) -> OsString {
        joined(&self.task.level.dest(), name.to_bytes())
    }

    /// Reports that the copy was stopped with `bytes` of the content in place.
    pub(crate) fn stopped(&self, bytes: u64) -> Problem {
        let problem = Problem::new(ProblemKind::Stopped(bytes), self.source_shown());
        Problem {
            moved: Some(bytes),
            ..problem.with_other(self.dest_shown())
        }
    }

    /// Reports that a call about the source failed.
    pub(crate) fn at_source(&self, kind: ProblemKind, errno: Errno) -> Problem {
        Problem::failed(kind, self.source_shown(), errno)
    }

    /// Reports that a call about the destination failed.
    pub(crate) fn at_dest(&self, kind: ProblemKind, errno: Errno) -> Problem {
        Problem::failed(kind, self.dest_shown(), errno)
    }
}

/// Queries of the source and the existing destination.
impl Entry<'_> {
    /// Looks up the source, following links as the copy does.
    pub(crate) fn look_at_source(&self) -> Result<Stat, Problem> {
        let (folder, name) = (&self.task.folders.source, &self.task.source);
        let looked = match self.follows() {
            true => folder.look_behind(name),
            false => folder.look_at(name),
        };
        looked.map_err(|errno| self.at_source(ProblemKind::Stat, errno))
    }

    /// Returns whether a source other than a folder appears twice on the command line.
    pub(crate) fn is_repeated(&self, source: &Stat) -> bool {
        let task = self.task;
        let counts = task.role == Role::Operand
            && self.run.sources == SourceCount::IntoFolder
            && *self.backup() == Backup::None;
        let named = || NamedFile::new(&task.folders.source, &task.source, source);
        counts && !is_folder(source) && !self.run.inodes.operands().sources.insert(named())
    }

    /// Returns the facts about an existing destination; `None` if none exists.
    pub(crate) fn facts_of_destination(
        &self,
        source: &Stat,
    ) -> Result<Option<DestinationFacts>, Problem> {
        let Some(dest) = self.existing(source)? else {
            return Ok(None);
        };
        let overwrite = self.run.options.overwrite;
        let is_kept = matches!(overwrite, OverwritePolicy::Keep | OverwritePolicy::Fail);
        let is_over_file = !is_kept && !is_folder(&dest.stat);
        Ok(Some(DestinationFacts {
            pair: match is_kept {
                true => None,
                false => self.pair(source, &dest.stat),
            },
            is_just_created: is_over_file
                && self.is_just_created(dest.link.as_ref().unwrap_or(&dest.stat)),
            backup_is_source: is_over_file && self.backup_is_source(source),
            dest,
        }))
    }

    fn existing(&self, source: &Stat) -> Result<Option<ExistingDestination>, Problem> {
        let (run, task) = (self.run, self.task);
        let is_fresh = match task.folders.origin {
            DestinationOrigin::Imagined => true,
            DestinationOrigin::Fresh => task.role == Role::Inside,
            DestinationOrigin::Old => false,
        };
        if is_fresh {
            return Ok(None);
        }
        let failed = |errno| self.at_dest(ProblemKind::StatDestination, errno);
        let found = |stat, link| ExistingDestination {
            stat,
            link,
            replaced: Replaced::KeepsAttributes,
        };
        let folder = &task.folders.dest;
        let stat = match folder.look_at(&task.dest) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        if !is_link(&stat) || !run.options.follows_destination(source, task.role) {
            return Ok(Some(found(stat, None)));
        }
        // A destination that stays is not written to, wherever it leads.
        let policy = run.options.overwrite;
        let stays = matches!(policy, OverwritePolicy::Keep | OverwritePolicy::Fail);
        if (!stays || is_folder(source)) && self.may_be_planted(&stat) {
            return Err(Problem::new(ProblemKind::Planted, self.dest_shown()));
        }
        match folder.look_behind(&task.dest) {
            Ok(behind) => Ok(Some(found(behind, Some(stat)))),
            Err(Errno::NOENT) if !is_folder(source) && self.is_just_created(&stat) => {
                let problem = Problem::new(ProblemKind::ThroughJustCreated, self.dest_shown());
                Err(problem.with_other(self.source_shown()))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) if run.options.remove_existing == RemoveExisting::IfUnwritable => {
                Ok(Some(found(stat, None)))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether a symbolic link in a folder that is copied into may be newer than the run: it is
    /// not followed.
    pub(crate) fn may_be_planted(&self, link: &Stat) -> bool {
        let is_new = || self.run.is_newer_than_run(link);
        self.task.role == Role::Inside && (is_new() || self.task.folders.dest.hides_changes(link))
    }

    /// Source and destination, where they may be one file.
    fn pair(&self, source: &Stat, dest: &Stat) -> Option<FilePair> {
        let task = self.task;
        if identity(source) != identity(dest) && !is_link(source) && !is_link(dest) {
            return None;
        }
        let folders = [&task.folders.source, &task.folders.dest];
        let names = [&task.source, &task.dest];
        let both = |look: fn(&Folder, &std::ffi::CStr) -> Result<Stat, Errno>| {
            let source = look(folders[0], names[0]).ok()?;
            Some((source, look(folders[1], names[1]).ok()?))
        };
        let [source_name, dest_name] = names.map(|name| without_slashes(name.to_bytes()));
        Some(FilePair {
            source: *source,
            dest: *dest,
            names: both(Folder::look_at),
            referents: both(Folder::look_behind),
            is_same_entry: source_name == dest_name
                && folders[0].identity() == folders[1].identity(),
        })
    }

    /// Returns whether the destination, `stat` without following links, is the copy of an earlier
    /// operand.
    fn is_just_created(&self, stat: &Stat) -> bool {
        let task = self.task;
        let counts = task.role == Role::Operand
            && self.run.sources == SourceCount::IntoFolder
            && *self.backup() != Backup::Numbered;
        let named = || NamedFile::new(&task.folders.dest, &task.dest, stat);
        counts && self.run.inodes.operands().created.contains(&named())
    }

    /// Returns whether the backup of the destination would replace the source.
    fn backup_is_source(&self, source: &Stat) -> bool {
        let (Backup::Simple(suffix) | Backup::Existing(suffix)) = self.backup() else {
            return false;
        };
        let task = self.task;
        let name = [task.dest.to_bytes(), suffix.as_encoded_bytes()].concat();
        let Ok(name) = CString::new(name) else {
            return false;
        };
        let there = || task.folders.dest.look_behind(&name);
        name == task.source && there().is_ok_and(|there| identity(&there) == identity(source))
    }
}
