//! Completes interrupted deletions and replacements, in Kafka's order, and removes files without
//! segments.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{LogError, at};
use crate::files::disk::{self, DiskWait};
use crate::recovery::cut::unused_name;
use crate::segment::{
    CHECKPOINT, INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, file_path, is_intact_at,
    parse_name, walk,
};

const SWAP: &str = ".swap";

/// Completes interrupted deletions and replacements.
pub(super) fn clear_leftovers(folder: &Path) -> Result<(), LogError> {
    remove_all(folder, |_, extension| extension.ends_with(".deleted"))?;
    let bases = |suffix: &str| {
        let names = names(folder)?.into_iter();
        let with = names.filter(|name| name.ends_with(suffix));
        Ok(with.filter_map(|name| Some(parse_name(&name)?.0)).min())
    };
    if let Some(cleaned) = bases(".cleaned")? {
        // Replacements from this segment on were incomplete.
        remove_all(folder, |base, extension| {
            base >= cleaned && extension.ends_with(SWAP)
        })?;
    }
    remove_all(folder, |_, extension| {
        extension.ends_with(".cleaned") || extension.ends_with(".tmp")
    })?;
    if bases(SWAP)?.is_some() {
        swap(folder)?;
    }
    let logs: BTreeSet<i64> = names(folder)?
        .iter()
        .filter_map(|name| parse_name(name))
        .filter_map(|(base, extension)| (extension == LOG).then_some(base))
        .collect();
    let indexes = [INDEX, TIME_INDEX, TRANSACTION_INDEX];
    remove_all(folder, |base, extension| {
        indexes.contains(&extension) && !logs.contains(&base)
            || extension == CHECKPOINT && logs.last() != Some(&base)
    })
}

/// Replaces segments with the compacted ones that were made from them.
fn swap(folder: &Path) -> Result<(), LogError> {
    let (mut first, mut end) = (i64::MAX, i64::MIN);
    for name in names(folder)? {
        let Some((base, "log.swap")) = parse_name(&name) else {
            continue;
        };
        let path = folder.join(&name);
        match end_of(&path, base).map_err(at(&path))? {
            Some(behind) => (first, end) = (first.min(base), end.max(behind)),
            None => {
                let kept = unused_name(&file_path(folder, base, LOG));
                tracing::warn!(
                    "{}: this is not whole, and does not replace anything; it is {} now",
                    path.display(),
                    kept.display()
                );
                disk::rename(&path, &kept).map_err(at(&path))?;
                remove_all(folder, |other, extension| {
                    other == base && extension.ends_with(SWAP)
                })?;
            }
        }
    }
    for name in names(folder)? {
        let Some((base, extension)) = parse_name(&name) else {
            continue;
        };
        let is_replaced = [LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX].contains(&extension);
        if is_replaced && (first..end).contains(&base) {
            let path = folder.join(&name);
            tracing::warn!("{}: a compacted segment takes its place", path.display());
            disk::rename(&path, &folder.join(format!("{name}.deleted"))).map_err(at(&path))?;
        }
    }
    disk::sync_folder(folder).map_err(at(folder))?;
    for name in names(folder)?.iter().filter(|name| name.ends_with(SWAP)) {
        let path = folder.join(name);
        let to = folder.join(name.trim_end_matches(SWAP));
        disk::rename(&path, &to).map_err(at(&path))?;
    }
    disk::sync_folder(folder).map_err(at(folder))
}

/// Returns the offset after the batches of a segment; `None` unless the whole file is valid.
fn end_of(path: &Path, base: i64) -> io::Result<Option<i64>> {
    let size = disk::regular_size(path)?;
    let file = File::open(path)?;
    let (mut next, mut whole, mut wrong) = (base, 0, Ok(()));
    walk(&file, 0, size, DiskWait::Allowed, &mut |place, header| {
        let is_right = match header.is_within(base, next) {
            true => is_intact_at(&file, place, header),
            false => Ok(false),
        };
        match is_right {
            Ok(true) => {
                (next, whole) = (header.next_offset(), place.position + place.size);
                ControlFlow::Continue(())
            }
            outcome => {
                wrong = outcome.map(|_| ());
                ControlFlow::Break(())
            }
        }
    })?;
    wrong?;
    Ok((whole == size && size > 0).then_some(next))
}

/// Renames a segment to a name that nothing reads, and removes its other files.
pub(super) fn drop_segment(folder: &Path, base: i64) -> Result<(), LogError> {
    let log = file_path(folder, base, LOG);
    disk::rename(&log, &unused_name(&log)).map_err(at(&log))?;
    for extension in [INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT, CHECKPOINT] {
        remove_if_there(&file_path(folder, base, extension))?;
    }
    Ok(())
}

pub(super) fn remove_if_there(path: &Path) -> Result<(), LogError> {
    disk::remove_if_there(path).map_err(at(path))
}

/// Removes files of segments, selected by base offset and extension.
fn remove_all(folder: &Path, is_wanted: impl Fn(i64, &str) -> bool) -> Result<(), LogError> {
    for name in names(folder)? {
        if parse_name(&name).is_some_and(|(base, extension)| is_wanted(base, extension)) {
            let path = folder.join(name);
            tracing::debug!("{}: removed", path.display());
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

/// Returns the names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>, LogError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry.map_err(at(folder))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}
