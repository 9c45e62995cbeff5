//! The resources of the process: processors, and descriptors with the connections that they allow.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;
use crate::limits::{
    CONNECTION_DESCRIPTORS, ConnectionLimits, DESCRIPTORS_ASIDE, START_DESCRIPTORS,
    WORKER_DESCRIPTORS, WORKER_DESCRIPTORS_ASIDE,
};

/// Returns the number of cores in the scheduler's affinity mask, at least one.
pub fn cores() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(mask) => (mask.count() as usize).max(1),
        Err(_) => 1,
    }
}

/// Raises the soft limit on descriptors to the hard one (the soft one is low for programs that use
/// `select`) and returns how many connections fit, at most the number in `limits`.
pub(crate) fn connections(limits: &ConnectionLimits, workers: usize) -> usize {
    let wanted = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: wanted.maximum,
        maximum: wanted.maximum,
    };
    // If it is refused, the old limit is read again below.
    let _ = setrlimit(Resource::Nofile, raised);
    // Each connection may need a second descriptor for the file it is sent.
    (descriptors(workers) / 2).clamp(1, limits.connections_max)
}

/// Disables core dumps of this process, which would contain private keys: lowers the soft limit
/// (core(5)), which its user can raise again.
pub fn forbid_core_dumps() {
    let forbidden = Rlimit {
        current: Some(0),
        ..getrlimit(Resource::Core)
    };
    // Lowering a limit needs no privilege.
    let _ = setrlimit(Resource::Core, forbidden);
}

/// Returns the descriptors available for connections of all workers and the files they are sent.
pub(crate) fn descriptors(workers: usize) -> usize {
    left(getrlimit(Resource::Nofile).current, workers)
}

fn left(descriptors: Option<u64>, workers: usize) -> usize {
    let aside = WORKER_DESCRIPTORS_ASIDE.saturating_mul(workers);
    let aside = aside.saturating_add(DESCRIPTORS_ASIDE);
    let count = descriptors.and_then(|count| usize::try_from(count).ok());
    // If there are few, half of them are still for connections.
    count.map_or(usize::MAX, |count| count - aside.min(count / 2))
}

/// Returns whether the process can open the descriptors of a new connection, by trying. Event
/// descriptors count towards the limits of the process and of the system.
pub(crate) fn has_descriptors() -> bool {
    try_descriptors(CONNECTION_DESCRIPTORS).is_ok()
}

/// Checks, by trying, that the process can open the descriptors of its workers and a connection.
///
/// # Errors
/// [`Error::Worker`] with the reason.
pub(crate) fn check_descriptors(workers: usize) -> Result<(), Error> {
    let own = WORKER_DESCRIPTORS.saturating_mul(workers);
    let count = own.saturating_add(START_DESCRIPTORS + CONNECTION_DESCRIPTORS);
    try_descriptors(count).map_err(|errno| Error::Worker {
        doing: "open what the workers need",
        source: errno.into(),
    })
}

fn try_descriptors(count: usize) -> Result<(), Errno> {
    let open = |_| eventfd(0, EventfdFlags::CLOEXEC);
    let opened: Result<Vec<_>, _> = (0..count).map(open).collect();
    opened.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left_aside() {
        assert_eq!(left(None, 2), usize::MAX);
        assert_eq!(left(Some(1_024), 2), 1_024 - 16 - 2 * 48);
        assert_eq!(left(Some(64), 1), 32);
        assert_eq!(left(Some(1_024), usize::MAX), 512);
        assert_eq!(left(Some(1), 1), 1);
    }
}
