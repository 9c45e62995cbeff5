//! The file that is written: created, or opened without harm to any other file.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Access, AtFlags, accessat, unlinkat};
use rustix::fs::{
    FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, ftruncate, openat, readlinkat,
};
use rustix::io::Errno;

use crate::entry::{Destination, Entry, ExistingDestination, Replaced};
use crate::fs::atomic_file::{AtomicFile, CommitMode};
use crate::fs::folder::{
    Folder, changed_at, file_type, identity, is_link, is_regular, is_same_file, split,
};
use crate::fs::{backup, fifo};
use crate::metadata::{self, Creation, FolderRole, MetadataTarget};
use crate::options::{CopyMode, Preserve, PreserveLevel, RemoveExisting};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;
use crate::tree::level::{DestinationOrigin, Role};

/// The maximum number of symbolic links followed to a file; the kernel has the same limit.
const LINKS_MAX: usize = 40;

/// A destination that is open for writing.
pub(crate) struct OpenDestination {
    pub(crate) fd: OwnedFd,
    /// The state of the file now.
    pub(crate) stat: Stat,
    pub(crate) creation: Creation,
    /// How the file gets its name, if it has none yet.
    pending: Option<PendingName>,
}

/// The naming of a complete file.
struct PendingName {
    file: AtomicFile,
    folder: Folder,
    name: CString,
    over: CommitMode,
    /// Whether to back up the file that it replaces.
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

    /// Returns folder and name of the file, if it has a name yet.
    pub(crate) fn named<'t>(&self, entry: &Entry<'t>) -> Option<(&'t Folder, &'t CStr)> {
        let task = entry.task;
        self.pending
            .is_none()
            .then_some((&task.folders.dest, &task.dest))
    }

    /// Closes a complete file, and gives it its name if it has none yet.
    pub(crate) fn commit(self, entry: &Entry<'_>) -> Result<(), Problem> {
        let at_close = |errno| entry.at_dest(ProblemKind::Close, errno);
        let Some(pending) = self.pending else {
            return close(self.fd).map_err(at_close);
        };
        let (file, folder, name) = (pending.file, pending.folder.fd(), &pending.name);
        // A nameless file must be open to get its name, and errors of closing be known before that;
        // without a spare descriptor they are known only after it.
        let duplicate = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).ok();
        let was_closed = duplicate.is_some();
        let closed = duplicate.map_or(Ok(()), close);
        let prepared = match closed.map_err(at_close) {
            Ok(()) if pending.backs_up => backup::keep(folder, name, entry.backup())
                .map_err(|errno| entry.at_dest(ProblemKind::Backup, errno).by_call("linkat")),
            closed => closed,
        };
        prepared.inspect_err(|_| {
            let _gone = file.discard(folder);
        })?;
        file.commit(&self.fd, folder, name, pending.over)
            .map_err(|(errno, call)| entry.at_dest(ProblemKind::Rename, errno).by_call(call))?;
        match was_closed {
            true => Ok(()),
            false => close(self.fd).map_err(at_close),
        }
    }

    /// Handles a failed copy. As with `cp`, a partial file stays under its own name, but not a
    /// clone that was demanded and refused, nor a new file for which the disk was full from the
    /// start: it has no bytes worth keeping.
    pub(crate) fn discard(self, entry: &Entry<'_>, mut problem: Problem) -> Problem {
        let (folder, name) = (&entry.task.folders.dest, &entry.task.dest);
        let is_refused = matches!(problem.kind, ProblemKind::Clone | ProblemKind::Refused);
        let is_full = matches!(problem.errno, Some(Errno::NOSPC | Errno::DQUOT));
        if let Some(pending) = self.pending {
            let is_gone = pending.file.discard(pending.folder.fd());
            if is_gone && is_full && problem.moved == Some(0) {
                problem.moved = None;
            }
            return problem;
        }
        let is_worthless = is_refused || (is_full && problem.moved == Some(0));
        let is_it = || {
            folder
                .look_at(name)
                .is_ok_and(|now| identity(&now) == identity(&self.stat))
        };
        if is_worthless
            && self.creation != Creation::Existing
            && is_it()
            && unlinkat(folder.fd(), name, AtFlags::empty()).is_ok()
            && is_full
        {
            problem.moved = None;
        }
        problem
    }
}

