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
    let allowed = getrlimit(Resource::Nofile).current;
    carried(allowed).clamp(1, limits.connections_max)
}

/// Each connection may need a second descriptor for the file it is sent. Where there are few, half
/// of them are for connections all the same.
fn carried(descriptors: Option<u64>) -> usize {
    match descriptors {
        None => usize::MAX,
        Some(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            (count - DESCRIPTORS_ASIDE.min(count / 2)) / 2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_twice_and_some_are_left_aside() {
        assert_eq!(carried(None), usize::MAX);
        assert_eq!(carried(Some(1_024)), (1_024 - DESCRIPTORS_ASIDE) / 2);
        assert_eq!(carried(Some(64)), 16);
        assert_eq!(carried(Some(1)), 0);
    }
}
