//! Deletes segments that exceed the retention time or size.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::files::disk;
use crate::partition::PartitionLog;
use crate::position::TopicPartition;
use crate::segment::{INDEX, LOG, SNAPSHOT, Segment, TIME_INDEX, lock};

const DELETED: &str = "deleted";

/// Deleted files and folders. They stay under other names for `file.delete.delay.ms`, for readers
/// that notice the deletion late.
#[derive(Debug, Default)]
pub(crate) struct DeletedFiles(pub(crate) Mutex<Vec<(PathBuf, Instant)>>);

/// The default of `file.delete.delay.ms`, for folders that an earlier process deleted.
const DELAY_MS: u64 = 60_000;

impl DeletedFiles {
    /// Finds folders that were deleted by earlier processes.
    pub(crate) fn left_in(folder: &Path) -> DeletedFiles {
        let left = DeletedFiles::default();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().and_then(of_deleted_folder).is_some() {
                left.add(entry.path(), DELAY_MS);
            }
        }
        left
    }

    /// Schedules the removal of a renamed file or folder.
    pub(crate) fn add(&self, path: PathBuf, delay_ms: u64) {
        // A delay that overflows is left to the next start.
        if let Some(due) = Instant::now().checked_add(Duration::from_millis(delay_ms)) {
            lock(&self.0).push((path, due));
        }
    }

    /// Removes files and folders whose delay has passed.
    pub(crate) fn remove_due(&self) {
        let now = Instant::now();
        let due: Vec<_> = lock(&self.0)
            .extract_if(.., |(_, due)| *due <= now)
            .collect();
        for (path, _) in due {
            let removed = match path.is_dir() {
                true => disk::remove_folder(&path),
                false => disk::remove_if_there(&path),
            };
            if let Err(error) = removed {
                tracing::warn!("{}: {error}", path.display());
            }
        }
    }
}

/// Reads the records of the oldest segments that look expired by the headers of their batches.
/// These timestamps come from clients, so they alone never expire a segment. Takes time in
/// proportion to the size of the expired segments, and holds no lock meanwhile.
///
/// # Errors
/// I/O errors.
fn read_expired(log: &PartitionLog, now_ms: i64) -> io::Result<()> {
    let config = log.config();
    let retention_ms = config.retention_ms;
    let segments = log.published().segments.clone();
    for segment in segments.iter().filter(|_| config.cleanup_policy.deletes()) {
        let looks_old = is_too_old(segment, retention_ms, now_ms, Claims::Believed)?;
        let enough = now_ms.saturating_sub(retention_ms);
        if !looks_old || segment.size() > 0 && segment.latest_record()? >= enough {
            break;
        }
    }
    Ok(())
}

/// Takes expired segments out of the log of a partition, according to its configuration. If the
/// active segment expires, a new one is started first. Readers of the segments are not interrupted.
///
/// # Errors
/// I/O errors.
pub(crate) fn take_expired(log: &PartitionLog, now_ms: i64) -> io::Result<Vec<Arc<Segment>>> {
    read_expired(log, now_ms)?;
    let _files = lock(&log.files);
    if log.is_deleted() {
        return Ok(Vec::new());
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
        // Full segments may be empty because of damage.
        let is_empty = next.is_none() && segment.size() == 0;
        let is_expired = config.cleanup_policy.deletes()
            && (is_too_much || is_too_old(segment, config.retention_ms, now_ms, Claims::Verified)?);
        let goes = end <= seen && !is_empty && (end <= start || is_expired);
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
            // A record was appended meanwhile.
            false => expired -= 1,
        }
    }
    let mut published = log.published();
    let expired: Vec<_> = published.segments.drain(..expired).collect();
    let first = published.segments.first().map_or(0, |segment| segment.base);
    let start = published.start.max(first);
    published.start = start;
    published.epochs.cut_start(start);
    Ok(expired)
}

/// Whether timestamps in the headers of batches are trusted.
#[derive(Clone, Copy, PartialEq)]
enum Claims {
    Believed,
    Verified,
}

