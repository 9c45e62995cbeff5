//! One copy as a whole: its options, its surroundings and what all workers share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Stat, syncfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use underpass::Kernel;

use crate::fs::folder::{Folder, changed_at};
use crate::metadata::{self, Creation, MetadataTarget, ProcessFacts};
use crate::options::{CopyOptions, Fsync};
use crate::report::event::Observer;
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::{CopyEnd, CopyProgress, CopySummary, EventBuffer, OrderedReporter};
use crate::tree::filter::NameFilter;
use crate::tree::inode_table::InodeTable;
use crate::tree::level::{FolderFinish, FolderPair, Level};
use crate::workers::pool::WorkerPool;
use crate::workers::throttle::Throttle;

/// How often the clock is looked at while its next tick is waited for, and how many times at most.
const TICK_POLL: Duration = Duration::from_micros(200);
const TICK_POLLS: u32 = 500;

/// What a copy is given beside its options.
#[derive(Clone, Copy)]
pub struct CopyContext<'a> {
    /// What this kernel can do.
    pub kernel: &'a Kernel,
    /// Receives the events.
    pub observer: &'a dyn Observer,
    /// Counts what is done.
    pub progress: &'a CopyProgress,
    /// Set by another thread, stops the copy within 100 ms.
    pub stop: &'a AtomicBool,
    /// When it began: what [`begin`](crate::begin) returned.
    pub start: RunStart,
}

/// A copy that is going on.
pub(crate) struct CopyRun<'a> {
    pub(crate) options: &'a CopyOptions,
    pub(crate) context: CopyContext<'a>,
    pub(crate) reporter: OrderedReporter<'a>,
    pub(crate) inodes: InodeTable,
    pub(crate) process: ProcessFacts,
    pub(crate) filter: Option<NameFilter>,
    pub(crate) throttle: Option<Throttle>,
    /// The other workers, if there are any.
    pub(crate) pool: Option<WorkerPool>,
    pub(crate) sources: SourceCount,
    /// Folders that each part of the copy may keep open, two descriptors each: those that are
    /// walked, those that wait for what is in them, and those in the queue.
    pub(crate) folders_max: usize,
    /// Folders whose walk is over and that wait for what is in them.
    pub(crate) unclosed: AtomicUsize,
    /// File systems to sync at the end, each with something open on it, and how that is shown.
    pub(crate) to_sync: Mutex<HashMap<u64, (OwnedFd, OsString)>>,
}

/// When a run began, by the clock that the kernel stamps inodes with: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunStart(i64, i64);

impl RunStart {
    /// The present moment. What is changed from now on has this time or a later one; so may have
    /// what was changed since the last tick of the clock.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(now.tv_sec, now.tv_nsec)
    }

    /// Waits for the next tick, 1 to 10 ms later: what was changed before has an earlier time.
    /// Where the clock stands still, the present moment.
    pub(crate) fn at_next_tick() -> Self {
        let before = Self::now();
        for _ in 0..TICK_POLLS {
            std::thread::sleep(TICK_POLL);
            if Self::now() != before {
                break;
            }
        }
        Self::now()
    }

    /// Whether something was changed after the run began.
    fn is_before(self, changed: &Stat) -> bool {
        changed_at(changed) >= (self.0, self.1)
    }
}

/// What a copy may have open, of the descriptors that the process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorShares {
    pub(crate) jobs: usize,
    /// As [`CopyRun::folders_max`].
    pub(crate) folders_max: usize,
}

impl DescriptorShares {
    /// Folders that are open, where there are descriptors enough.
    const FOLDERS_MAX: usize = 64;

    /// What one job has open: two files, a pipe, the two folders of its batch, and one to spare.
    const OF_JOB: usize = 8;

    /// What the process has open beside the copy.
    const OF_OTHERS: usize = 16;

    /// At most half of the descriptors are for files; with too few, fewer are copied at once.
    pub(crate) fn of(jobs: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        Self::within(limit.unwrap_or(usize::MAX), jobs)
    }

    fn within(limit: usize, jobs: usize) -> Self {
        let left = limit.saturating_sub(Self::OF_OTHERS);
        let jobs = jobs.min(left / 2 / Self::OF_JOB).max(1);
        let folders = left.saturating_sub(jobs * Self::OF_JOB) / 6;
        Self {
            jobs,
            folders_max: folders.clamp(2, Self::FOLDERS_MAX),
        }
    }
}

/// How many sources there are, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceCount {
    /// One, to the name that was given.
    One,
    /// Each into the target folder.
    IntoFolder,
}

