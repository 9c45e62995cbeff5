//! What is in the place of a copy, and what becomes of it: it stays, makes way, or is written to.

use std::ffi::{CStr, CString};

use rustix::fs::{AtFlags, FileType, Stat, statat, unlinkat};
use rustix::io::Errno;

use crate::entry::decide::{self, Fate, Meeting, SameEntry, Sameness, file_type};
use crate::entry::execute::{Entry, Legacy, Stop, There, Way, named};
use crate::entry::special;
use crate::fs::backup;
use crate::options::{Backup, Effect, Existing, FolderLinks, MakingWay, Manner, Placement};
use crate::report::event::{Curiosity, Event, Overwriting};
use crate::report::problem::{Problem, What};
use crate::report::reporter::Voice;
use crate::run::Role;
use crate::tree::inode_table::Met;
use crate::tree::level::{Folder, Surroundings, identity};
use crate::walk::operands::without_slashes;

impl There {
    fn of(stat: Stat, link: Option<Stat>) -> Self {
        Self {
            stat,
            link,
            legacy: Legacy::Attributes,
        }
    }
}

impl Entry<'_> {
    /// What is in the place of the copy, and what is to be done about it: which is done here, up to
    /// renaming or removing it.
    pub(crate) fn way(&self, source: &Stat, voice: &mut Voice<'_>) -> Result<Way, Stop> {
        let Some(there) = self.look_at_dest(source)? else {
            return Ok(Way::New { backup: None });
        };
        let same = self.same_or_not(source, &there)?;
        self.wish(source, &there)?;
        if same == Sameness::NothingToDo {
            return Err(Stop::Same);
        }
        self.kinds_agree(source, &there)?;
        self.make_way(source, there, voice)
    }

    fn look_at_dest(&self, source: &Stat) -> Result<Option<There>, Stop> {
        let task = self.task;
        let fresh = match task.folders.surroundings {
            Surroundings::Imagined => return Ok(None),
            Surroundings::Fresh => task.role == Role::Inside,
            Surroundings::Old => false,
        };
        if fresh {
            return Ok(None);
        }
        let failed = |errno| Problem::of(What::StatDestination, self.dest_shown(), errno);
        let folder = task.folders.dest.fd();
        let stat = match statat(folder, &task.dest, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno).into()),
        };
        if file_type(&stat) != FileType::Symlink || !self.looks_behind_links(source) {
            return Ok(Some(There::of(stat, None)));
        }
        if task.role == Role::Inside && self.run.is_newer_than_run(&stat) {
            return Err(Problem::said(What::Planted, self.dest_shown()).into());
        }
        let link = Some(stat);
        match statat(folder, &task.dest, AtFlags::empty()) {
            Ok(stat) => Ok(Some(There::of(stat, link))),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) if self.run.options.making_way == MakingWay::Unwritable => {
                Ok(Some(There::of(stat, None)))
            }
            Err(errno) => Err(failed(errno).into()),
        }
    }

    /// Whether a symbolic link in the place of the copy is taken for what it leads to: where the
    /// copy is written through it.
    fn looks_behind_links(&self, source: &Stat) -> bool {
        let options = self.run.options;
        let becomes_file = match file_type(source) {
            FileType::RegularFile => true,
            FileType::Directory => return options.folder_links == FolderLinks::Followed,
            FileType::Symlink => false,
            _ => self.run.reads_specials(),
        };
        becomes_file
            && !matches!(options.manner, Manner::HardLink | Manner::SymbolicLink)
            && *self.backup() == Backup::None
            && !self.run.removes_first()
    }

    fn same_or_not(&self, source: &Stat, there: &There) -> Result<Sameness, Stop> {
        let kept = matches!(
            self.run.options.existing,
            Existing::Kept | Existing::KeptAsError
        );
        if kept {
            return Ok(Sameness::Proceed);
        }
        let looked = |folder: &Folder, name: &CStr, flags| statat(folder.fd(), name, flags).ok();
        let task = self.task;
        let both = |flags| {
            let source = looked(&task.folders.source, &task.source, flags)?;
            Some((source, looked(&task.folders.dest, &task.dest, flags)?))
        };
        let possible = identity(source) == identity(&there.stat)
            || file_type(source) == FileType::Symlink
            || file_type(&there.stat) == FileType::Symlink;
        if !possible {
            return Ok(Sameness::Proceed);
        }
        let names = both(AtFlags::SYMLINK_NOFOLLOW);
        let referents = both(AtFlags::empty());
        let meeting = Meeting {
            source,
            dest: &there.stat,
            names: names.as_ref().map(|(one, other)| (one, other)),
            referents: referents.as_ref().map(|(one, other)| (one, other)),
            entry: self.same_entry(),
        };
        match decide::sameness(&meeting, &self.run.terms(self.task.role, self.backup())) {
            Sameness::SameFile => {
                let problem = Problem::said(What::SameFile, self.source_shown());
                Err(problem.and(self.dest_shown()).into())
            }
            proceed_or_not => Ok(proceed_or_not),
        }
    }

    /// Whether source and destination are one name in one folder.
    fn same_entry(&self) -> SameEntry {
        let task = self.task;
        let folder = |folder: &Folder| {
            let stat = statat(folder.fd(), c".", AtFlags::empty()).ok()?;
            Some(identity(&stat))
        };
        let plain = |name: &CStr| without_slashes(name.to_bytes()).to_vec();
        let same = plain(&task.source) == plain(&task.dest)
            && folder(&task.folders.source) == folder(&task.folders.dest);
        if same { SameEntry::Yes } else { SameEntry::No }
    }

    /// What the user wants of destinations that are there.
    fn wish(&self, source: &Stat, there: &There) -> Result<(), Stop> {
        if file_type(source) == FileType::Directory {
            return Ok(());
        }
        let options = self.run.options;
        let newer = decide::newer(&there.stat, source, options.preserve.timestamps);
        match decide::fate(options.existing, newer) {
            Fate::Overwrite => Ok(()),
            Fate::Keep => Err(Stop::Kept),
            Fate::KeepAsError => Err(Problem::said(What::NotReplacing, self.dest_shown()).into()),
            Fate::KeepNewer => self.keep_newer(source, there),
            Fate::Ask => self.ask(there),
        }
    }

    /// It stays; yet where names of one file stay names of one file, this is one of them.
    fn keep_newer(&self, source: &Stat, there: &There) -> Result<(), Stop> {
        if self.remembers(source) && self.run.options.effect == Effect::Real {
            match self.run.seen.begin(identity(source)) {
                Some(copied) => self.link_to(&copied).map_err(Stop::from)?,
                None => self
                    .run
                    .seen
                    .copied(identity(source), self.as_copied(&there.stat)),
            }
        }
        Err(Stop::Kept)
    }

    fn ask(&self, there: &There) -> Result<(), Stop> {
        let writable = file_type(&there.stat) == FileType::Symlink
            || special::is_writable(&self.task.folders.dest, &self.task.dest);
        let question = Overwriting {
            dest: self.dest_shown(),
            unwritable_mode: (!writable).then_some(there.stat.st_mode & 0o7777),
            replaces: self.run.options.making_way != MakingWay::Nothing,
        };
        if self.run.ledger.observer().may_overwrite(&question) {
            Ok(())
        } else {
            Err(Stop::Declined)
        }
    }

    /// Folders go over folders, and files over files.
    fn kinds_agree(&self, source: &Stat, there: &There) -> Result<(), Stop> {
        let is_folder = |stat: &Stat| file_type(stat) == FileType::Directory;
        let said = |what| Problem::said(what, self.dest_shown()).and(self.source_shown());
        match (is_folder(source), is_folder(&there.stat)) {
            (true, true) => return Ok(()),
            (true, false) => return Err(said(What::OverNonDirectory).into()),
            (false, true) => return Err(said(What::OverDirectory).into()),
            (false, false) => (),
        }
        let numbered = *self.backup() == Backup::Numbered;
        if self.task.role == Role::Operand && !numbered {
            let stat = there.link.unwrap_or(there.stat);
            let named = named(&self.task.folders.dest, &self.task.dest, &stat);
            if self.run.seen.just_made(&named) == Met::Again {
                return Err(said(What::JustCreated).into());
            }
        }
        Ok(())
    }

    /// Renames or removes what can't stay.
    fn make_way(&self, source: &Stat, there: There, voice: &mut Voice<'_>) -> Result<Way, Stop> {
        let is_folder = file_type(&there.stat) == FileType::Directory;
        let options = self.run.options;
        let real = options.effect == Effect::Real;
        if is_folder {
            return Ok(Way::Into(Box::new(there)));
        }
        if *self.backup() != Backup::None && !self.is_dots() {
            self.backup_is_harmless(source)?;
            if self.replaces_at_the_end(source) {
                let folder = self.task.folders.dest.fd();
                let name = backup::name_for(folder, &self.task.dest, self.backup())
                    .map_err(|errno| Problem::of(What::Backup, self.dest_shown(), errno))?;
                let legacy = Legacy::Backup(name);
                return Ok(Way::Into(Box::new(There { legacy, ..there })));
            }
            let renamed = match real {
                true => self.back_up()?,
                false => None,
            };
            return Ok(Way::New { backup: renamed });
        }
        let link_in_the_way = self.run.deref(self.task.role) == decide::Deref::Never
            && file_type(source) != FileType::RegularFile;
        let other_names = options.preserve.links.is_wanted() && there.stat.st_nlink > 1;
        let data = options.manner != Manner::AttributesOnly;
        if self.run.removes_first() || (data && (other_names || link_in_the_way)) {
            if self.replaces_at_the_end(source) {
                let legacy = Legacy::Nothing;
                return Ok(Way::Into(Box::new(There { legacy, ..there })));
            }
            if real {
                self.remove(voice)?;
            }
            return Ok(Way::New { backup: None });
        }
        Ok(Way::Into(Box::new(there)))
    }

    /// Whether the copy is put over what is there when it is complete, so that nothing need make
    /// way before.
    fn replaces_at_the_end(&self, source: &Stat) -> bool {
        let options = self.run.options;
        let can_be = match file_type(source) {
            FileType::RegularFile => true,
            FileType::Symlink => *self.backup() == Backup::None,
            _ => self.run.reads_specials(),
        };
        can_be && options.placement == Placement::Atomic && options.manner == Manner::Copy
    }

    /// What happens to the old destination.
    pub(crate) fn backup(&self) -> &Backup {
        match self.task.role {
            Role::OwnBackup => &Backup::None,
            Role::Operand | Role::Inside => &self.run.options.backup,
        }
    }

    fn is_dots(&self) -> bool {
        matches!(self.task.source.to_bytes(), b"." | b"..")
    }

    fn backup_is_harmless(&self, source: &Stat) -> Result<(), Stop> {
        let (Backup::Simple(suffix) | Backup::Existing(suffix)) = self.backup() else {
            return Ok(());
        };
        let task = self.task;
        let mut name = task.dest.to_bytes().to_vec();
        name.extend_from_slice(suffix.as_encoded_bytes());
        let (Ok(name), source_name) = (CString::new(name), task.source.to_bytes()) else {
            return Ok(());
        };
        let becomes = statat(task.folders.dest.fd(), &name, AtFlags::empty());
        let harmful = source_name == name.to_bytes()
            && becomes.is_ok_and(|old| identity(&old) == identity(source));
        if harmful {
            let problem = Problem::said(What::BackupWouldDestroy, self.dest_shown());
            return Err(problem.and(self.source_shown()).into());
        }
        Ok(())
    }

    fn back_up(&self) -> Result<Option<CString>, Stop> {
        let task = self.task;
        match backup::make(task.folders.dest.fd(), &task.dest, self.backup()) {
            Ok(name) => Ok(Some(name)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Problem::of(What::Backup, self.dest_shown(), errno).into()),
        }
    }

    /// Removes what is in the place of the copy.
    pub(crate) fn remove(&self, voice: &mut Voice<'_>) -> Result<(), Problem> {
        let task = self.task;
        match unlinkat(task.folders.dest.fd(), &task.dest, AtFlags::empty()) {
            Ok(()) => {
                if voice.wants(Curiosity::Changes) {
                    voice.say(Event::Removed(self.dest_shown()));
                }
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Problem::of(What::Remove, self.dest_shown(), errno)),
        }
    }
}
