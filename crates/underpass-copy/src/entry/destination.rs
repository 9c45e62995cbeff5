//! The file that is written: created, or opened without harm to anything else.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, unlinkat};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, ftruncate, openat};
use rustix::io::Errno;

use crate::entry::{Destination, Entry, ExistingDestination, Replaced};
use crate::fs::atomic_file::{AtomicFile, CommitMode};
use crate::fs::folder::{changed_at, file_type, identity, is_link, is_regular};
use crate::fs::{backup, fifo};
use crate::metadata::{self, Creation, MetadataTarget, Preserve, PreserveLevel};
use crate::options::{CopyMode, RemoveExisting};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;
use crate::tree::level::{DestinationOrigin, Role};

/// A destination that is open for writing.
pub(crate) struct OpenDestination {
    pub(crate) fd: OwnedFd,
    /// What it is now.
    pub(crate) stat: Stat,
    pub(crate) creation: Creation,
    /// How it gets its name, if it hasn't got it yet.
    pending: Option<PendingName>,
}

/// How a complete file gets its name.
struct PendingName {
    file: AtomicFile,
    over: CommitMode,
    /// What it replaces is backed up first.
    backs_up: bool,
}

impl OpenDestination {
    fn new(fd: OwnedFd, creation: Creation) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self {
            fd,
            stat,
            creation,
            pending: None,
        })
    }

    /// Closes a complete file, and gives it its name if it hasn't got it yet.
    pub(crate) fn commit(self, entry: &Entry<'_>) -> Result<(), Problem> {
        let at_close = |errno| entry.at_dest(ProblemKind::Close, errno);
        let Some(PendingName {
            file,
            over,
            backs_up,
        }) = self.pending
        else {
            return close(self.fd).map_err(at_close);
        };
        let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
        // A nameless file must be open to get its name, and what closing reports be known before.
        let closed = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).and_then(close);
        let prepared = match closed.map_err(at_close) {
            Ok(()) if backs_up => backup::keep(folder, name, entry.backup())
                .map_err(|errno| entry.at_dest(ProblemKind::Backup, errno)),
            closed => closed,
        };
        prepared.inspect_err(|_| file.discard(folder))?;
        file.commit(&self.fd, folder, name, over)
            .map_err(|errno| entry.at_dest(ProblemKind::Rename, errno))
    }

    /// The copy failed. What `cp` leaves in such a case stays: a part under its own name, but
    /// nothing of a clone that was demanded and refused.
    pub(crate) fn discard(self, entry: &Entry<'_>, problem: &Problem) {
        let folder = entry.task.folders.dest.fd();
        match (self.pending, self.creation) {
            (Some(pending), _) => pending.file.discard(folder),
            (None, Creation::New(_))
                if matches!(problem.kind, ProblemKind::Clone | ProblemKind::Refused) =>
            {
                let _gone = unlinkat(folder, &entry.task.dest, AtFlags::empty());
            }
            (None, _) => (),
        }
    }
}

