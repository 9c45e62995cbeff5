//! What the kernel knows of this process.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Resident memory, in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Descriptors that are open, the one that counts them included.
pub(super) fn open_descriptors() -> Option<u64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

/// How many may be open.
pub(super) fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Processor time of all threads.
pub(super) fn processor_time() -> Option<Duration> {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
}

/// When something that began at `started` did, in seconds since 1970.
pub(super) fn unix_seconds(started: SystemTime) -> f64 {
    let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
        let open = open_descriptors().unwrap();
        assert!((3..=descriptors_max().unwrap_or(u64::MAX)).contains(&open));
        assert!(processor_time().is_some());
    }
}
