//! Closes the partitions of a data folder so that the next start is fast.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::error::{LogError, at};
use crate::files::disk;
use crate::files::epochs::LeaderEpochs;
use crate::manager::parallel;
use crate::partition::PartitionLog;
use crate::producers::{ProducerSnapshot, SNAPSHOT_BYTES_MAX};
use crate::segment::{SNAPSHOT, file_path, lock};

/// The interval between two progress reports of a slow close.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Writes the files that the next start needs of each partition, several at a time, up to the first
/// failure. Logs the number of remaining partitions every second.
///
/// # Errors
/// [`LogError::Disk`].
pub(crate) fn finish_all(partitions: &[Arc<PartitionLog>], threads: usize) -> Result<(), LogError> {
    let failure = Mutex::new(None);
    let left = AtomicUsize::new(partitions.len());
    let report = |ended: mpsc::Receiver<()>| {
        while ended.recv_timeout(REPORT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let (left, all) = (left.load(Ordering::Relaxed), partitions.len());
            tracing::warn!(
                "stopping: {left} of {all} partitions left; if it is killed now, nothing is lost, \
                 and the next start takes longer"
            );
        }
    };
    thread::scope(|scope| {
        let (_ends_with_this, ended) = mpsc::channel();
        let reporter = thread::Builder::new().name("log-closing".to_owned());
        // Reports are optional.
        let _ = reporter.spawn_scoped(scope, move || report(ended));
        parallel::for_each(partitions, threads, |log| {
            if lock(&failure).is_none()
                && let Err(error) = finish(log)
            {
                lock(&failure).get_or_insert(at(&log.folder)(error));
            }
            left.fetch_sub(1, Ordering::Relaxed);
        });
    });
    let failure = lock(&failure).take();
    failure.map_or(Ok(()), Err)
}

/// Writes the files that the next start needs of a partition. Skips files that are up to date: each
/// write costs a sync, and most partitions of a large folder have not changed.
fn finish(log: &PartitionLog) -> io::Result<()> {
    log.sync()?;
    log.finish_sealed()?;
    log.finish_rest()?;
    let (segment, index, next, snapshot, state) = {
        let appender = lock(&log.appender);
        let mut index = lock(&appender.index).clone();
        index.seal();
        let snapshot = appender.producers.snapshot();
        (
            Arc::clone(&appender.active),
            index,
            appender.next_offset,
            snapshot,
            appender.state(),
        )
    };
    disk::truncate(&*segment.open()?.file, segment.size())?;
    segment.write_index(&index)?;
    if let Some(state) = state {
        state.write(&log.folder)?;
    }
    if write_snapshot(log, next, &snapshot)? {
        disk::sync_folder(&log.folder)?;
    }
    let epochs = log.published().epochs.clone();
    match LeaderEpochs::read(&log.folder) {
        Some(written) if written == epochs => Ok(()),
        _ => epochs.write(&log.folder),
    }
}

/// Writes a snapshot at the end of the log, unless the file is up to date. Returns whether it did.
fn write_snapshot(log: &PartitionLog, end: i64, producers: &ProducerSnapshot) -> io::Result<bool> {
    let (path, content) = (file_path(&log.folder, end, SNAPSHOT), producers.file());
    if disk::read(&path, SNAPSHOT_BYTES_MAX).is_ok_and(|written| written == content) {
        return Ok(false);
    }
    disk::write_whole(&path, &content).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicConfig;
    use crate::config::DataFolderOptions;
    use crate::files::trace::{Operation, Trace};
    use crate::manager::LogManager;
    use crate::position::TopicPartition;

    #[test]
    fn a_stop_syncs_little_of_partitions_that_have_not_changed() {
        const PARTITIONS: i32 = 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let config = Arc::new(TopicConfig::default());
        let options = DataFolderOptions::default;
        let open = || {
            let config = |_: &str| Arc::clone(&config);
            LogManager::open(&path, options(), &config, Box::new(|_| ())).unwrap()
        };
        let (manager, _) = open();
        for number in 0..PARTITIONS {
            let name = TopicPartition::new("t", number);
            manager.create(name, "id", Arc::clone(&config)).unwrap();
        }
        // Syncs of two indexes, and the first time also of the snapshot and its name.
        for syncs_max in [4, 2] {
            let trace = Trace::begin(&path);
            manager.close().unwrap();
            let operations = trace.operations();
            let syncs = operations.iter().filter(|operation| match operation {
                Operation::Sync(of) | Operation::SyncFolder(of) => of.starts_with("t-0"),
                _ => false,
            });
            assert!(syncs.count() <= syncs_max, "{operations:?}");
        }
    }
}
