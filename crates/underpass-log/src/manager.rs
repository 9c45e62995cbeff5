//! A data folder: its partitions, its threads and its checkpoint files.

mod closing;
mod opening;
mod parallel;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::cleanup::retention::{self, DeletedFiles};
use crate::cleanup::{CleanableFolder, CleanerStats, Cleaning, lower_priority};
use crate::config::{DataFolderOptions, TopicConfig};
use crate::error::{LogError, at};
use crate::files::checkpoints::Checkpoints;
use crate::files::disk;
use crate::files::properties::{self, MetaProperties};
use crate::files::times::unix_ms;
pub use crate::manager::opening::FoundPartition;
use crate::manager::opening::{missing, open_all, take_lock};
use crate::partition::PartitionLog;
use crate::position::TopicPartition;
use crate::recovery::{self, Before, LastEnd};
use crate::segment::lock;
use crate::threads::{Append, Completion, LogThreads, SYNCERS, SyncStats, WatermarkObserver};

const SYNC_TRIAL: &str = ".sync-trial";
const CLEAN: &str = ".kafka_cleanshutdown";
/// The interval between two writes of the checkpoint files.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// The number of full segments that may stay open, with two files each.
const OPEN_SEGMENTS_MAX: usize = 128;

/// The number of threads that open or close partitions. They mostly wait for syncs and share them,
/// so they may outnumber the processors.
const PARALLEL_PARTITIONS: usize = 8;

/// The partitions of a data folder. Dropping it without [`close`](LogManager::close) writes and
/// syncs the queue and leaves the folder as after a crash: the next start recovers it.
pub struct LogManager {
    folder: PathBuf,
    cluster_id: String,
    options: DataFolderOptions,
    partitions: Mutex<BTreeMap<TopicPartition, Arc<PartitionLog>>>,
    pub(crate) threads: Arc<LogThreads>,
    running: Mutex<Vec<JoinHandle<()>>>,
    /// The number of partitions closed at a time.
    parallel: usize,
    /// The content of the checkpoint files. Locked before `partitions`.
    checkpoints: Mutex<Checkpoints>,
    /// Held while segments are deleted, so that one thread does it at a time.
    retaining: Mutex<()>,
    deleted: DeletedFiles,
    /// Stop the maintenance thread and the cleaner when dropped.
    tending: Mutex<Vec<mpsc::Sender<()>>>,
    pub(crate) cleaning: Cleaning,
    _lock: File,
}

