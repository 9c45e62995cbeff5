//! Copies entries without content: symbolic links, hard links, FIFOs, sockets, devices.

use std::ffi::{CStr, CString};

use rustix::fs::{
    AtFlags, FileType, Mode, Stat, linkat, mknodat, readlinkat, symlinkat, utimensat,
};
use rustix::io::Errno;

use crate::entry::{Destination, Entry};
use crate::fs::atomic_file::replace;
use crate::fs::folder::{Folder, file_type};
use crate::metadata::{self, Creation, FolderRole, MetadataTarget};
use crate::options::{AskWhen, OverwritePolicy, RemoveExisting};
use crate::report::event::EntryOutcome;
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;

const COPIED: Result<EntryOutcome, Problem> = Ok(EntryOutcome::Copied);

/// Copies a symbolic link: its content, owner and times.
pub(crate) fn symlink(
    entry: &Entry<'_>,
    source: &Stat,
    dest: &Destination,
    events: &mut EventBuffer<'_>,
) -> Result<EntryOutcome, Problem> {
    let task = entry.task;
    let leads_to = readlinkat(task.folders.source.fd(), &task.source, Vec::new())
        .map_err(|errno| entry.at_source(ProblemKind::ReadSymlink, errno))?;
    match force_symlink(entry, &leads_to) {
        Err(Errno::EXIST) if is_the_same_link(entry, dest, &leads_to) => return COPIED,
        made => made.map_err(|errno| entry.at_dest(ProblemKind::CreateSymlink, errno))?,
    }
    preserve(entry, source, Creation::new(0o777), events);
    COPIED
}

/// Returns whether `-u` keeps a link because it leads to the right target.
fn is_the_same_link(entry: &Entry<'_>, dest: &Destination, leads_to: &CStr) -> bool {
    let updates = matches!(
        entry.run.options.overwrite,
        OverwritePolicy::UpdateOlder | OverwritePolicy::Ask(AskWhen::Older)
    );
    let task = entry.task;
    updates
        && matches!(dest, Destination::Existing(_))
        && readlinkat(task.folders.dest.fd(), &task.dest, Vec::new())
            .is_ok_and(|old| old.as_c_str() == leads_to)
}

/// Creates a symbolic link to the source (`-s`).
pub(crate) fn link_to_source(
    entry: &Entry<'_>,
    source: &Stat,
    events: &mut EventBuffer<'_>,
) -> Result<EntryOutcome, Problem> {
    let task = entry.task;
    let leads_to = entry.source_shown().into_encoded_bytes();
    let here = Folder::Working.identity();
    let is_here = here.is_some() && here == task.folders.dest.identity();
    if !leads_to.starts_with(b"/") && !is_here {
        return Err(Problem::new(
            ProblemKind::RelativeSymlink,
            entry.dest_shown(),
        ));
    }
    CString::new(leads_to)
        .map_err(|_nul| Errno::INVAL)
        .and_then(|leads_to| force_symlink(entry, &leads_to))
        .map_err(|errno| {
            let problem = entry.at_dest(ProblemKind::CreateSymlink, errno);
            problem.with_other(entry.source_shown())
        })?;
    if entry.run.options.preserve.timestamps.is_wanted() {
        let (folder, times) = (task.folders.dest.fd(), metadata::times(source));
        if let Err(errno) = utimensat(folder, &task.dest, &times, AtFlags::SYMLINK_NOFOLLOW) {
            events.problem(entry.at_dest(ProblemKind::Times, errno));
        }
    }
    COPIED
}

/// Creates a symbolic link; with `-f` replaces an existing file.
fn force_symlink(entry: &Entry<'_>, leads_to: &CStr) -> Result<(), Errno> {
    let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
    let options = entry.run.options;
    let replaces = options.remove_existing == RemoveExisting::IfUnwritable || options.atomic;
    match symlinkat(leads_to, folder, name) {
        Err(Errno::EXIST) if replaces => {
            replace(folder, name, |name| symlinkat(leads_to, folder, name))
        }
        done => done,
    }
}

/// Creates another name of the source (`-l`).
pub(crate) fn hard_link(entry: &Entry<'_>) -> Result<EntryOutcome, Problem> {
    let (task, options) = (entry.task, entry.run.options);
    let flags = match entry.follows() {
        true => AtFlags::SYMLINK_FOLLOW,
        false => AtFlags::empty(),
    };
    let folder = task.folders.dest.fd();
    let link = |name: &CStr| linkat(task.folders.source.fd(), &task.source, folder, name, flags);
    let replaces = options.remove_existing == RemoveExisting::IfUnwritable
        || matches!(options.overwrite, OverwritePolicy::Ask(_));
    let linked = match link(&task.dest) {
        Err(Errno::EXIST) if replaces => replace(folder, &task.dest, link),
        done => done,
    };
    linked.map_err(|errno| {
        let problem = entry.at_dest(ProblemKind::CreateHardLink, errno);
        problem.with_other(entry.source_shown())
    })?;
    COPIED
}

/// Creates a FIFO, socket or device.
pub(crate) fn node(
    entry: &Entry<'_>,
    source: &Stat,
    events: &mut EventBuffer<'_>,
) -> Result<EntryOutcome, Problem> {
    let (task, run) = (entry.task, entry.run);
    let mode = metadata::mode_at_first(
        source,
        &run.options.preserve,
        &run.process,
        FolderRole::Copy,
    );
    let node_type = file_type(source);
    let device = match node_type {
        FileType::BlockDevice | FileType::CharacterDevice => source.st_rdev,
        _ => 0,
    };
    let kind = match node_type {
        FileType::Fifo => ProblemKind::CreateFifo,
        _ => ProblemKind::CreateSpecial,
    };
    let (folder, bits) = (task.folders.dest.fd(), Mode::from_raw_mode(mode));
    mknodat(folder, &task.dest, node_type, bits, device)
        .map_err(|errno| entry.at_dest(kind, errno))?;
    preserve(entry, source, Creation::new(mode), events);
    COPIED
}

fn preserve(entry: &Entry<'_>, source: &Stat, creation: Creation, events: &mut EventBuffer<'_>) {
    let task = entry.task;
    entry.run.preserve(
        MetadataTarget::Named(task.folders.source.fd(), &task.source),
        source,
        MetadataTarget::Named(task.folders.dest.fd(), &task.dest),
        creation,
        (events, &|| entry.dest_shown()),
    );
}
