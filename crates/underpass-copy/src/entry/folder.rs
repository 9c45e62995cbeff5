//! The copy of a folder: created or found, and open.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, Stat, chmod, fstat, mkdirat, openat};

use crate::entry::{Destination, Entry};
use crate::fs::folder::{Folder, READ, is_same_file};
use crate::metadata::{self, Creation};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;

/// The copy of a folder.
pub(crate) struct FolderCopy {
    pub(crate) folder: Folder,
    pub(crate) creation: Creation,
    /// The permission bits before [`FolderCopy::widen`] changed them.
    pub(crate) narrowed: Option<u32>,
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
        let copy = |folder, creation| Self {
            folder,
            creation,
            narrowed: None,
        };
        if let Destination::Existing(_) = dest {
            return Ok(copy(open(entry, dest)?, Creation::Existing));
        }
        if run.options.dry_run {
            entry.say_making(dest.renamed(), events);
            return Ok(copy(Folder::Imagined, Creation::New(0o700)));
        }
        let mode = metadata::mode_at_first(source, &run.options.preserve, &run.process) | 0o700;
        let (parent, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
        mkdirat(parent, name, Mode::from_raw_mode(mode))
            .map_err(|errno| entry.at_dest(ProblemKind::CreateDirectory, errno))?;
        entry.say_making(dest.renamed(), events);
        Ok(copy(open(entry, dest)?, Creation::New(mode)))
    }

    /// Widens the permission bits of a new folder that can't be filled: an access control list of
    /// its parent may have narrowed them.
    pub(crate) fn widen(&mut self, entry: &Entry<'_>) -> Result<(), Problem> {
        if matches!(self.folder, Folder::Imagined) || self.creation == Creation::Existing {
            return Ok(());
        }
        let failed = |errno| entry.at_dest(ProblemKind::Mode, errno);
        let mode = fstat(self.folder.fd()).map_err(failed)?.st_mode & 0o7777;
        if mode & 0o700 == 0o700 {
            return Ok(());
        }
        let itself = format!("/proc/self/fd/{}", self.folder.fd().as_raw_fd());
        chmod(itself, Mode::from_raw_mode(mode | 0o700)).map_err(failed)?;
        self.folder = Folder::open(self.folder.fd(), c".", OFlags::empty()).map_err(failed)?;
        self.narrowed = Some(mode);
        Ok(())
    }
}

/// Opens the copy of a folder: the one that was seen, or the one just created.
fn open(entry: &Entry<'_>, dest: &Destination) -> Result<Folder, Problem> {
    let seen = match dest {
        Destination::Existing(there) => Some(there),
        Destination::New { .. } => None,
    };
    let flags = match seen.is_none_or(|there| there.link.is_none()) {
        true => OFlags::NOFOLLOW,
        false => OFlags::empty(),
    };
    let failed = |errno| entry.at_dest(ProblemKind::CreateDirectory, errno);
    let parent = entry.task.folders.dest.fd();
    let folder = Folder::open(parent, &entry.task.dest, flags).map_err(failed)?;
    let stat = fstat(folder.fd()).map_err(failed)?;
    if seen.is_some_and(|there| !is_same_file(folder.fd(), &stat, &there.stat)) {
        return Err(Problem::new(ProblemKind::Replaced, entry.dest_shown()));
    }
    Ok(folder)
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