impl LogManager {
    /// Opens a data folder and recovers every partition; creates the folder if it does not exist.
    /// `config` returns the configuration of a topic. Blocks until recovery ends.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open(
        folder: &Path,
        options: DataFolderOptions,
        config: &(dyn Fn(&str) -> Arc<TopicConfig> + Sync),
        observer: WatermarkObserver,
    ) -> Result<(Arc<LogManager>, Vec<FoundPartition>), LogError> {
        let parallel = PARALLEL_PARTITIONS;
        let (manager, found) = LogManager::prepare(folder, options, config, observer, parallel)?;
        manager.start().map_err(at(folder))?;
        Ok((manager, found))
    }

    /// Opens a data folder, several partitions at a time, and starts no permanent threads.
    pub(crate) fn prepare(
        folder: &Path,
        options: DataFolderOptions,
        config: &(dyn Fn(&str) -> Arc<TopicConfig> + Sync),
        observer: WatermarkObserver,
        parallel: usize,
    ) -> Result<(Arc<LogManager>, Vec<FoundPartition>), LogError> {
        disk::create_folder(folder).map_err(at(folder))?;
        let lock_file = take_lock(folder, options.wait_for_folder)?;
        let properties = MetaProperties::read_or_write(folder, &options)?;
        tracing::debug!(
            "data folder {} of cluster {}",
            folder.display(),
            properties.cluster_id
        );
        let clean = folder.join(CLEAN);
        let last_end = match disk::remove(&clean) {
            Ok(()) => LastEnd::Clean,
            Err(error) if error.kind() == io::ErrorKind::NotFound => LastEnd::Unclean,
            Err(error) => return Err(at(&clean)(error)),
        };
        disk::sync_folder(folder).map_err(at(folder))?;
        let checkpoints = Checkpoints::read(folder);
        let found = open_all(folder, last_end, &checkpoints, config, parallel)?;
        for (name, synced) in missing(checkpoints.synced(), folder, &found) {
            tracing::warn!(
                "{name}: its folder is gone, and with it what was synced up to offset {synced}"
            );
        }
        let partitions = found
            .iter()
            .map(|one| (one.log.name().clone(), Arc::clone(&one.log)));
        let threads = Arc::new(LogThreads::new(options.flush, observer));
        let manager = Arc::new(LogManager {
            folder: folder.to_owned(),
            cluster_id: properties.cluster_id,
            options,
            partitions: Mutex::new(partitions.collect()),
            threads,
            running: Mutex::default(),
            parallel,
            checkpoints: Mutex::new(checkpoints),
            retaining: Mutex::default(),
            deleted: DeletedFiles::left_in(folder),
            tending: Mutex::default(),
            cleaning: Cleaning::default(),
            _lock: lock_file,
        });
        // The old checkpoints are wrong where something was lost: records appended there are not
        // synced, and the log start may differ.
        manager.write_checkpoints().map_err(at(folder))?;
        Ok((manager, found))
    }

    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(work)
        };
        let writer = Arc::clone(&self.threads);
        let mut retention = Duration::ZERO;
        let tend = self.repeated(CHECKPOINT_INTERVAL, move |it| it.tend(&mut retention));
        let clean = self.repeated(self.options.cleaner.backoff, LogManager::clean);
        let clean = move || {
            lower_priority();
            clean();
        };
        let mut running = vec![
            spawn("log-writer", Box::new(move || writer.write()))?,
            spawn("log-keeper", Box::new(tend))?,
            spawn("log-cleaner", Box::new(clean))?,
        ];
        for _ in 0..SYNCERS {
            let syncer = Arc::clone(&self.threads);
            running.push(spawn("log-syncer", Box::new(move || syncer.sync()))?);
        }
        *lock(&self.running) = running;
        Ok(())
    }

    /// Returns a function that repeats some work, with this pause before each time, until the
    /// manager stops.
    fn repeated(
        self: &Arc<Self>,
        pause: Duration,
        mut work: impl FnMut(&LogManager) + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let (sender, stop) = mpsc::channel();
        lock(&self.tending).push(sender);
        let weak = Arc::downgrade(self);
        move || {
            while stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let Some(manager) = weak.upgrade() else {
                    return;
                };
                work(&manager);
            }
        }
    }

    /// Returns the ID of the cluster that the folder belongs to.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Returns the partitions, sorted by name.
    pub fn partitions(&self) -> Vec<Arc<PartitionLog>> {
        lock(&self.partitions).values().cloned().collect()
    }

    /// Queues a batch. A thread of the log calls `done` later.
    pub fn append(&self, append: Append) {
        self.threads.append(append);
    }

    /// Calls `done` when the written records before an offset are as safe as the flush policy makes
    /// those acknowledged with [`Acks::All`](crate::Acks), either immediately or on a thread of the
    /// log. Does not wait for records that are not written yet.
    pub fn when_safe(&self, log: &Arc<PartitionLog>, offset: i64, done: Completion) {
        self.threads.when_safe(log, offset, done);
    }

    /// Returns the number of bytes waiting to be written.
    pub fn queued_bytes(&self) -> u64 {
        self.threads.queued_bytes()
    }

    /// Returns statistics of the syncs since the start.
    pub fn syncs(&self) -> SyncStats {
        self.threads.syncs()
    }

    /// Whether a sync has failed. Nothing is appended afterwards.
    pub fn is_offline(&self) -> bool {
        self.threads.is_offline()
    }

    /// Measures a sync of a small write in the folder: the median of three. Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync_time(&self) -> io::Result<Duration> {
        let path = self.folder.join(SYNC_TRIAL);
        let file = disk::open(&path)?;
        let mut times = [Duration::ZERO; 3];
        let tried = times.iter_mut().enumerate().try_for_each(|(number, time)| {
            disk::write_all(&file, &[b"sync"], 4096 * number as u64)?;
            let begun = Instant::now();
            disk::sync(&file)?;
            *time = begun.elapsed();
            Ok(())
        });
        fs::remove_file(&path)?;
        times.sort_unstable();
        tried.map(|()| times[1])
    }

    /// Creates a partition. Blocks. No other thread may create one with the same name meanwhile.
    ///
    /// # Errors
    /// [`LogError::Exists`], [`LogError::Disk`].
    pub fn create(
        &self,
        name: TopicPartition,
        topic_id: &str,
        config: Arc<TopicConfig>,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let before = Before::new(config.index_interval_bytes);
        self.create_after(before, (name, topic_id), config)
    }

    /// Creates a partition again whose folder was lost. Its leader epoch is later than the lost
    /// ones, so that consumers that had read further detect the loss. Blocks.
    ///
    /// # Errors
    /// Those of [`create`](LogManager::create).
    pub fn create_again(
        &self,
        name: TopicPartition,
        topic_id: &str,
        config: Arc<TopicConfig>,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let before = Before {
            replaces_lost: true,
            ..Before::new(config.index_interval_bytes)
        };
        self.create_after(before, (name, topic_id), config)
    }

    fn create_after(
        &self,
        before: Before,
        (name, topic_id): (TopicPartition, &str),
        config: Arc<TopicConfig>,
    ) -> Result<Arc<PartitionLog>, LogError> {
        if lock(&self.partitions).contains_key(&name) {
            return Err(LogError::Exists(name));
        }
        let folder = self.folder.join(name.to_string());
        let forgotten = lock(&self.checkpoints).forget(&name, &self.folder);
        forgotten.map_err(at(&self.folder))?;
        let was_there = folder.exists();
        let made = || {
            disk::create_folder(&folder).map_err(at(&folder))?;
            properties::write_topic_id(&folder, topic_id).map_err(at(&folder))?;
            recovery::open(&folder, before)
        };
        let opened = made().inspect_err(|_| {
            // Otherwise the next start would adopt the partial folder.
            if !was_there {
                let _ = disk::remove_folder(&folder);
            }
        })?;
        let parts = (opened.published, opened.appender);
        let log = PartitionLog::new(
            name.clone(),
            topic_id.to_owned(),
            folder.clone(),
            config,
            parts,
        );
        let log = Arc::new(log);
        lock(&self.partitions).insert(name, Arc::clone(&log));
        Ok(log)
    }

    /// Deletes a partition immediately, and its files after `file.delete.delay.ms`. Blocks.
    ///
    /// # Errors
    /// [`LogError::Disk`]; the partition is gone, but comes back with the next start.
    pub fn delete(&self, name: &TopicPartition) -> Result<(), LogError> {
        let Some(log) = lock(&self.partitions).remove(name) else {
            return Ok(());
        };
        // Wait for operations that use names in the folder; later ones check `is_deleted`, as the
        // names may belong to another partition.
        let _files = lock(&log.files);
        let _appender = lock(&log.appender);
        log.is_deleted.store(true, Ordering::Release);
        let gone = self.folder.join(retention::deleted_folder(&log));
        disk::rename(&log.folder, &gone).map_err(at(&log.folder))?;
        self.deleted.add(gone, log.config().file_delete_delay_ms);
        disk::sync_folder(&self.folder).map_err(at(&self.folder))
    }

    /// Hides the records of some partitions before an offset from consumers, also after a crash.
    /// The next retention check deletes the files. Returns the new log starts. Blocks for some
    /// syncs.
    ///
    /// # Errors
    /// The new starts cannot be written: they hold until a crash.
    pub fn delete_records(&self, before: &[(Arc<PartitionLog>, i64)]) -> io::Result<Vec<i64>> {
        let starts = before.iter().map(|(log, before)| {
            let mut published = log.published();
            let end = published.high_watermark.offset;
            published.start = (*before).clamp(published.start, end);
            published.start
        });
        let starts = starts.collect();
        if !before.is_empty() {
            self.write_checkpoints()?;
        }
        Ok(starts)
    }

    /// Returns the size of the file system of the folder, and the room that is left, in bytes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn disk_space(&self) -> io::Result<(i64, i64)> {
        let space = statvfs(&self.folder)?;
        let bytes = |blocks: u64| {
            let bytes = blocks.saturating_mul(space.f_frsize);
            i64::try_from(bytes).unwrap_or(i64::MAX)
        };
        Ok((bytes(space.f_blocks), bytes(space.f_bavail)))
    }

    /// Does the periodic work; called once per second.
    pub(crate) fn tend(&self, retention_due: &mut Duration) {
        if let Err(error) = self.write_checkpoints() {
            tracing::warn!(
                "{}: checkpoints cannot be written: {error}",
                self.folder.display()
            );
        }
        // The new checkpoints lack deleted partitions, so the next start does not miss them.
        self.deleted.remove_due();
        self.finish_rest();
        self.close_segments();
        *retention_due = retention_due.saturating_sub(CHECKPOINT_INTERVAL);
        if *retention_due == Duration::ZERO {
            *retention_due = self.options.retention_check_interval;
            self.retain();
        }
    }

    /// Retries the writes for full segments that failed, for example on a full disk.
    fn finish_rest(&self) {
        if self.is_offline() {
            return;
        }
        for log in self.partitions() {
            match log.finish_rest() {
                Ok(false) => {}
                Ok(true) => tracing::info!("{}: full segments have their indexes now", log.name()),
                Err(error) => tracing::debug!("{}: {error}", log.name()),
            }
        }
    }

    /// Closes the unused files of full segments if too many are open. Readers reopen them.
    fn close_segments(&self) {
        let segments = |log: &Arc<PartitionLog>| {
            let mut segments = log.published().segments.clone();
            segments.pop();
            segments
        };
        let full: Vec<_> = self.partitions().iter().flat_map(segments).collect();
        let open = full.iter().filter(|segment| segment.opened().is_some());
        if open.count() > OPEN_SEGMENTS_MAX {
            full.iter().for_each(|segment| segment.close_unused());
        }
    }

    /// Deletes segments that exceed the retention time or size.
    pub fn retain(&self) {
        let _alone = lock(&self.retaining);
        let now_ms = unix_ms();
        let expired = self.options.producer_id_expiration;
        let expired = i64::try_from(expired.as_millis()).unwrap_or(i64::MAX);
        let mut expired_segments = Vec::new();
        for log in self.partitions() {
            lock(&log.appender)
                .producers
                .expire(now_ms.saturating_sub(expired));
            match retention::take_expired(&log, now_ms) {
                Ok(segments) if segments.is_empty() => {}
                Ok(segments) => expired_segments.push((log, segments)),
                Err(error) => warn_retention(&log, &error),
            }
        }
        if expired_segments.is_empty() {
            return;
        }
        // On a full disk this fails, but must not keep retention from freeing space.
        if let Err(error) = self.write_checkpoints() {
            tracing::debug!("checkpoints cannot be written: {error}");
        }
        for (log, segments) in expired_segments {
            if let Err(error) = retention::delete(&log, &segments, &self.deleted) {
                warn_retention(&log, &error);
            }
        }
    }

    /// Returns statistics of compaction since the start.
    pub fn cleaner_stats(&self) -> CleanerStats {
        self.cleaning.stats()
    }

    /// Compacts partitions until none is due.
    pub(crate) fn clean(&self) {
        self.cleaning.clean(&CleanableFolder {
            options: &self.options.cleaner,
            partitions: &|| self.partitions(),
            is_offline: &|| self.is_offline(),
            write_checkpoints: &|| self.write_checkpoints(),
            deleted: &self.deleted,
        });
    }

    fn write_checkpoints(&self) -> io::Result<()> {
        let mut checkpoints = lock(&self.checkpoints);
        let mut present = Checkpoints::default();
        let [synced, starts, seen, cleaned] = &mut present.0;
        for log in self.partitions() {
            let offsets = log.offsets();
            let name = log.name().clone();
            synced.insert(name.clone(), offsets.synced);
            seen.insert(name.clone(), offsets.high_watermark);
            if let Some(until) = log.compacted() {
                cleaned.insert(name.clone(), until);
            }
            if offsets.start > 0 {
                starts.insert(name, offsets.start);
            }
        }
        checkpoints.replace(present, &self.folder)
    }

    /// Writes and syncs the queue, and writes the files that make the next start fast.
    ///
    /// # Errors
    /// [`LogError::Disk`]: the next start runs a full recovery.
    pub fn close(&self) -> Result<(), LogError> {
        self.stop();
        if self.is_offline() {
            return Ok(());
        }
        // Write log starts before the epoch files, which do not go further back.
        self.write_checkpoints().map_err(at(&self.folder))?;
        closing::finish_all(&self.partitions(), self.parallel)?;
        self.write_checkpoints().map_err(at(&self.folder))?;
        let clean = self.folder.join(CLEAN);
        let marker = b"{\"version\":0,\"brokerEpoch\":-1}";
        disk::replace(&clean, marker).map_err(at(&clean))
    }
}

