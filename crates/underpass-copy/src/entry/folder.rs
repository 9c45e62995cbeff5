//! The copy of a folder: created or found, and open.

use std::sync::Arc;

use rustix::fs::{Mode, OFlags, Stat, fstat, openat};

use crate::entry::{Destination, Entry, ExistingDestination};
use crate::fs::folder::{Folder, READ, is_same_file};
use crate::metadata::{self, Creation, FolderRole};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;

/// The copy of a folder.
pub(crate) struct FolderCopy {
    pub(crate) folder: Folder,
    pub(crate) creation: Creation,
}

impl FolderCopy {
    /// Creates the copy, or opens the existing one.
    pub(crate) fn make_or_open(
        entry: &Entry<'_>,
        source: &Stat,
        dest: &Destination,
        events: &mut EventBuffer<'_>,
    ) -> Result<Self, Problem> {
        let run = entry.run;
        let copy = |folder, creation| Self { folder, creation };
        if let Destination::Existing(there) = dest {
            return Ok(copy(open(entry, there)?, Creation::Existing));
        }
        if run.options.dry_run {
            entry.say_making(None, events);
            return Ok(copy(Folder::Imagined, Creation::new(0o700)));
        }
        let (wishes, role) = (&run.options.preserve, FolderRole::Copy);
        let mode = metadata::mode_at_first(source, wishes, &run.process, role) | 0o700;
        let parent = entry.task.folders.dest.fd();
        let made = Folder::make(parent, &entry.task.dest, mode);
        let (folder, lent) = made.map_err(|(errno, call)| {
            entry.restore(dest.renamed(), events);
            let kind = match call {
                "chmod" => ProblemKind::Mode,
                _ => ProblemKind::CreateDirectory,
            };
            entry.at_dest(kind, errno).by_call(call)
        })?;
        entry.say_making(None, events);
        Ok(copy(folder, Creation::New { mode, lent, role }))
    }
}

/// Opens the copy of a folder that was seen.
fn open(entry: &Entry<'_>, there: &ExistingDestination) -> Result<Folder, Problem> {
    let flags = match there.link {
        None => OFlags::NOFOLLOW,
        Some(_) => OFlags::empty(),
    };
    let failed = |errno| entry.at_dest(ProblemKind::CreateDirectory, errno);
    let parent = entry.task.folders.dest.fd();
    let folder = Folder::open(parent, &entry.task.dest, flags).map_err(failed)?;
    let stat = fstat(folder.fd()).map_err(failed)?;
    match is_same_file(folder.fd(), &stat, &there.stat) {
        true => Ok(folder),
        false => Err(Problem::new(ProblemKind::Replaced, entry.dest_shown())),
    }
}

/// Opens a source folder for reading, if it is the one that was seen.
pub(crate) fn open_source(entry: &Entry<'_>, seen: &Stat) -> Result<Folder, Problem> {
    let flags = match entry.follows() {
        true => READ,
        false => READ | OFlags::NOFOLLOW,
    };
    let failed = |errno| entry.at_source(ProblemKind::OpenDirectory, errno);
    let parent = entry.task.folders.source.fd();
    let opened = openat(parent, &entry.task.source, flags, Mode::empty()).map_err(failed)?;
    match is_same_file(&opened, &fstat(&opened).map_err(failed)?, seen) {
        true => Ok(Folder::Open(Arc::new(opened))),
        false => Err(Problem::new(ProblemKind::Replaced, entry.source_shown())),
    }
}
