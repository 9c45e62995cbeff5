//! The records of `__consumer_offsets`, decoded.

use std::sync::Arc;
use std::time::Duration;

use crate::group::request::Opaque;

/// A record of `__consumer_offsets`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CoordinatorRecord {
    /// The members of a group.
    Group {
        /// The group.
        group_id: Arc<str>,
        /// The state of the group; `None` is a tombstone.
        value: Option<GroupMetadata>,
    },
    /// The position of a group in a partition.
    Offset {
        /// The group.
        group_id: Arc<str>,
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The position; `None` is a tombstone.
        value: Option<CommittedOffset>,
    },
}

/// A stored group. The fields are those of Kafka's GroupMetadataValue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupMetadata {
    /// The protocol type of the group.
    pub protocol_type: String,
    /// The generation.
    pub generation: i32,
    /// The chosen protocol; none in an empty group.
    pub protocol: Option<String>,
    /// The member id of the leader; none in an empty group.
    pub leader: Option<String>,
    /// The time of the last change of state, in milliseconds since the Unix epoch. `None` in
    /// records of Kafka before 2.1.
    pub current_state_timestamp_ms: Option<i64>,
    /// The members; empty in an empty group.
    pub members: Vec<MemberMetadata>,
}

/// A stored member. The fields are those of Kafka's GroupMetadataValue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberMetadata {
    /// The id assigned by JoinGroup.
    pub member_id: String,
    /// The name of a static member.
    pub group_instance_id: Option<String>,
    /// The client id of the request header.
    pub client_id: String,
    /// The address of the client.
    pub client_host: String,
    /// The time that the member has to join again.
    pub rebalance_timeout: Duration,
    /// The time without heartbeats after which the member is removed.
    pub session_timeout: Duration,
    /// The member's metadata for the chosen protocol.
    pub subscription: Opaque,
    /// The assignment of the member by the leader.
    pub assignment: Opaque,
}

/// A committed offset. The fields are those of Kafka's OffsetCommitValue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the last record that was read; −1 if unknown.
    pub leader_epoch: i32,
    /// Arbitrary text from the client.
    pub metadata: String,
    /// The commit time, in milliseconds since the Unix epoch.
    pub commit_timestamp_ms: i64,
}
