//! The limits of the group coordinator, each with its reason.

use std::time::Duration;

/// Groups at once, those that have only offsets included. A group takes about 1 KiB plus its
/// offsets. Beyond the limit a request that would create one is answered with
/// COORDINATOR_NOT_AVAILABLE (15); restored groups are always kept.
pub const GROUPS_MAX: usize = 100_000;

/// Members and assigned but unused member ids of one group at once. The answer to the leader names
/// all members, and a change of the group takes a time that grows with their number. Beyond the
/// limit: GROUP_MAX_SIZE_REACHED (81).
pub const GROUP_MEMBERS_MAX: usize = 5_000;

/// Members and assigned but unused member ids at once, over all groups. A member has at most one
/// JoinGroup and one SyncGroup request that waits, so the limit holds for these too. A flood of
/// requests without heartbeats ends with the session timeout, 30 minutes at most. Beyond the limit:
/// GROUP_MAX_SIZE_REACHED (81).
pub const MEMBERS_MAX: usize = 100_000;

/// What is kept of all members, in bytes: names, the metadata of protocols, assignments. A request
/// may carry 100 MiB, and the coordinator keeps them as long as the member lives. Beyond the limit:
/// GROUP_MAX_SIZE_REACHED (81).
pub const MEMBER_BYTES_MAX: usize = 256 << 20;

/// How much of the name of a client or an instance its member id begins with: as long as Kafka lets
/// the name of an instance be. A name may be as long as a string can be, and the id is a string
/// too.
pub(crate) const MEMBER_NAME_CHARS_MAX: usize = 249;

/// The metadata string of a committed offset, in bytes (Kafka's `offset.metadata.max.bytes`).
pub const OFFSET_METADATA_BYTES_MAX: usize = 4096;

/// How long a new member may wait for the first answer to its JoinGroup request. It cannot send
/// heartbeats before, so its client may have vanished.
pub const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// The lowest rebalance timeout. Lower values of clients are raised to it, so that a group whose
/// members do not return is not examined all the time.
pub const REBALANCE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How often expired offsets are looked for (Kafka's `offsets.retention.check.interval.ms`).
pub const OFFSETS_RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// The settings of the group coordinator, with Kafka's names and defaults.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// How long an empty group waits for further members before it forms a generation
    /// (`group.initial.rebalance.delay.ms`, KIP-134).
    pub initial_rebalance_delay: Duration,
    /// The shortest session timeout of a member (`group.min.session.timeout.ms`).
    pub session_timeout_min: Duration,
    /// The longest session timeout of a member (`group.max.session.timeout.ms`).
    pub session_timeout_max: Duration,
    /// How long offsets are kept after the group became empty, or after the last commit of a
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
