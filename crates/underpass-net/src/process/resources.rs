//! What the process may use: processors, and descriptors with the connections that fit into them.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;
use crate::limits::{
    CONNECTION_DESCRIPTORS, ConnectionLimits, DESCRIPTORS_ASIDE, START_DESCRIPTORS,
    WORKER_DESCRIPTORS, WORKER_DESCRIPTORS_ASIDE,
};

/// The cores this process may use: what the scheduler's affinity mask allows, at least one.
pub fn cores() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(mask) => (mask.count() as usize).max(1),
        Err(_) => 1,
    }
}

/// Raises the soft limit on descriptors to the hard one (the soft one is low for the sake of
/// programs that use `select`) and returns how many connections fit, at most what `limits` allow.
pub(crate) fn connections(limits: &ConnectionLimits, workers: usize) -> usize {
    let wanted = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: wanted.maximum,
        maximum: wanted.maximum,
    };
    // A refusal leaves the limit as it is, and it is read again below.
    let _ = setrlimit(Resource::Nofile, raised);
    // Each connection may need a second descriptor for the file it is sent.
    (descriptors(workers) / 2).clamp(1, limits.connections_max)
}

/// Has the kernel write no core dumps of this process, which would hold private keys: lowers the
/// soft limit (core(5)), which its user can raise again.
pub fn forbid_core_dumps() {
    let forbidden = Rlimit {
        current: Some(0),
        ..getrlimit(Resource::Core)
    };
    // Lowering a limit needs no privilege.
    let _ = setrlimit(Resource::Core, forbidden);
}

/// How many descriptors there may be for connections of all workers and what they are sent.
pub(crate) fn descriptors(workers: usize) -> usize {
    left(getrlimit(Resource::Nofile).current, workers)
}

fn left(descriptors: Option<u64>, workers: usize) -> usize {
    let aside = WORKER_DESCRIPTORS_ASIDE.saturating_mul(workers);
    let aside = aside.saturating_add(DESCRIPTORS_ASIDE);
    let count = descriptors.and_then(|count| usize::try_from(count).ok());
    // Where there are few, half of them are for connections all the same.
    count.map_or(usize::MAX, |count| count - aside.min(count / 2))
}

/// Whether the process can open what a new connection needs: it tries. Event descriptors count in
/// the limits of the process and of the system.
pub(crate) fn has_descriptors() -> bool {
    try_descriptors(CONNECTION_DESCRIPTORS).is_ok()
}

/// Whether the process can open what it is about to for so many workers, and for a connection.
///
/// # Errors
/// [`Error::Worker`]: why it cannot.
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
