//! Deletes what is too old or too much.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::files::disk;
use crate::partition::PartitionLog;
use crate::position::TopicPartition;
use crate::segment::{INDEX, LOG, SNAPSHOT, Segment, TIME_INDEX, lock, parse_name};

const DELETED: &str = "deleted";

/// Files that were to be deleted go after this time, as `file.delete.delay.ms` by default.
const DELETE_DELAY: Duration = Duration::from_secs(60);

/// Deletes the oldest segments of a partition as far as its configuration has it. The active one is
/// followed by another one first, if it is to go too.
///
/// # Errors
/// Of the kernel.
pub(crate) fn retain(log: &PartitionLog, now_ms: i64) -> io::Result<()> {
    let _files = lock(&log.files);
    if log.is_deleted() {
        return Ok(());
    }
    let config = log.config();
    let (segments, start, seen, log_end) = {
        let published = log.published();
        let segments = published.segments.clone();
        let seen = published.high_watermark.offset;
        (segments, published.start, seen, published.end)
    };
    let mut size: u64 = segments.iter().map(|segment| segment.size()).sum();
    let mut expired = 0;
    for (number, segment) in segments.iter().enumerate() {
        let next = segments.get(number + 1).map(|next| next.base);
        let end = next.unwrap_or(log_end.offset);
        let is_too_much = u64::try_from(config.retention_bytes)
            .is_ok_and(|max| size.saturating_sub(segment.size()) >= max);
        let is_empty = segment.size() == 0;
        let goes = end <= seen
            && !is_empty
            && (end <= start || is_too_much || is_too_old(segment, config.retention_ms, now_ms)?);
        if !goes {
            break;
        }
        expired = number + 1;
        size = size.saturating_sub(segment.size());
    }
    if expired == segments.len() && expired > 0 {
        let mut appender = lock(&log.appender);
        match appender.end() == log_end {
            true => log.roll(&mut appender)?,
            // It has got a record meanwhile.
            false => expired -= 1,
        }
    }
    delete(log, &segments[..expired])
}

/// Whether the latest record of a segment is older than it may be.
fn is_too_old(segment: &Segment, retention_ms: i64, now_ms: i64) -> io::Result<bool> {
    if retention_ms < 0 {
        return Ok(false);
    }
    let latest = segment.largest_timestamp()?;
    let latest = latest
        .map(|(timestamp, _)| timestamp)
        .filter(|timestamp| *timestamp >= 0);
    let latest = match latest {
        Some(latest) => latest,
        // Records without times are as old as their file.
        None => modified_ms(&segment.path(LOG))?,
    };
    Ok(now_ms.saturating_sub(latest) > retention_ms)
}

fn modified_ms(path: &Path) -> io::Result<i64> {
    let modified = fs::metadata(path)?.modified()?;
    let since = modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Ok(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Takes segments out of the log, and gives their files another name. Who reads one goes on.
///
/// A crash may undo changes of names in any order. It must leave neither a gap, behind which
/// everything would be taken for lost, nor no segment at all, by which the next offset would be
/// lost: the segment that stays is synced first, and then each one that goes, from the oldest on.
fn delete(log: &PartitionLog, segments: &[Arc<Segment>]) -> io::Result<()> {
    if segments.is_empty() {
        return Ok(());
    }
    {
        let mut published = log.published();
        published.segments.drain(..segments.len());
        let first = published.segments.first().map_or(0, |segment| segment.base);
        published.start = published.start.max(first);
        let start = published.start;
        published.epochs.cut_start(start);
    }
    let first = log
        .published()
        .segments
        .first()
        .map_or(0, |segment| segment.base);
    disk::sync_folder(&log.folder)?;
    for segment in segments {
        segment.close();
        for extension in [LOG, INDEX, TIME_INDEX, SNAPSHOT] {
            // The producers at the beginning of what is left are still needed.
            if extension == SNAPSHOT && segment.base >= first {
                continue;
            }
            let path = segment.path(extension);
            match disk::rename(&path, &deleted_file(&path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        disk::sync_folder(&log.folder)?;
    }
    remove_old_files(&log.folder, log.config().file_delete_delay_ms)
}

fn deleted_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(DELETED);
    name.into()
}

/// Removes files that got their other name some time ago.
fn remove_old_files(folder: &Path, delay_ms: u64) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_deleted = name
            .to_str()
            .and_then(parse_name)
            .is_some_and(|(_, extension)| extension.ends_with(DELETED));
        if is_deleted && is_old(&entry.path(), Duration::from_millis(delay_ms)) {
            disk::remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether the name of a file or folder was changed so long ago.
fn is_old(path: &Path, delay: Duration) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(found) = fs::symlink_metadata(path) else {
        return false;
    };
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(found.ctime().unsigned_abs());
    changed.elapsed().is_ok_and(|elapsed| elapsed >= delay)
}

/// The name that the folder of a partition gets when it is deleted: Kafka's, with a number that no
/// other one has in place of its id.
pub(crate) fn deleted_folder(log: &PartitionLog) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unique = since.unwrap_or_default().as_nanos() ^ u128::from(log.number()) << 96;
    let end = format!(".{unique:032x}-delete");
    // As Kafka does, where the name is so long that no folder could have both.
    let name = log.name().to_string();
    let fits = (0..=FOLDER_NAME_BYTES_MAX - end.len()).rev();
    let name = { fits }.find_map(|length| name.get(..length.min(name.len())));
    name.unwrap_or_default().to_owned() + &end
}

/// The longest name of a folder (`NAME_MAX`).
const FOLDER_NAME_BYTES_MAX: usize = 255;

fn is_deleted_folder(folder: &str) -> bool {
    let name = folder.strip_suffix("-delete");
    let Some((partition, unique)) = name.and_then(|name| name.rsplit_once('.')) else {
        return false;
    };
    let is_unique = unique.len() == 32 && unique.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_cut = folder.len() == FOLDER_NAME_BYTES_MAX && is_unique;
    is_cut || TopicPartition::of_folder(partition).is_some()
}

/// Removes the folders of partitions that were deleted some time ago.
pub(crate) fn remove_deleted(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_deleted_folder)
            && is_old(&entry.path(), DELETE_DELAY)
            && let Err(error) = disk::remove_folder(&entry.path())
        {
            tracing::warn!("{}: {error}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_partitions_are_removed() {
        let cut = format!("{}.{:032x}-delete", "t".repeat(215), 7);
        assert_eq!(cut.len(), FOLDER_NAME_BYTES_MAX);
        for (name, is_one) in [
            ("t-0.5f3e-delete", true),
            ("a.b-12.00000000000000000000000000000001-delete", true),
            (&cut, true),
            (&cut[1..], false),
            ("please-delete", false),
            ("x.please-delete", false),
            ("t-0-delete", false),
            ("t-delete-0", false),
        ] {
            assert_eq!(is_deleted_folder(name), is_one, "{name}");
        }
    }
}