impl CopyRun<'_> {
    pub(crate) fn stopped(&self) -> bool {
        self.context.stop.load(Relaxed)
    }

    /// Whether a symbolic link appeared after the run began: it is not followed.
    pub(crate) fn is_newer_than_run(&self, link: &Stat) -> bool {
        self.context.start.is_before(link)
    }

    /// Puts the metadata of `source` on `dest`, as the options say, and reports what failed.
    pub(crate) fn preserve(
        &self,
        source: MetadataTarget<'_>,
        stat: &Stat,
        dest: MetadataTarget<'_>,
        creation: Creation,
        (events, shown): (&mut EventBuffer<'_>, &dyn Fn() -> OsString),
    ) {
        let wishes = &self.options.preserve;
        for problem in metadata::preserve(source, stat, dest, creation, wishes, &self.process) {
            let path = shown();
            events.problem(Problem { path, ..problem });
        }
    }

    /// Something in a folder is done. Finishes the folder if it was the last, and those above.
    pub(crate) fn child_done(&self, level: &Arc<Level>) {
        let mut level = level;
        while level.child_done() {
            self.close(level);
            match &level.up {
                Some(up) => level = up,
                None => break,
            }
        }
    }

    /// Finishes the copy of a folder: its metadata, and its names on disk.
    fn close(&self, level: &Arc<Level>) {
        let Some(closing) = level.take_closing() else {
            return;
        };
        let mut events = self.reporter.buffer(closing.sequence);
        if !self.options.dry_run {
            self.finish_folder(level, &closing, &mut events);
        }
        self.unclosed.fetch_sub(1, Relaxed);
        events.submit();
    }

    fn finish_folder(&self, level: &Level, closing: &FolderFinish, events: &mut EventBuffer<'_>) {
        let FolderPair { source, dest, .. } = &*closing.folders;
        self.preserve(
            MetadataTarget::of_folder(source),
            &closing.stat,
            MetadataTarget::of_folder(dest),
            closing.creation,
            (events, &|| level.dest()),
        );
        // The name of an operand's copy is in the folder above it.
        let above = level.up.as_ref().and_then(|up| up.folders.as_ref());
        let synced = |folder: &Folder| self.sync_folder(folder, || level.dest());
        let above = above.map_or(Ok(()), |above| synced(&above.dest));
        if let Err(errno) = synced(dest).and(above) {
            events.problem(Problem::failed(ProblemKind::Sync, level.dest(), errno));
        }
    }

    /// Writes the names in a folder to disk, now or at the end. `shown` is something in it.
    pub(crate) fn sync_folder(
        &self,
        dest: &Folder,
        shown: impl FnOnce() -> OsString,
    ) -> Result<(), Errno> {
        match self.options.fsync {
            Fsync::Folder => dest.sync(),
            Fsync::End => {
                let device = dest.look_behind(c".")?.st_dev;
                let mut to_sync = self.to_sync.lock().unwrap_or_else(PoisonError::into_inner);
                if let Entry::Vacant(vacant) = to_sync.entry(device)
                    && let Ok(fd) = dest.readable()
                {
                    vacant.insert((fd, shown()));
                }
                Ok(())
            }
            Fsync::Never | Fsync::File => Ok(()),
        }
    }

    /// Syncs what is to be synced at the end, and returns the sum.
    pub(crate) fn finish(self) -> CopySummary {
        let to_sync = self.to_sync.into_inner();
        let mut events = self.reporter.buffer(self.reporter.sequence());
        let to_sync = to_sync.unwrap_or_else(PoisonError::into_inner);
        for (fd, shown) in to_sync.into_values() {
            if let Err(errno) = syncfs(fd) {
                events.problem(Problem::failed(ProblemKind::SyncFileSystem, shown, errno));
            }
        }
        events.submit();
        let mut summary = self.reporter.finish();
        if self.context.stop.load(Relaxed) {
            summary.ended = CopyEnd::Stopped;
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_make_fewer_jobs_and_open_folders() {
        for (limit, jobs, expected) in [
            (usize::MAX, 16, (16, 64)),
            (1024, 16, (16, 64)),
            (256, 16, (15, 20)),
            (64, 8, (3, 4)),
            (64, 1, (1, 6)),
            (20, 8, (1, 2)),
            (0, 1, (1, 2)),
        ] {
            let shares = DescriptorShares::within(limit, jobs);
            assert_eq!(
                (shares.jobs, shares.folders_max),
                expected,
                "{limit} {jobs}"
            );
        }
    }
}
