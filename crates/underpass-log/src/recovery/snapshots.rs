//! The snapshots of producers in a folder.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::error::LogError;
use crate::files::disk;
use crate::producers::{ProducerStates, SNAPSHOT_BYTES_MAX};
use crate::recovery::leftovers::remove_if_there;
use crate::segment::{SNAPSHOT, file_path, parse_name};

/// Returns the producers of the latest readable snapshot from `first` to `last`, and its offset; no
/// producers, and `first`, if there are no such snapshots.
pub(super) fn latest_producers(folder: &Path, first: i64, last: i64) -> (ProducerStates, i64) {
    let mut offsets = snapshots(folder);
    offsets.retain(|offset| (first..=last).contains(offset));
    let read = |offset: &i64| {
        let path = file_path(folder, *offset, SNAPSHOT);
        let content = disk::read(&path, SNAPSHOT_BYTES_MAX);
        let content = content.map_err(|error| error.to_string());
        let producers = content.and_then(|content| {
            let producers = ProducerStates::of_snapshot(&content);
            producers.ok_or("the snapshot is damaged".to_owned())
        });
        let warn = |wrong: &String| {
            let path = path.display();
            tracing::warn!("{path}: {wrong}; producers are found out from the log");
        };
        Some((producers.inspect_err(warn).ok()?, *offset))
    };
    let found = offsets.iter().rev().find_map(read);
    found.unwrap_or((ProducerStates::default(), first))
}

/// Returns the offsets of the snapshots, sorted.
fn snapshots(folder: &Path) -> Vec<i64> {
    let mut offsets = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Some((offset, SNAPSHOT)) = entry.file_name().to_str().and_then(parse_name) {
            offsets.push(offset);
        }
    }
    offsets.sort_unstable();
    offsets
}

/// Removes snapshots outside the log: they would be wrong once the log reaches their offsets again.
pub(super) fn remove_snapshots(folder: &Path, log: RangeInclusive<i64>) -> Result<(), LogError> {
    for offset in snapshots(folder) {
        if !log.contains(&offset) {
            remove_if_there(&file_path(folder, offset, SNAPSHOT))?;
        }
    }
    Ok(())
}
