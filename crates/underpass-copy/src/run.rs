//! One copy as a whole: its options, its context and the state shared by all workers.

#[cfg(test)]
mod progress_tests;

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

/// The interval between reads of the clock while waiting for its tick, and their maximum number.
const TICK_POLL: Duration = Duration::from_micros(200);
const TICK_POLLS: u32 = 500;

/// The arguments of a copy other than its options.
#[derive(Clone, Copy)]
pub struct CopyContext<'a> {
    /// The facts about this kernel.
    pub kernel: &'a Kernel,
    /// Receives the events.
    pub observer: &'a dyn Observer,
    /// Counts the progress.
    pub progress: &'a CopyProgress,
    /// Set by another thread, stops the copy within 100 ms.
    pub stop: &'a AtomicBool,
    /// The start of the run, returned by [`begin`](crate::begin).
    pub start: RunStart,
}

/// A copy in progress.
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
    /// The maximum number of folders each part of the copy may keep open, two descriptors each:
    /// those being walked, those waiting for their content, and those in the queue.
    pub(crate) folders_max: usize,
    /// Folders whose walk is over and whose content is not done.
    pub(crate) unclosed: AtomicUsize,
    /// File systems to sync at the end, each with an open descriptor on it and its displayed path.
    pub(crate) to_sync: Mutex<HashMap<u64, (OwnedFd, OsString)>>,
}

/// The start of a run, by the clock that the kernel stamps inodes with: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunStart(i64, i64);

impl RunStart {
    /// Returns the present. Later changes have this time or a later one, but so may changes since
    /// the last tick of the clock.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(now.tv_sec, now.tv_nsec)
    }

    /// Waits for the next tick, 1 to 10 ms later, so that earlier changes have an earlier time. If
    /// the clock stands still, returns the present.
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

    /// Returns whether a file was changed after the run started.
    fn is_before(self, changed: &Stat) -> bool {
        changed_at(changed) >= (self.0, self.1)
    }
}

/// The distribution of the process's descriptors to the parts of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorShares {
    pub(crate) jobs: usize,
    /// As [`CopyRun::folders_max`].
    pub(crate) folders_max: usize,
}

impl DescriptorShares {
    /// Open folders, if there are enough descriptors.
    const FOLDERS_MAX: usize = 64;

    /// Descriptors of one job: two files, a pipe, the two folders of its batch, and a spare one.
    const OF_JOB: usize = 8;

    /// Descriptors of the process that are not part of the copy.
    const OF_OTHERS: usize = 16;

    /// Reserves at most half of the descriptors for files; with too few, reduces the jobs.
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

/// The number of sources, and their destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceCount {
    /// One, to the given name.
    One,
    /// Each into the target folder.
    IntoFolder,
}

impl CopyRun<'_> {
    pub(crate) fn stopped(&self) -> bool {
        self.context.stop.load(Relaxed)
    }

    /// Returns whether a symbolic link appeared after the run started: it is not followed.
    pub(crate) fn is_newer_than_run(&self, link: &Stat) -> bool {
        self.context.start.is_before(link)
    }

    /// Puts the metadata of `source` on `dest`, as the options specify, and reports errors.
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

    /// Counts a child of a folder as done. Finishes the folder if it was the last, and those above.
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

    /// Syncs the names in a folder to disk, now or at the end. `shown` is the path of a child.
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

    /// Performs the syncs due at the end, and returns the totals.
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
