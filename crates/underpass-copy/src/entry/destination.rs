//! The file that is written: created, or opened without harm to anything that isn't meant.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, ftruncate, openat, readlinkat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::entry::decide::file_type;
use crate::entry::execute::{Entry, Legacy, There, Way};
use crate::entry::file::{over, stopped};
use crate::fs::atomic_file::{Over, Staged};
use crate::fs::backup;
use crate::fs::fifo;
use crate::metadata::{self, Held, Made};
use crate::options::{
    Dangling, Leftovers, MakingWay, Manner, Placement, Preserve, Verification, Wish,
};
use crate::report::problem::{Problem, What};
use crate::report::reporter::Voice;
use crate::run::Role;
use crate::tree::level::{Surroundings, identity};

type Failure = Box<Problem>;

/// A destination that is open for writing.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    /// What it is now.
    pub(crate) stat: Stat,
    pub(crate) made: Made,
    staged: Option<(Staged, Over)>,
    /// What it replaces gets another name first.
    backs_up: BacksUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BacksUp {
    Yes,
    No,
}

impl Opened {
    fn new(fd: OwnedFd, made: Made) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self {
            fd,
            stat,
            made,
            staged: None,
            backs_up: BacksUp::No,
        })
    }

    pub(crate) fn is_regular(&self) -> bool {
        file_type(&self.stat) == FileType::RegularFile
    }

    pub(crate) fn len(&self) -> u64 {
        self.stat.st_size.max(0).cast_unsigned()
    }

    /// A complete file gets its name, if it hasn't got it yet.
    pub(crate) fn place(self, entry: &Entry<'_>) -> Result<(), Failure> {
        let Some((staged, over)) = self.staged else {
            return Ok(());
        };
        let folder = entry.task.folders.dest.fd();
        if self.backs_up == BacksUp::Yes
            && let Err(errno) = backup::keep(folder, &entry.task.dest, entry.backup())
        {
            staged.discard(folder);
            return Err(Box::new(Problem::of(
                What::Backup,
                entry.dest_shown(),
                errno,
            )));
        }
        staged
            .place(&self.fd, folder, &entry.task.dest, over)
            .map_err(|(staged, errno)| {
                staged.discard(folder);
                Box::new(Problem::of(What::Rename, entry.dest_shown(), errno))
            })
    }

    /// It will not be complete. What `cp` leaves in such a case stays: a part under its own name,
    /// but nothing of a clone that was demanded and refused.
    pub(crate) fn give_up(self, entry: &Entry<'_>, problem: &Problem) {
        let folder = entry.task.folders.dest.fd();
        match (self.staged, self.made) {
            (Some((staged, _)), _) => staged.discard(folder),
            (None, Made::New(_)) if matches!(problem.what, What::Clone | What::Refused) => {
                let _gone = unlinkat(folder, &entry.task.dest, AtFlags::empty());
            }
            (None, _) => (),
        }
    }
}

/// Opens the destination, empty unless what is in it is to be gone on with.
pub(crate) fn open(
    entry: &Entry<'_>,
    source: &Stat,
    way: Way,
    voice: &mut Voice<'_>,
) -> Result<Opened, Failure> {
    let options = entry.run.options;
    let replaceable = match &way {
        Way::New { .. } => true,
        Way::Into(there) => {
            there.legacy != Legacy::Attributes || file_type(&there.stat) == FileType::RegularFile
        }
    };
    let staged = options.placement == Placement::Atomic && options.manner == Manner::Copy;
    if staged && replaceable {
        return stage(entry, source, &way);
    }
    match way {
        Way::New { .. } => create(entry, source),
        Way::Into(there) => match open_existing(entry, &there) {
            Ok(opened) => Ok(opened),
            Err((problem, Errno::NOENT)) => create(entry, source).map_err(|_| problem),
            Err((problem, _)) if options.making_way != MakingWay::Unwritable => Err(problem),
            Err((problem, _)) if matches!(problem.what, What::Replaced | What::Stopped(_)) => {
                Err(problem)
            }
            Err(_) => {
                entry.remove(voice)?;
                create(entry, source)
            }
        },
    }
}

/// Reading is needed where the copy is compared with its source.
fn access(entry: &Entry<'_>) -> OFlags {
    let options = entry.run.options;
    let reads = options.verification == Verification::On || options.leftovers == Leftovers::Resumed;
    let access = if reads { OFlags::RDWR } else { OFlags::WRONLY };
    access | OFlags::NOCTTY | OFlags::CLOEXEC
}

fn create(entry: &Entry<'_>, source: &Stat) -> Result<Opened, Failure> {
    let (task, options) = (entry.task, entry.run.options);
    let folder = task.folders.dest.fd();
    let mode = metadata::mode_at_first(source, &options.preserve, &entry.run.process);
    let bits = Mode::from_raw_mode(mode);
    let flags = access(entry) | OFlags::CREATE;
    let created = match openat(folder, &task.dest, flags | OFlags::EXCL, bits) {
        Err(Errno::EXIST) => match link_in_the_way(entry) {
            Some(What::Dangling) if options.dangling == Dangling::WrittenThrough => {
                openat(folder, &task.dest, flags, bits)
            }
            Some(what) => return Err(Box::new(Problem::said(what, entry.dest_shown()))),
            None => Err(Errno::EXIST),
        },
        Err(Errno::ISDIR) if task.dest.to_bytes().ends_with(b"/") => Err(Errno::NOTDIR),
        created => created,
    };
    created
        .and_then(|fd| Opened::new(fd, Made::New(mode)))
        .map_err(|errno| Box::new(Problem::of(What::CreateFile, entry.dest_shown(), errno)))
}

