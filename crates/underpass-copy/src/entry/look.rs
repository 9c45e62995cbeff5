//! Looks at a source and at what is in the place of its copy.

use std::ffi::CString;

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::entry::decide::DestinationFacts;
use crate::entry::same_file::FilePair;
use crate::entry::{Entry, ExistingDestination, Replaced};
use crate::fs::folder::Folder;
use crate::fs::path::without_slashes;
use crate::fs::stat::{identity, is_folder, is_link};
use crate::options::{Backup, RemoveExisting};
use crate::report::problem::{Problem, ProblemKind};
use crate::run::SourceCount;
use crate::tree::inode_table::NamedFile;
use crate::tree::level::DestinationOrigin;
use crate::tree::task::Role;

/// The source, followed as the copy follows it.
pub(crate) fn source(entry: &Entry<'_>) -> Result<Stat, Problem> {
    let (folder, name) = (&entry.task.folders.source, &entry.task.source);
    let looked = match entry.follows() {
        true => folder.look_behind(name),
        false => folder.look_at(name),
    };
    looked.map_err(|errno| Problem::failed(ProblemKind::Stat, entry.source_shown(), errno))
}

/// Whether a source other than a folder is on the command line for the second time.
pub(crate) fn is_repeated(entry: &Entry<'_>, source: &Stat) -> bool {
    let task = entry.task;
    let counts = task.role == Role::Operand
        && entry.run.sources == SourceCount::IntoFolder
        && *entry.backup() == Backup::None;
    let named = || NamedFile::new(&task.folders.source, &task.source, source);
    counts && !is_folder(source) && entry.run.inodes.is_repeated(named())
}

/// The facts about an existing destination; nothing where there is none.
pub(crate) fn destination(
    entry: &Entry<'_>,
    source: &Stat,
) -> Result<Option<DestinationFacts>, Problem> {
    let Some(dest) = existing(entry, source)? else {
        return Ok(None);
    };
    let is_kept = entry.run.options.keeps_existing();
    let is_file_over_file = !is_kept && !is_folder(source) && !is_folder(&dest.stat);
    Ok(Some(DestinationFacts {
        pair: match is_kept {
            true => None,
            false => pair(entry, source, &dest.stat),
        },
        is_just_created: is_file_over_file && is_just_created(entry, &dest),
        backup_is_source: is_file_over_file && backup_is_source(entry, source),
        dest,
    }))
}

fn existing(entry: &Entry<'_>, source: &Stat) -> Result<Option<ExistingDestination>, Problem> {
    let (run, task) = (entry.run, entry.task);
    let is_fresh = match task.folders.origin {
        DestinationOrigin::Imagined => true,
        DestinationOrigin::Fresh => task.role == Role::Inside,
        DestinationOrigin::Old => false,
    };
    if is_fresh {
        return Ok(None);
    }
    let failed = |errno| Problem::failed(ProblemKind::StatDestination, entry.dest_shown(), errno);
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
    if task.role == Role::Inside && run.is_newer_than_run(&stat) {
        return Err(Problem::new(ProblemKind::Planted, entry.dest_shown()));
    }
    match folder.look_behind(&task.dest) {
        Ok(behind) => Ok(Some(found(behind, Some(stat)))),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) if run.options.remove_existing == RemoveExisting::IfUnwritable => {
            Ok(Some(found(stat, None)))
        }
        Err(errno) => Err(failed(errno)),
    }
}

/// Source and destination, where they may be one file.
fn pair(entry: &Entry<'_>, source: &Stat, dest: &Stat) -> Option<FilePair> {
    let task = entry.task;
    let may_be_one = identity(source) == identity(dest) || is_link(source) || is_link(dest);
    if !may_be_one {
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
        is_same_entry: source_name == dest_name && folders[0].identity() == folders[1].identity(),
    })
}

/// Whether the destination is the copy of an earlier operand.
fn is_just_created(entry: &Entry<'_>, dest: &ExistingDestination) -> bool {
    let task = entry.task;
    let counts = task.role == Role::Operand
        && entry.run.sources == SourceCount::IntoFolder
        && *entry.backup() != Backup::Numbered;
    let stat = dest.link.as_ref().unwrap_or(&dest.stat);
    let named = || NamedFile::new(&task.folders.dest, &task.dest, stat);
    counts && entry.run.inodes.is_just_created(&named())
}

/// Whether the backup of the destination would replace the source.
fn backup_is_source(entry: &Entry<'_>, source: &Stat) -> bool {
    let (Backup::Simple(suffix) | Backup::Existing(suffix)) = entry.backup() else {
        return false;
    };
    let task = entry.task;
    let name = [task.dest.to_bytes(), suffix.as_encoded_bytes()].concat();
    let Ok(name) = CString::new(name) else {
        return false;
    };
    let there = || task.folders.dest.look_behind(&name);
    name == task.source && there().is_ok_and(|there| identity(&there) == identity(source))
}
