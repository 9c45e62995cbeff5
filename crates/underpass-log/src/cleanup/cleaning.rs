//! Compacts the partitions of a data folder, one after another, the one with the most to gain
//! first.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cleanup::error::CleanError;
use crate::cleanup::pace::Pace;
use crate::cleanup::pass::{CleanPass, CleanedPart};
use crate::cleanup::plan::CleanablePart;
use crate::cleanup::retention::DeletedFiles;
use crate::config::CleanerOptions;
use crate::files::times::unix_ms;
use crate::partition::PartitionLog;
use crate::segment::lock;

/// The scheduling priority of the thread, which the priority of its disk accesses follows.
const NICE: i32 = 10;

/// The time until a partition is tried again after a failure, such as a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// The state of compaction.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// Whether a pass has to end.
    is_stopped: AtomicBool,
    #[cfg(test)]
    is_active: AtomicBool,
    stats: Mutex<CleanerStats>,
    /// Partitions whose compaction has failed.
    failed: Mutex<HashMap<u64, CleanFailure>>,
}

#[derive(Debug)]
struct CleanFailure {
    /// When to try again; `None` for after a restart.
    retry: Option<Instant>,
    message: String,
}

/// Statistics of compaction since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct CleanerStats {
    /// Complete passes over a partition.
    pub passes: u64,
    /// The sum of their durations.
    pub time: Duration,
    /// Bytes of segments before their compaction.
    pub bytes_before: u64,
    /// Bytes of segments after it.
    pub bytes_after: u64,
    /// Removed records.
    pub removed_records: u64,
    /// Partitions that cannot be compacted at present.
    pub failed_partitions: usize,
}

/// A data folder, as far as compaction depends on it.
pub(crate) struct CleanableFolder<'f> {
    pub(crate) options: &'f CleanerOptions,
    pub(crate) partitions: &'f dyn Fn() -> Vec<Arc<PartitionLog>>,
    /// Whether nothing may be written.
    pub(crate) is_offline: &'f dyn Fn() -> bool,
    /// Writes the offsets up to which partitions are compacted.
    pub(crate) write_checkpoints: &'f dyn Fn() -> io::Result<()>,
    pub(crate) deleted: &'f DeletedFiles,
}

impl Cleaning {
    /// Ends the present pass, and prevents others.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Whether a partition may be tried.
    fn may_try(&self, number: u64) -> bool {
        let failed = lock(&self.failed);
        let retry = failed.get(&number).map(|failure| failure.retry);
        retry.is_none_or(|retry| retry.is_some_and(|retry| retry <= Instant::now()))
    }

    /// Remembers a failure, and logs it unless it is the same as the last time.
    fn fail(&self, log: &PartitionLog, error: &CleanError) {
        let retry = match error {
            CleanError::Interrupted => return,
            CleanError::Damaged { .. } | CleanError::Stuck(_) => None,
            CleanError::Disk(_) => Instant::now().checked_add(RETRY_DELAY),
        };
        let message = error.to_string();
        let failure = CleanFailure { retry, message };
        let mut failed = lock(&self.failed);
        let message = failure.message.clone();
        let before = failed.insert(log.number(), failure);
        if before.is_none_or(|before| before.message != message) {
            let name = log.name();
            match retry {
                Some(_) => tracing::warn!(
                    "{name}: it cannot be compacted, which is tried again every minute: {message}"
                ),
                None => {
                    tracing::warn!("{name}: it is not compacted until the next start: {message}");
                }
            }
        }
    }

    /// Returns statistics since the start.
    pub(crate) fn stats(&self) -> CleanerStats {
        CleanerStats {
            failed_partitions: lock(&self.failed).len(),
            ..*lock(&self.stats)
        }
    }