/// Closes a file that was written. NFS, CIFS and FUSE report only here that data could not be
/// stored (close(2)). The descriptor is closed in any case.
fn close(fd: OwnedFd) -> Result<(), Errno> {
    nix::unistd::close(fd).map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

/// Opens the destination, truncated unless its content is resumed.
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
        let place =
            place(entry, &dest).map_err(|errno| entry.at_dest(ProblemKind::CreateFile, errno))?;
        if let Some(place) = place {
            return create_nameless(entry, source, &dest, place);
        }
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

/// Returns the error a real run would meet, as far as known without changes (`--dry-run`).
pub(crate) fn foresee(entry: &Entry<'_>, dest: &Destination) -> Result<(), Problem> {
    let (task, options) = (entry.task, entry.run.options);
    let source = &task.folders.source;
    let access = |folder: &Folder, name: &CStr, access| {
        accessat(folder.fd(), name, access, AtFlags::EACCESS)
    };
    access(source, &task.source, Access::READ_OK)
        .map_err(|errno| entry.at_source(ProblemKind::Open, errno))?;
    let is_replaced = options.atomic || options.remove_existing != RemoveExisting::Never;
    let writable = match dest {
        _ if task.folders.origin == DestinationOrigin::Imagined => Ok(()),
        Destination::Existing(_) if is_replaced => Ok(()),
        Destination::Existing(_) => access(&task.folders.dest, &task.dest, Access::WRITE_OK),
        Destination::New { .. } => {
            if let Some(problem) = link_in_the_way(entry) {
                return Err(problem);
            }
            place(entry, dest).and_then(|_| {
                let (prefix, _) = split(task.dest.to_bytes());
                let folder = CString::new(prefix).map_err(|_nul| Errno::INVAL)?;
                let folder = if prefix.is_empty() { c"." } else { &folder };
                access(
                    &task.folders.dest,
                    folder,
                    Access::WRITE_OK | Access::EXEC_OK,
                )
            })
        }
    };
    writable.map_err(|errno| entry.at_dest(ProblemKind::CreateFile, errno))
}

/// Returns the access mode: reading is needed if the copy is compared with its source.
fn access(entry: &Entry<'_>) -> OFlags {
    let options = entry.run.options;
    let reads = options.verify || options.resume;
    let access = if reads { OFlags::RDWR } else { OFlags::WRONLY };
    access | OFlags::NOCTTY | OFlags::CLOEXEC
}

/// Returns the permission bits to create a copy with.
fn first_mode(entry: &Entry<'_>, source: &Stat) -> u32 {
    metadata::mode_at_first(
        source,
        &entry.run.options.preserve,
        &entry.run.process,
        FolderRole::Copy,
    )
}

fn create(entry: &Entry<'_>, source: &Stat) -> Result<OpenDestination, Problem> {
    let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
    let mode = first_mode(entry, source);
    let bits = Mode::from_raw_mode(mode);
    let flags = access(entry) | OFlags::CREATE;
    let created = match openat(folder, name, flags | OFlags::EXCL, bits) {
        Err(Errno::EXIST) => match link_in_the_way(entry) {
            Some(problem)
                if problem.kind == ProblemKind::Dangling
                    && entry.run.options.write_through_dangling =>
            {
                openat(folder, name, flags, bits)
            }
            Some(problem) => return Err(problem),
            None => Err(Errno::EXIST),
        },
        Err(Errno::ISDIR) if name.to_bytes().ends_with(b"/") => Err(Errno::NOTDIR),
        created => created,
    };
    let failed = |errno| entry.at_dest(ProblemKind::CreateFile, errno);
    OpenDestination::new(created.map_err(failed)?, Creation::new(mode))
        .map_err(|errno| failed(errno).by_call("fstat"))
}

/// Returns the problem if a symbolic link keeps a file from being created.
fn link_in_the_way(entry: &Entry<'_>) -> Option<Problem> {
    let task = entry.task;
    let link = task.folders.dest.look_at(&task.dest).ok()?;
    if !is_link(&link) {
        return None;
    }
    let is_fresh = task.folders.origin == DestinationOrigin::Fresh;
    let kind = match task.role {
        Role::Inside if is_fresh => ProblemKind::Planted,
        _ if entry.may_be_planted(&link) => ProblemKind::Planted,
        _ => ProblemKind::Dangling,
    };
    Some(Problem::new(kind, entry.dest_shown()))
}

/// Opens only the file that was seen, not one that has replaced it since; then truncates it.
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
    let mut opened = OpenDestination::new(fd, Creation::Existing)
        .map_err(|errno| failed(errno).by_call("fstat"))?;
    if !is_same_file(&opened.fd, &opened.stat, &there.stat) || !is_the_link(entry, there) {
        return Err(Problem::new(ProblemKind::Replaced, entry.dest_shown()));
    }
    let keeps = options.copy_mode == CopyMode::AttributesOnly || options.resume;
    if is_regular(&opened.stat) && !keeps {
        ftruncate(&opened.fd, 0).map_err(|errno| failed(errno).by_call("ftruncate"))?;
        (opened.stat.st_size, opened.stat.st_blocks) = (0, 0);
    }
    Ok(opened)
}