/// Whether the latest record of a segment is past the retention time.
fn is_too_old(
    segment: &Segment,
    retention_ms: i64,
    now_ms: i64,
    claims: Claims,
) -> io::Result<bool> {
    if retention_ms < 0 {
        return Ok(false);
    }
    let is_old = |latest: i64| now_ms.saturating_sub(latest) > retention_ms;
    let known = segment.known_latest_record();
    if claims == Claims::Verified && segment.size() > 0 && !known.is_some_and(is_old) {
        return Ok(false);
    }
    let latest = segment.largest_timestamp()?;
    let latest = latest
        .map(|(timestamp, _)| timestamp)
        .filter(|timestamp| *timestamp >= 0);
    let latest = match latest {
        Some(latest) => latest,
        // Records without timestamps are as old as their file.
        None => segment.modified_ms()?,
    };
    Ok(is_old(latest))
}

/// Renames the files of segments that were taken out of the log. The new log start must be written
/// before: recovery takes missing files after the log start for a loss.
///
/// A crash may undo renames in any order. It must leave neither a gap, after which everything would
/// count as lost, nor an empty folder, which would lose the next offset. So the remaining segment
/// is synced first, and then each deleted one, oldest first.
///
/// # Errors
/// I/O errors.
pub(crate) fn delete(
    log: &PartitionLog,
    segments: &[Arc<Segment>],
    deleted: &DeletedFiles,
) -> io::Result<()> {
    let _files = lock(&log.files);
    if log.is_deleted() {
        return Ok(());
    }
    let first = log
        .published()
        .segments
        .first()
        .map_or(0, |first| first.base);
    disk::sync_folder(&log.folder)?;
    let delay_ms = log.config().file_delete_delay_ms;
    for segment in segments {
        segment.close();
        for extension in [LOG, INDEX, TIME_INDEX, SNAPSHOT] {
            // The snapshot at the new start is still needed.
            if extension == SNAPSHOT && segment.base >= first {
                continue;
            }
            let path = segment.path(extension);
            let gone = deleted_file(&path);
            match disk::rename(&path, &gone) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => deleted.add(gone, delay_ms),
            }
        }
        disk::sync_folder(&log.folder)?;
    }
    Ok(())
}

fn deleted_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(DELETED);
    name.into()
}

/// Returns the name for the folder of a deleted partition: Kafka's, but with a unique number in
/// place of the topic ID.
pub(crate) fn deleted_folder(log: &PartitionLog) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unique = since.unwrap_or_default().as_nanos() ^ u128::from(log.number()) << 96;
    let name = log.name().to_string();
    format!("{}.{unique:032x}-delete", cut_name(&name))
}

/// Returns the part of a partition name that the folder of a deleted partition keeps, so that the
/// whole name fits in 255 bytes (`NAME_MAX`).
pub(crate) fn cut_name(partition: &str) -> &str {
    partition.get(..CUT_NAME_BYTES).unwrap_or(partition)
}

const CUT_NAME_BYTES: usize = 255 - ".-delete".len() - UNIQUE_DIGITS;

const UNIQUE_DIGITS: usize = 32;

/// Returns the names of deleted partitions whose folders are not removed yet, shortened as by
/// [`cut_name`].
pub(crate) fn deleted_partitions(folder: &Path) -> BTreeSet<String> {
    let mut deleted = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        deleted.extend(name.to_str().and_then(of_deleted_folder).map(str::to_owned));
    }
    deleted
}

/// Returns the possibly shortened partition name of a deleted folder.
fn of_deleted_folder(folder: &str) -> Option<&str> {
    let (partition, unique) = folder.strip_suffix("-delete")?.rsplit_once('.')?;
    let is_unique =
        unique.len() == UNIQUE_DIGITS && unique.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_cut = partition.len() == CUT_NAME_BYTES && is_unique;
    (is_cut || TopicPartition::of_folder(partition).is_some()).then_some(partition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_partitions_are_removed() {
        let cut = format!("{}.{:032x}-delete", "t".repeat(215), 7);
        assert_eq!(cut.len(), 255);
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
            assert_eq!(of_deleted_folder(name).is_some(), is_one, "{name}");
        }
    }
}