/// Closes a file that was written. NFS, CIFS and FUSE report only here that data could not be stored
/// (close(2)). The descriptor is closed in any case.
fn close(fd: OwnedFd) -> Result<(), Errno> {
    nix::unistd::close(fd).map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

/// Opens the destination, empty unless what is in it is resumed.
pub(crate) fn open(
    entry: &Entry<'_>,
    source: &Stat,
    dest: Destination,
    events: &mut EventBuffer<'_>,
) -> Result<OpenDestination, Problem> {
    let options = entry.run.options;
    let is_replaceable = match &dest {
        Destination::New { .. } => true,
        Destination::Existing(there) => {
            there.replaced != Replaced::KeepsAttributes || is_regular(&there.stat)
        }
    };
    let is_atomic = options.atomic && options.copy_mode == CopyMode::Copy;
    if is_atomic && is_replaceable {
        return create_nameless(entry, source, &dest);
    }
    let there = match dest {
        Destination::New { .. } => return create(entry, source),
        Destination::Existing(there) => there,
    };
    match open_existing(entry, &there) {
        Err(problem) if problem.errno == Some(Errno::NOENT) => {
            create(entry, source).map_err(|_| problem)
        }
        Err(problem)
            if options.remove_existing == RemoveExisting::IfUnwritable
                && problem.kind == ProblemKind::CreateFile =>
        {
            entry.remove(events)?;
            create(entry, source)
        }
        opened => opened,
    }
}

/// Reading is needed where the copy is compared with its source.
fn access(entry: &Entry<'_>) -> OFlags {
    let options = entry.run.options;
    let reads = options.verify || options.resume;
    let access = if reads { OFlags::RDWR } else { OFlags::WRONLY };
    access | OFlags::NOCTTY | OFlags::CLOEXEC
}

/// The permission bits to create a copy with.
fn first_mode(entry: &Entry<'_>, source: &Stat) -> u32 {
    metadata::mode_at_first(source, &entry.run.options.preserve, &entry.run.process)
}

fn create(entry: &Entry<'_>, source: &Stat) -> Result<OpenDestination, Problem> {
    let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
    let mode = first_mode(entry, source);
    let bits = Mode::from_raw_mode(mode);
    let flags = access(entry) | OFlags::CREATE;
    let created = match openat(folder, name, flags | OFlags::EXCL, bits) {
        Err(Errno::EXIST) => match link_in_the_way(entry) {
            Some(ProblemKind::Dangling) if entry.run.options.write_through_dangling => {
                openat(folder, name, flags, bits)
            }
            Some(kind) => return Err(Problem::new(kind, entry.dest_shown())),
            None => Err(Errno::EXIST),
        },
        Err(Errno::ISDIR) if name.to_bytes().ends_with(b"/") => Err(Errno::NOTDIR),
        created => created,
    };
    created
        .and_then(|fd| OpenDestination::new(fd, Creation::New(mode)))
        .map_err(|errno| entry.at_dest(ProblemKind::CreateFile, errno))
}

/// What a symbolic link is that keeps a file from being created.
fn link_in_the_way(entry: &Entry<'_>) -> Option<ProblemKind> {
    let task = entry.task;
    let link = task.folders.dest.look_at(&task.dest).ok()?;
    if !is_link(&link) {
        return None;
    }
    let is_fresh = task.folders.origin == DestinationOrigin::Fresh;
    match task.role {
        Role::Inside if is_fresh || entry.run.is_newer_than_run(&link) => {
            Some(ProblemKind::Planted)
        }
        _ => Some(ProblemKind::Dangling),
    }
}

/// Opens what was seen, and nothing that has taken its place since; empties it only then.
fn open_existing(
    entry: &Entry<'_>,
    there: &ExistingDestination,
) -> Result<OpenDestination, Problem> {
    let options = entry.run.options;
    let failed = |errno| entry.at_dest(ProblemKind::CreateFile, errno);
    let mut flags = access(entry);
    if there.link.is_none() {
        flags |= OFlags::NOFOLLOW;
    }
    let folder = entry.task.folders.dest.fd();
    let open = |more: OFlags| openat(folder, &entry.task.dest, flags | more, Mode::empty());
    let fd = match file_type(&there.stat) {
        FileType::Fifo => fifo::open_for_reader(open, || entry.run.stopped()),
        _ => open(OFlags::empty()),
    };
    let fd = fd.map_err(|errno| match errno {
        Errno::INTR if entry.run.stopped() => entry.stopped(0),
        errno => failed(errno),
    })?;
    let mut opened = OpenDestination::new(fd, Creation::Existing).map_err(failed)?;
    if identity(&opened.stat) != identity(&there.stat) || !is_the_link(entry, there) {
        return Err(Problem::new(ProblemKind::Replaced, entry.dest_shown()));
    }
    let keeps = options.copy_mode == CopyMode::AttributesOnly || options.resume;
    if is_regular(&opened.stat) && !keeps {
        ftruncate(&opened.fd, 0).map_err(failed)?;
        (opened.stat.st_size, opened.stat.st_blocks) = (0, 0);
    }
    Ok(opened)
}

/// Whether the link that was followed is the one that was seen: one that was renamed away and back
/// has another time of change.
fn is_the_link(entry: &Entry<'_>, there: &ExistingDestination) -> bool {
    let Some(link) = &there.link else { return true };
    let now = entry.task.folders.dest.look_at(&entry.task.dest);
    now.is_ok_and(|now| identity(&now) == identity(link) && changed_at(&now) == changed_at(link))
}

/// Creates a file beside the destination, with what of the old one stays where a file is
/// overwritten in place: owner and mode.
fn create_nameless(
    entry: &Entry<'_>,
    source: &Stat,
    dest: &Destination,
) -> Result<OpenDestination, Problem> {
    let run = entry.run;
    let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
    let mode = first_mode(entry, source);
    let bits = Mode::from_raw_mode(mode);
    let existing = match dest {
        Destination::New { .. } => None,
        Destination::Existing(there) => Some(there),
    };
    if existing.is_none()
        && let Some(kind) = link_in_the_way(entry)
    {
        return Err(Problem::new(kind, entry.dest_shown()));
    }
    let failed = |errno| entry.at_dest(ProblemKind::CreateFile, errno);
    let (fd, file) = match run.options.resume {
        true => AtomicFile::resume(folder, name, bits, run.process.user)
            .map_err(|errno| entry.at_dest(ProblemKind::Resume, errno))?,
        false => AtomicFile::create(folder, bits).map_err(failed)?,
    };
    let mut opened = OpenDestination::new(fd, Creation::New(mode)).map_err(failed)?;
    match existing {
        Some(there) if there.replaced == Replaced::KeepsAttributes && there.link.is_none() => {
            inherit(entry, there, &mut opened);
        }
        // A link that is replaced has nothing that a file could take over.
        _ => (),
    }
    opened.pending = Some(PendingName {
        file,
        over: match existing {
            Some(_) => CommitMode::Anything,
            None => CommitMode::Nothing,
        },
        backs_up: existing.is_some_and(|there| matches!(there.replaced, Replaced::BackedUp(_))),
    });
    Ok(opened)
}

fn inherit(entry: &Entry<'_>, there: &ExistingDestination, opened: &mut OpenDestination) {
    let keep = Preserve {
        mode: PreserveLevel::BestEffort,
        ownership: PreserveLevel::BestEffort,
        ..Preserve::default()
    };
    let old = MetadataTarget::Named(entry.task.folders.dest.fd(), &entry.task.dest);
    let new = MetadataTarget::Open(opened.fd.as_fd());
    let process = &entry.run.process;
    // An ordinary user can't give files away; the new one is then their own, as a new file is.
    let _tried = metadata::preserve(old, &there.stat, new, opened.creation, &keep, process);
    opened.creation = Creation::Existing;
}
