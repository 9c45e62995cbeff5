//! Opens the partitions of a data folder.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::cleanup::retention;
use crate::config::TopicConfig;
use crate::error::{LogError, at};
use crate::files::checkpoints::{Checkpoints, OffsetCheckpoint};
use crate::files::disk;
use crate::files::properties;
use crate::manager::parallel;
use crate::partition::PartitionLog;
use crate::position::TopicPartition;
use crate::recovery::{self, Before, LastEnd, Repairs};
use crate::segment::damage::Numbering;
use crate::segment::lock;

const LOCK: &str = ".lock";
/// The interval between attempts to lock the folder.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// A partition found in a data folder.
#[derive(Debug)]
pub struct FoundPartition {
    /// The log of the partition.
    pub log: Arc<PartitionLog>,
    /// The repairs made to it.
    pub repairs: Repairs,
}

/// Returns partitions with synced records that are neither present nor deleted, and their offsets.
pub(super) fn missing<'c>(
    synced: &'c OffsetCheckpoint,
    folder: &Path,
    found: &[FoundPartition],
) -> Vec<(&'c TopicPartition, i64)> {
    let found: BTreeSet<_> = found.iter().map(|one| one.log.name()).collect();
    let synced = synced.iter().map(|(name, synced)| (name, *synced));
    let missing = synced.filter(|(name, synced)| *synced > 0 && !found.contains(name));
    let mut missing: Vec<_> = missing.collect();
    if !missing.is_empty() {
        let deleted = retention::deleted_partitions(folder);
        missing.retain(|(name, _)| !deleted.contains(retention::cut_name(&name.to_string())));
    }
    missing
}

pub(super) fn take_lock(folder: &Path, patience: Duration) -> Result<File, LogError> {
    let path = folder.join(LOCK);
    let file = disk::open(&path).map_err(at(&path))?;
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // flock has no timeout.
            Err(Errno::WOULDBLOCK) if begun.elapsed() < patience => thread::sleep(LOCK_INTERVAL),
            Err(Errno::WOULDBLOCK) => {
                return Err(LogError::InUse {
                    folder: folder.to_owned(),
                });
            }
            Err(errno) => return Err(at(&path)(errno.into())),
        }
    }
}

/// Opens all partitions, several at a time.
pub(super) fn open_all(
    folder: &Path,
    last_end: LastEnd,
    Checkpoints([synced, starts, _, cleaned]): &Checkpoints,
    config: &(dyn Fn(&str) -> Arc<TopicConfig> + Sync),
    threads: usize,
) -> Result<Vec<FoundPartition>, LogError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry.map_err(at(folder))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(TopicPartition::of_folder) else {
            continue;
        };
        let path = entry.path();
        // A link may lead to a folder elsewhere.
        match path.is_dir() {
            true => names.push(name),
            false => tracing::warn!("{}: this is no folder, and no partition", path.display()),
        }
    }
    names.sort();
    let found = Mutex::new(Vec::new());
    parallel::for_each(&names, threads, |name: &TopicPartition| {
        let config = config(&name.topic);
        let before = Before {
            last_end,
            recovery_point: synced.get(name).copied().unwrap_or(0),
            log_start: starts.get(name).copied().unwrap_or(0),
            numbering: match cleaned.contains_key(name) {
                true => Numbering::Compacted,
                false => Numbering::Consecutive,
            },
            index_interval: config.index_interval_bytes,
            replaces_lost: false,
        };
        let opened = open_one(&folder.join(name.to_string()), name, before, config);
        if let Ok(one) = &opened {
            one.log.set_compacted(cleaned.get(name).copied());
        }
        lock(&found).push(opened);
    });
    let found = std::mem::take(&mut *lock(&found));
    let mut found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
    found.sort_by(|one, other| one.log.name().cmp(other.log.name()));
    Ok(found)
}

fn open_one(
    folder: &Path,
    name: &TopicPartition,
    before: Before,
    config: Arc<TopicConfig>,
) -> Result<FoundPartition, LogError> {
    let opened = recovery::open(folder, before)?;
    let topic_id = properties::read_topic_id(folder).unwrap_or_default();
    let parts = (opened.published, opened.appender);
    let log = PartitionLog::new(name.clone(), topic_id, folder.to_owned(), config, parts);
    Ok(FoundPartition {
        log: Arc::new(log),
        repairs: opened.repairs,
    })
}
