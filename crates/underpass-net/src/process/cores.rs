//! The processors that this process may use.

/// The cores this process may use: what the scheduler's affinity mask allows, at least one.
pub fn cores() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(mask) => (mask.count() as usize).max(1),
        Err(_) => 1,
    }
}