    /// Compacts partitions until none is due.
    pub(crate) fn clean(&self, folder: &CleanableFolder<'_>) {
        while let Some((log, part)) = self.filthiest(folder) {
            match self.clean_part(folder, &log, &part) {
                Ok(()) => drop(lock(&self.failed).remove(&log.number())),
                Err(CleanError::Interrupted) => return,
                // Its files have other names by now.
                Err(_) if part.is_outdated(&log) => return,
                Err(error) => self.fail(&log, &error),
            }
        }
    }

    /// Whether a partition is being compacted.
    #[cfg(test)]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Lets failed partitions be tried again immediately.
    #[cfg(test)]
    pub(crate) fn retry(&self) {
        lock(&self.failed).clear();
    }

    /// Returns the partition that is due and has the largest part not compacted.
    fn filthiest(
        &self,
        folder: &CleanableFolder<'_>,
    ) -> Option<(Arc<PartitionLog>, CleanablePart)> {
        if (folder.is_offline)() || self.is_stopped.load(Ordering::Acquire) {
            return None;
        }
        let partitions = (folder.partitions)();
        let numbers = || partitions.iter().map(|log| log.number());
        lock(&self.failed).retain(|number, _| numbers().any(|it| it == *number));
        let now_ms = unix_ms();
        let mut filthiest: Option<(Arc<PartitionLog>, CleanablePart)> = None;
        for log in partitions {
            if !self.may_try(log.number()) {
                continue;
            }
            let part = match CleanablePart::of(&log, now_ms) {
                Ok(part) => part.filter(|part| part.is_due(&log.config())),
                Err(error) => {
                    self.fail(&log, &CleanError::of(error));
                    None
                }
            };
            let Some(part) = part else { continue };
            let most = filthiest.as_ref().map_or(0.0, |(_, most)| most.dirty_ratio);
            if part.dirty_ratio > most {
                filthiest = Some((log, part));
            }
        }
        filthiest
    }

    fn clean_part(
        &self,
        folder: &CleanableFolder<'_>,
        log: &PartitionLog,
        part: &CleanablePart,
    ) -> Result<(), CleanError> {
        let options = folder.options;
        #[cfg(test)]
        self.is_active.store(true, Ordering::Release);
        let mut pace = Pace::new(&self.is_stopped, options.io_bytes_per_second_max);
        let pass = CleanPass {
            log,
            part,
            now_ms: unix_ms(),
            map_bytes_max: options.dedupe_buffer_bytes,
            deleted: folder.deleted,
        };
        let cleaned = pass.run(&mut pace, &mut || allow_gaps(folder, log, part.first_dirty))?;
        log.set_compacted(Some(cleaned.end));
        (folder.write_checkpoints)()?;
        let time = pace.elapsed();
        let mut stats = lock(&self.stats);
        stats.passes += 1;
        stats.time += time;
        stats.bytes_before += cleaned.bytes.0;
        stats.bytes_after += cleaned.bytes.1;
        stats.removed_records += cleaned.removed_records;
        drop(stats);
        let CleanedPart {
            end,
            segments,
            bytes,
            removed_records,
        } = cleaned;
        tracing::info!(
            "{}: compacted up to offset {end} in {} ms: {} to {} segments, {} to {} bytes, \
             {removed_records} records removed",
            log.name(),
            time.as_millis(),
            segments.0,
            segments.1,
            bytes.0,
            bytes.1
        );
        Ok(())
    }
}

/// Records in a file that offsets of a partition may be missing from now on. Otherwise a start
/// would take them for lost.
fn allow_gaps(
    folder: &CleanableFolder<'_>,
    log: &PartitionLog,
    first_dirty: i64,
) -> io::Result<()> {
    if log.compacted().is_none() {
        log.set_compacted(Some(first_dirty));
        if let Err(error) = (folder.write_checkpoints)() {
            log.set_compacted(None);
            return Err(error);
        }
    }
    Ok(())
}

/// Lowers the priority of this thread.
pub(crate) fn lower_priority() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!("the priority of compaction cannot be lowered: {error}");
    }
}
