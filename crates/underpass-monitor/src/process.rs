//! Facts about this process, as reported by the kernel.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Files of this process in `/proc`, opened at startup: confined workers may read them, but not
/// open them.
#[derive(Debug)]
pub(crate) struct ProcessFiles {
    statm: Option<File>,
    /// Locked while it is read: a folder has one position.
    descriptors: Option<Mutex<File>>,
}

impl ProcessFiles {
    pub(crate) fn open() -> ProcessFiles {
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = open("/proc/self/fd", folder, Mode::empty());
        ProcessFiles {
            statm: File::open("/proc/self/statm").ok(),
            descriptors: descriptors.ok().map(File::from).map(Mutex::new),
        }
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }

    /// Returns the number of open descriptors, including those of these files.
    pub(crate) fn open_descriptors(&self) -> Option<u64> {
        let folder = self.descriptors.as_ref()?.lock();
        let folder = folder.unwrap_or_else(PoisonError::into_inner);
        seek(&*folder, SeekFrom::Start(0)).ok()?;
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&*folder, &mut space);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let name = entry.ok()?.file_name().to_bytes().first().copied();
            count += u64::from(name.is_some_and(|first| first.is_ascii_digit()));
        }
        Some(count)
    }
}

/// Returns the maximum number of open descriptors.
pub(crate) fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns the processor time of all threads.
pub(crate) fn processor_time() -> Option<Duration> {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
}

/// Returns the seconds since 1970 at `started`.
pub(crate) fn unix_seconds(started: SystemTime) -> f64 {
    let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let files = ProcessFiles::open();
        assert!(files.resident_bytes().is_some_and(|bytes| bytes > 100_000));
        let open = files.open_descriptors().unwrap();
        assert!((3..=descriptors_max().unwrap_or(u64::MAX)).contains(&open));
        assert!(processor_time().is_some());
    }

    #[test]
    fn descriptors_are_counted_anew_each_time() {
        let files = ProcessFiles::open();
        let before = files.open_descriptors().unwrap();
        let more: Vec<_> = (0..100).map(|_| File::open("/dev/null").unwrap()).collect();
        let during = files.open_descriptors().unwrap();
        assert!(during >= before + 50, "{before} {during}");
        drop(more);
    }
}
