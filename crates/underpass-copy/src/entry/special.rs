//! What has no content of its own to copy: symbolic links, other names, FIFOs, sockets, devices.

use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, Hasher, RandomState};

use rustix::fs::{
    Access, AtFlags, FileType, Mode, RenameFlags, Stat, accessat, linkat, mknodat, readlinkat,
    renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::entry::decide::file_type;
use crate::entry::execute::{Entry, Made, Way};
use crate::metadata::{self, Held};
use crate::options::{Existing, MakingWay, Placement};
use crate::report::problem::{Problem, What};
use crate::report::reporter::Voice;
use crate::tree::level::{Folder, identity};

type Outcome = Result<Made, Box<Problem>>;

/// A name that nobody else uses or guesses, for what gets its own name later.
pub(crate) fn name_beside() -> CString {
    let random = RandomState::new().build_hasher().finish();
    CString::new(format!(".underpass-{random:016x}")).unwrap_or_default()
}

/// Whether the process may write a file, as `access(2)` says for its effective user.
pub(crate) fn is_writable(folder: &Folder, name: &CStr) -> bool {
    accessat(folder.fd(), name, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// A symbolic link is copied: its content, owner and times.
pub(crate) fn symlink(
    entry: &Entry<'_>,
    source: &Stat,
    way: &Way,
    voice: &mut Voice<'_>,
) -> Outcome {
    let task = entry.task;
    let leads_to = readlinkat(task.folders.source.fd(), &task.source, Vec::new())
        .map_err(|errno| Problem::of(What::ReadSymlink, entry.source_shown(), errno))?;
    let failed = |errno| Problem::of(What::CreateSymlink, entry.dest_shown(), errno);
    let made = force_symlink(entry, &leads_to);
    if made == Err(Errno::EXIST) && is_the_same_link(entry, way, &leads_to) {
        return Ok(Made::default());
    }
    made.map_err(failed)?;
    preserve(entry, source, metadata::Made::New(0o777), voice);
    Ok(Made::default())
}

/// With `-u`, a link that leads where it should is as good as a new one.
fn is_the_same_link(entry: &Entry<'_>, way: &Way, leads_to: &CStr) -> bool {
    let updates = matches!(
        entry.run.options.existing,
        Existing::KeptUnlessOlder | Existing::Asked(crate::Update::Older)
    );
    let task = entry.task;
    updates
        && matches!(way, Way::Into(_))
        && readlinkat(task.folders.dest.fd(), &task.dest, Vec::new())
            .is_ok_and(|old| old.as_c_str() == leads_to)
}

/// A symbolic link to the source (`-s`).
pub(crate) fn link_to_source(entry: &Entry<'_>, source: &Stat, voice: &mut Voice<'_>) -> Outcome {
    let leads_to = entry.source_shown().into_encoded_bytes();
    if !leads_to.starts_with(b"/") && !is_in_working_folder(&entry.task.folders.dest) {
        return Err(Box::new(Problem::said(
            What::RelativeSymlink,
            entry.dest_shown(),
        )));
    }
    let failed = |errno| {
        let problem = Problem::of(What::CreateSymlink, entry.dest_shown(), errno);
        Box::new(problem.and(entry.source_shown()))
    };
    let leads_to = CString::new(leads_to).map_err(|_nul| failed(Errno::INVAL))?;
    force_symlink(entry, &leads_to).map_err(failed)?;
    if entry.run.options.preserve.timestamps.is_wanted() {
        let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
        if let Err(errno) = metadata::set_times_of_link(folder, name, source) {
            voice.problem(Problem::of(What::Times, entry.dest_shown(), errno));
        }
    }
    Ok(Made::default())
}

fn replaces_links(entry: &Entry<'_>) -> bool {
    let options = entry.run.options;
    options.making_way == MakingWay::Unwritable || options.placement == Placement::Atomic
}

fn is_in_working_folder(folder: &Folder) -> bool {
    let here = statat(Folder::Working.fd(), c".", AtFlags::empty());
    let there = statat(folder.fd(), c".", AtFlags::empty());
    matches!((here, there), (Ok(here), Ok(there)) if identity(&here) == identity(&there))
}

/// Makes a symbolic link; with `-f` also where something is.
fn force_symlink(entry: &Entry<'_>, leads_to: &CStr) -> Result<(), Errno> {
    let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
    match symlinkat(leads_to, folder, name) {
        Err(Errno::EXIST) if replaces_links(entry) => (),
        done => return done,
    }
    let beside = name_beside();
    symlinkat(leads_to, folder, &beside)?;
    put_over(entry, &beside)
}

/// Another name of the source (`-l`).
pub(crate) fn other_name(entry: &Entry<'_>) -> Outcome {
    let task = entry.task;
    let flags = match entry.run.follows(task.role) {
        true => AtFlags::SYMLINK_FOLLOW,
        false => AtFlags::empty(),
    };
    let folder = task.folders.dest.fd();
    let link = |name: &CStr| linkat(task.folders.source.fd(), &task.source, folder, name, flags);
    let replaces = entry.run.options.making_way == MakingWay::Unwritable
        || matches!(entry.run.options.existing, Existing::Asked(_));
    let linked = match link(&task.dest) {
        Err(Errno::EXIST) if replaces => {
            let beside = name_beside();
            link(&beside).and_then(|()| put_over(entry, &beside))
        }
        done => done,
    };
    linked.map_err(|errno| {
        let problem = Problem::of(What::CreateHardLink, entry.dest_shown(), errno);
        problem.and(entry.source_shown())
    })?;
    Ok(Made::default())
}

/// Gives what was made beside the destination its name.
fn put_over(entry: &Entry<'_>, beside: &CStr) -> Result<(), Errno> {
    let (folder, name) = (entry.task.folders.dest.fd(), &entry.task.dest);
    let put = renameat_with(folder, beside, folder, name, RenameFlags::empty());
    // Where both are names of one file already, nothing is renamed and the new one stays.
    match (put, unlinkat(folder, beside, AtFlags::empty())) {
        (Err(errno), _) => Err(errno),
        (Ok(()), _gone) => Ok(()),
    }
}

/// A FIFO, socket or device.
pub(crate) fn node(entry: &Entry<'_>, source: &Stat, voice: &mut Voice<'_>) -> Outcome {
    let task = entry.task;
    let wishes = &entry.run.options.preserve;
    let mode = metadata::mode_at_first(source, wishes, &entry.run.process);
    let kind = file_type(source);
    let device = match kind {
        FileType::BlockDevice | FileType::CharacterDevice => source.st_rdev,
        _ => 0,
    };
    let what = match kind {
        FileType::Fifo => What::CreateFifo,
        _ => What::CreateSpecial,
    };
    let (folder, mode_bits) = (task.folders.dest.fd(), Mode::from_raw_mode(mode));
    mknodat(folder, &task.dest, kind, mode_bits, device)
        .map_err(|errno| Problem::of(what, entry.dest_shown(), errno))?;
    preserve(entry, source, metadata::Made::New(mode), voice);
    Ok(Made::default())
}

fn preserve(entry: &Entry<'_>, source: &Stat, made: metadata::Made, voice: &mut Voice<'_>) {
    let (task, run) = (entry.task, entry.run);
    let troubles = metadata::preserve(
        Held::Named(task.folders.source.fd(), &task.source),
        source,
        Held::Named(task.folders.dest.fd(), &task.dest),
        made,
        &run.options.preserve,
        &run.process,
    );
    voice.troubles(troubles, || entry.dest_shown());
}
