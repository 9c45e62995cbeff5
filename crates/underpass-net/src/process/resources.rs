//! What the process may use: processors, and descriptors with the connections that fit into them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::{ConnectionLimits, DESCRIPTORS_ASIDE};

/// The cores this process may use: what the scheduler's affinity mask allows, at least one.
pub fn cores() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(mask) => (mask.count() as usize).max(1),
        Err(_) => 1,
    }
}

/// Raises the soft limit on descriptors to the hard one (the soft one is low for the sake of
/// programs that use `select`) and returns how many connections fit, at most what `limits` allow.
pub(crate) fn connections(limits: &ConnectionLimits) -> usize {
    let wanted = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: wanted.maximum,
        maximum: wanted.maximum,
    };
    // A refusal leaves the limit as it is, and it is read again below.
    let _ = setrlimit(Resource::Nofile, raised);
    // Each connection may need a second descriptor for the file it is sent.
    (descriptors() / 2).clamp(1, limits.connections_max)
}

/// How many descriptors there may be for connections and what they are sent.
pub(crate) fn descriptors() -> usize {
    left(getrlimit(Resource::Nofile).current)
}

fn left(descriptors: Option<u64>) -> usize {
    let count = descriptors.and_then(|count| usize::try_from(count).ok());
    // Where there are few, half of them are for connections all the same.
    count.map_or(usize::MAX, |count| count - DESCRIPTORS_ASIDE.min(count / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left_aside() {
        assert_eq!(left(None), usize::MAX);
        assert_eq!(left(Some(1_024)), 1_024 - DESCRIPTORS_ASIDE);
        assert_eq!(left(Some(64)), 32);
        assert_eq!(left(Some(1)), 1);
    }
}