/// Returns whether the followed link is the one that was seen: one that was renamed away and back
/// has another change time.
fn is_the_link(entry: &Entry<'_>, there: &ExistingDestination) -> bool {
    let Some(link) = &there.link else { return true };
    let now = entry.task.folders.dest.look_at(&entry.task.dest);
    now.is_ok_and(|now| identity(&now) == identity(link) && changed_at(&now) == changed_at(link))
}

/// Returns the folder and the name that a file is to be replaced in: those of the target of a
/// symbolic link that is followed. `None` if the link leads to an open descriptor (`/dev/stdout`),
/// which can only be written to.
///
/// # Errors
/// The reason why no file can be created there.
fn place(entry: &Entry<'_>, dest: &Destination) -> Result<Option<(Folder, CString)>, Errno> {
    let (mut folder, mut name) = (entry.task.folders.dest.clone(), entry.task.dest.clone());
    let followed = match dest {
        Destination::Existing(there) if there.link.is_some() => Some(identity(&there.stat)),
        _ => None,
    };
    let (prefix, last) = split(name.to_bytes());
    if last.ends_with(b"/") {
        return Err(Errno::NOTDIR);
    }
    if !prefix.is_empty() {
        // Its folder could not be opened: this returns the reason.
        Folder::place(folder.fd(), prefix, OFlags::empty())?;
    }
    for _ in 0..LINKS_MAX {
        let Some(followed) = followed else {
            return Ok(Some((folder, name)));
        };
        folder = Folder::place(folder.fd(), c".", OFlags::empty())?;
        let leads_to = match readlinkat(folder.fd(), &name, Vec::new()) {
            Err(Errno::INVAL) if identity(&folder.look_at(&name)?) == followed => {
                return Ok(Some((folder, name)));
            }
            Err(Errno::INVAL) => return Err(Errno::STALE),
            leads_to => leads_to?,
        };
        if fstatfs(folder.fd())?.f_type == PROC_SUPER_MAGIC {
            return Ok(None);
        }
        let (prefix, last) = split(leads_to.to_bytes());
        if !prefix.is_empty() {
            folder = Folder::place(folder.fd(), prefix, OFlags::empty())?;
        }
        name = CString::new(last).map_err(|_nul| Errno::INVAL)?;
    }
    Err(Errno::LOOP)
}

/// Creates a file in the folder of the destination, with the attributes that overwriting in place
/// keeps: owner and mode.
fn create_nameless(
    entry: &Entry<'_>,
    source: &Stat,
    dest: &Destination,
    (folder, name): (Folder, CString),
) -> Result<OpenDestination, Problem> {
    let run = entry.run;
    let mode = first_mode(entry, source);
    let bits = Mode::from_raw_mode(mode);
    let existing = match dest {
        Destination::New { .. } => None,
        Destination::Existing(there) => Some(there),
    };
    if existing.is_none()
        && let Some(problem) = link_in_the_way(entry)
    {
        return Err(problem);
    }
    let failed = |errno| entry.at_dest(ProblemKind::CreateFile, errno);
    let (fd, file) = match run.options.resume {
        true => AtomicFile::resume(folder.fd(), &name, bits, run.process.user).map_err(
            |(errno, call)| Problem {
                call,
                ..entry.at_dest(ProblemKind::Resume, errno)
            },
        )?,
        false => AtomicFile::create(folder.fd(), bits).map_err(failed)?,
    };
    let mut opened = OpenDestination::new(fd, Creation::new(mode))
        .map_err(|errno| failed(errno).by_call("fstat"))?;
    if let Some(there) = existing.filter(|there| there.replaced == Replaced::KeepsAttributes) {
        let old = MetadataTarget::Named(folder.fd(), &name);
        inherit(entry, (old, &there.stat), &mut opened);
    }
    opened.pending = Some(PendingName {
        file,
        folder,
        name,
        over: match existing {
            Some(_) => CommitMode::Anything,
            None => CommitMode::Nothing,
        },
        backs_up: existing.is_some_and(|there| matches!(there.replaced, Replaced::BackedUp(_))),
    });
    Ok(opened)
}

fn inherit(entry: &Entry<'_>, old: (MetadataTarget<'_>, &Stat), opened: &mut OpenDestination) {
    let keep = Preserve {
        mode: PreserveLevel::BestEffort,
        ownership: PreserveLevel::BestEffort,
        ..Preserve::default()
    };
    let (old, stat) = old;
    let new = MetadataTarget::Open(opened.fd.as_fd());
    let process = &entry.run.process;
    // An ordinary user cannot give files away; the file is then their own, as a new file is.
    let _tried = metadata::preserve(old, stat, new, opened.creation, &keep, process);
    opened.creation = Creation::Existing;
}
