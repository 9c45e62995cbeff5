//! The limits of the group coordinator, each with its reason.

use std::time::Duration;

/// The number of groups, including those that have only offsets. A group takes about 1 KiB plus its
/// offsets. Beyond the limit a request that would create one is answered with
/// COORDINATOR_NOT_AVAILABLE (15); restored groups are always kept.
pub const GROUPS_MAX: usize = 100_000;

/// The number of members and assigned but unused member ids of one group. The answer to the leader
/// lists all members, and a change of the group takes time in proportion to their number. Beyond
/// the limit: GROUP_MAX_SIZE_REACHED (81).
pub const GROUP_MEMBERS_MAX: usize = 5_000;

/// The number of members and assigned but unused member ids of all groups. A member has at most one
/// pending JoinGroup and one pending SyncGroup request, so the limit applies to these too. A flood
/// of requests without heartbeats ends with the session timeout, 30 minutes at most. Beyond the
/// limit: GROUP_MAX_SIZE_REACHED (81).
pub const MEMBERS_MAX: usize = 100_000;

/// The memory for all members, in bytes: names, the metadata of protocols, assignments. A request
/// may carry 100 MiB, and the coordinator keeps them as long as the member lives. Beyond the limit:
/// GROUP_MAX_SIZE_REACHED (81).
pub const MEMBER_BYTES_MAX: usize = 256 << 20;

/// The number of characters of the client or instance name at the start of a member id: the longest
/// instance name that Kafka allows. A name may be as long as the longest string, but the id is a
/// string too.
pub(crate) const MEMBER_NAME_CHARS_MAX: usize = 249;

/// The largest metadata of a committed offset, in bytes (Kafka's `offset.metadata.max.bytes`).
pub const OFFSET_METADATA_BYTES_MAX: usize = 4096;

/// The longest time that a new member waits for the first answer to its JoinGroup request. It
/// cannot send heartbeats before, so its client may have vanished.
pub const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// The lowest rebalance timeout. Lower values of clients are raised to it, so that a group whose
/// members do not return is not checked constantly.
pub const REBALANCE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The interval of the expiry of offsets (Kafka's `offsets.retention.check.interval.ms`).
pub const OFFSETS_RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// The settings of the group coordinator, with Kafka's names and defaults.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// The time that an empty group waits for further members before it forms a generation
    /// (`group.initial.rebalance.delay.ms`, KIP-134).
    pub initial_rebalance_delay: Duration,
    /// The shortest session timeout of a member (`group.min.session.timeout.ms`).
    pub session_timeout_min: Duration,
    /// The longest session timeout of a member (`group.max.session.timeout.ms`).
    pub session_timeout_max: Duration,
    /// The time that offsets are kept after the group became empty, or after the last commit of a
    /// consumer without group management (`offsets.retention.minutes`).
    pub offsets_retention: Duration,
}

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            initial_rebalance_delay: Duration::from_secs(3),
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(30 * 60),
            offsets_retention: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}