impl LogManager {
    /// Stops the threads after everything is written and synced.
    pub(crate) fn stop(&self) {
        self.cleaning.stop();
        lock(&self.tending).clear();
        self.threads.close_queue();
        let threads: Vec<_> = lock(&self.running).drain(..).collect();
        let own = thread::current().id();
        for thread in threads
            .into_iter()
            .filter(|thread| thread.thread().id() != own)
        {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}

impl Drop for LogManager {
    fn drop(&mut self) {
        self.stop();
    }
}

fn warn_retention(log: &PartitionLog, error: &io::Error) {
    tracing::warn!("{}: old segments cannot be deleted: {error}", log.name());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::checkpoints::OffsetCheckpoint;

    fn opened(folder: &Path, delay_ms: u64) -> (Arc<LogManager>, Vec<FoundPartition>) {
        let config = TopicConfig {
            file_delete_delay_ms: delay_ms,
            ..TopicConfig::default()
        };
        let config = Arc::new(config);
        let options = DataFolderOptions::default();
        let config = |_: &str| Arc::clone(&config);
        LogManager::prepare(folder, options, &config, Box::new(|_| ()), 1).unwrap()
    }

    fn create(manager: &LogManager, topic: &str, delay_ms: u64) -> TopicPartition {
        let name = TopicPartition::new(topic, 0);
        let config = TopicConfig {
            file_delete_delay_ms: delay_ms,
            ..TopicConfig::default()
        };
        manager
            .create(name.clone(), "id", Arc::new(config))
            .unwrap();
        name
    }

    fn deleted(folder: &Path) -> usize {
        retention::deleted_partitions(folder).len()
    }

    #[test]
    fn what_was_deleted_goes_when_its_topic_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (manager, _) = opened(folder.path(), 0);
        let now = create(&manager, "now", 0);
        let later = create(&manager, "later", 3_600_000);
        let never = create(&manager, "never", u64::MAX);
        for name in [&now, &later, &never] {
            manager.delete(name).unwrap();
        }
        assert_eq!(deleted(folder.path()), 3);
        manager.tend(&mut Duration::from_secs(3600));
        assert_eq!(deleted(folder.path()), 2);
        // The rest is deleted some time after the next start.
        drop(manager);
        let (manager, _) = opened(folder.path(), 0);
        manager.tend(&mut Duration::from_secs(3600));
        assert_eq!(deleted(folder.path()), 2);
        assert_eq!(lock(&manager.deleted.0).len(), 2);
    }

    #[test]
    fn partitions_whose_folders_are_gone_are_missed_unless_they_were_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let long = "t".repeat(240);
        let (manager, _) = opened(folder.path(), 60_000);
        for topic in ["lost", "empty", "deleted", "kept", &long] {
            create(&manager, topic, 60_000);
        }
        let synced = |topic| (TopicPartition::new(topic, 0), 7);
        let synced = ["lost", "deleted", "kept", &long].map(synced);
        let mut synced = OffsetCheckpoint::from(synced);
        synced.insert(TopicPartition::new("empty", 0), 0);
        for topic in ["deleted", &long] {
            manager.delete(&TopicPartition::new(topic, 0)).unwrap();
        }
        drop(manager);
        fs::remove_dir_all(folder.path().join("lost-0")).unwrap();
        fs::remove_dir_all(folder.path().join("empty-0")).unwrap();
        let (_, found) = opened(folder.path(), 60_000);
        let gone = missing(&synced, folder.path(), &found);
        assert_eq!(gone, [(&TopicPartition::new("lost", 0), 7)]);
        fs::remove_dir_all(folder.path().join("kept-0")).unwrap();
        assert_eq!(missing(&synced, folder.path(), &[]).len(), 2);
    }
}