/// What a symbolic link is that keeps a file from being created.
fn link_in_the_way(entry: &Entry<'_>) -> Option<What> {
    let task = entry.task;
    readlinkat(task.folders.dest.fd(), &task.dest, Vec::new()).ok()?;
    match (task.role, task.folders.surroundings) {
        (Role::Inside, Surroundings::Fresh) => Some(What::Planted),
        _ => Some(What::Dangling),
    }
}

/// Opens what was seen, and nothing that has taken its place since; empties it only then.
fn open_existing(entry: &Entry<'_>, there: &There) -> Result<Opened, (Failure, Errno)> {
    let (task, options) = (entry.task, entry.run.options);
    let failed = |errno| {
        let problem = Problem::of(What::CreateFile, entry.dest_shown(), errno);
        (Box::new(problem), errno)
    };
    let replaced = || {
        let problem = Problem::said(What::Replaced, entry.dest_shown());
        (Box::new(problem), Errno::STALE)
    };
    let mut flags = access(entry);
    if there.link.is_none() {
        flags |= OFlags::NOFOLLOW;
    }
    let folder = task.folders.dest.fd();
    let open = |more: OFlags| openat(folder, &task.dest, flags | more, Mode::empty());
    let fd = match file_type(&there.stat) {
        FileType::Fifo => fifo::open_for_reader(open, || entry.run.stopped()),
        _ => open(OFlags::empty()),
    };
    let fd = fd.map_err(|errno| match errno {
        Errno::INTR if entry.run.stopped() => (stopped(entry, 0), errno),
        errno => failed(errno),
    })?;
    let mut opened = Opened::new(fd, Made::Before).map_err(failed)?;
    if identity(&opened.stat) != identity(&there.stat) || !is_the_link(entry, there) {
        return Err(replaced());
    }
    let keeps = options.manner == Manner::AttributesOnly || options.leftovers == Leftovers::Resumed;
    if opened.is_regular() && !keeps {
        ftruncate(&opened.fd, 0).map_err(failed)?;
        (opened.stat.st_size, opened.stat.st_blocks) = (0, 0);
    }
    Ok(opened)
}

/// Whether the link that was followed is the one that was seen: one that was renamed away and back
/// has another time of change.
fn is_the_link(entry: &Entry<'_>, there: &There) -> bool {
    let Some(link) = &there.link else { return true };
    let task = entry.task;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    statat(task.folders.dest.fd(), &task.dest, flags).is_ok_and(|now| {
        let changed = |stat: &Stat| (stat.st_ctime, stat.st_ctime_nsec);
        identity(&now) == identity(link) && changed(&now) == changed(link)
    })
}

/// A file beside the destination, with what of the old one stays where it is overwritten in place:
/// owner and mode.
fn stage(entry: &Entry<'_>, source: &Stat, way: &Way) -> Result<Opened, Failure> {
    let (task, run) = (entry.task, entry.run);
    let folder = task.folders.dest.fd();
    let mode = metadata::mode_at_first(source, &run.options.preserve, &run.process);
    let bits = Mode::from_raw_mode(mode);
    let failed = |what, errno| Box::new(Problem::of(what, entry.dest_shown(), errno));
    if let (Way::New { .. }, Some(what)) = (way, link_in_the_way(entry)) {
        return Err(Box::new(Problem::said(what, entry.dest_shown())));
    }
    let (fd, staged) = match run.options.leftovers {
        Leftovers::Resumed => Staged::lasting(folder, &task.dest, bits, run.process.user)
            .map_err(|errno| failed(What::Resume, errno))?,
        Leftovers::Overwritten => {
            Staged::create(folder.as_fd(), bits).map_err(|errno| failed(What::CreateFile, errno))?
        }
    };
    let mut opened =
        Opened::new(fd, Made::New(mode)).map_err(|errno| failed(What::CreateFile, errno))?;
    match way {
        Way::Into(there) if there.legacy == Legacy::Attributes && there.link.is_none() => {
            inherit(entry, there, &mut opened);
        }
        // A link that is replaced has nothing that a file could take over.
        _ => (),
    }
    opened.staged = Some((staged, over(way)));
    if let Way::Into(there) = way
        && matches!(there.legacy, Legacy::Backup(_))
    {
        opened.backs_up = BacksUp::Yes;
    }
    Ok(opened)
}

fn inherit(entry: &Entry<'_>, there: &There, opened: &mut Opened) {
    let keep = Preserve {
        mode: Wish::Tried,
        ownership: Wish::Tried,
        ..Preserve::default()
    };
    let old = Held::Named(entry.task.folders.dest.fd(), &entry.task.dest);
    let new = Held::Open(opened.fd.as_fd());
    // An ordinary user can't give files away; the new one is then his own, as a new file is.
    let _tried = metadata::preserve(
        old,
        &there.stat,
        new,
        opened.made,
        &keep,
        &entry.run.process,
    );
    opened.made = Made::Before;
}
