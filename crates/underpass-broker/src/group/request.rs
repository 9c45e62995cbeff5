//! The requests of clients to the group coordinator.

use std::sync::Arc;
use std::time::Duration;

/// Bytes that only clients interpret: subscriptions and assignments.
pub type Opaque = Arc<[u8]>;

/// The time of an event, read by the caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// A monotonic clock, relative to any fixed point. Timeouts use it.
    pub monotonic: Duration,
    /// Milliseconds since the Unix epoch. Used in records and for the expiry of offsets.
    pub unix_ms: i64,
}

/// Identifies a request that is answered later. The caller chooses the number; the coordinator
/// returns each token exactly once.
#[derive(Debug, Eq, Hash, PartialEq)]
pub struct ReplyToken(pub u64);

/// A JoinGroup request.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The version of the request. Since version 4 a dynamic member has to join again with the id
    /// that it was assigned (KIP-394); since version 9 a leader can be asked to skip the
    /// assignment (KIP-814).
    pub version: i16,
    /// The group.
    pub group_id: String,
    /// The member id; empty for a new member.
    pub member_id: String,
    /// The name of a static member (KIP-345).
    pub group_instance_id: Option<String>,
    /// The client id of the request header.
    pub client_id: String,
    /// The address of the client, as Kafka's tools show it.
    pub client_host: String,
    /// The time without heartbeats after which the member is removed.
    pub session_timeout: Duration,
    /// The time that the member has to join again. In version 0 the session timeout.
    pub rebalance_timeout: Duration,
    /// The protocol type of the group, such as `consumer` or `connect`.
    pub protocol_type: String,
    /// The supported protocols in the order of preference.
    pub protocols: Vec<MemberProtocol>,
}

/// A way to assign work that a member supports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberProtocol {
    /// The name, such as `range`.
    pub name: String,
    /// The data about the member for the leader, such as its topics.
    pub metadata: Opaque,
}

/// How a member identifies itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberIdentity {
    /// The group.
    pub group_id: String,
    /// The generation that the member believes to be current; −1 without group management.
    pub generation: i32,
    /// The id assigned by JoinGroup; empty without group management.
    pub member_id: String,
    /// The name of a static member (KIP-345).
    pub group_instance_id: Option<String>,
}

/// A SyncGroup request.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// The member.
    pub member: MemberIdentity,
    /// The protocol type that JoinGroup returned, since version 5 (KIP-559).
    pub protocol_type: Option<String>,
    /// The protocol that JoinGroup returned, since version 5.
    pub protocol: Option<String>,
    /// Member ids with their assignments, from the leader.
    pub assignments: Vec<(String, Opaque)>,
}

/// A member that leaves, or is removed by an administrator.
#[derive(Clone, Debug)]
pub struct LeavingMember {
    /// The member id; empty if only the instance id is known.
    pub member_id: String,
    /// The name of a static member (KIP-345).
    pub group_instance_id: Option<String>,
}

/// An OffsetCommit request. The caller omits partitions that do not exist.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// The member.
    pub member: MemberIdentity,
    /// The offsets to commit.
    pub offsets: Vec<OffsetToCommit>,
}

/// The position of a group in a partition.
#[derive(Clone, Debug)]
pub struct OffsetToCommit {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the last record that was read; −1 if unknown (KIP-320).
    pub leader_epoch: i32,
    /// Arbitrary text from the client, returned unchanged.
    pub metadata: String,
}
