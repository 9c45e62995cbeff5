//! The coordinator of classic consumer groups, as a state machine.
//!
//! A client joins a group; when all members have, one of them, the leader, assigns work to each,
//! and the broker distributes the assignment. Members then send heartbeats and commit offsets.
//! Every change of the membership leads to the next generation.
//!
//! ```text
//!              a member joins                all have joined, or the time is up
//!      Empty ────────────────► PreparingRebalance ────────────────► CompletingRebalance
//!        ▲                       │     ▲   ▲  a member joins, leaves,      │    │
//!        └───────────────────────┘     │   └──or is silent─────────────────┘    │
//!              no members are left     │                                        ▼
//!                                      └───────────────────────────────────── Stable
//!                                                      the leader's assignment is written
//! ```
//!
//! The module has no sockets, no clock and no disk: [`Coordinator`] takes events and returns
//! effects. Records have the form of `__consumer_offsets`, and the caller encodes and appends them.
//!
//! The protocol is that of Kafka 4.3, with KIP-62 (rebalance timeout), KIP-134 (initial delay),
//! KIP-345 (static members), KIP-394 (member id required), KIP-559 (protocol in SyncGroup) and
//! KIP-814 (skip assignment).

mod classic;
mod coordinator;
mod effect;
mod error;
mod limits;
mod partition;
mod record;
mod request;
#[cfg(test)]
mod tests;

pub use self::classic::describe::{DEAD, GROUP_STATES, GroupDescription};
pub use self::coordinator::Coordinator;
pub use self::effect::{
    CommitResult, Effect, JoinRejected, Joined, JoinedMember, LoweredOffsets, Synced, WriteToken,
};
pub use self::error::{GroupError, WriteError};
pub use self::limits::{
    GROUP_MEMBERS_MAX, GROUPS_MAX, GroupSettings, MEMBER_BYTES_MAX, MEMBERS_MAX,
    NEW_MEMBER_JOIN_TIMEOUT, OFFSET_METADATA_BYTES_MAX, OFFSETS_RETENTION_CHECK_INTERVAL,
    REBALANCE_TIMEOUT_MIN,
};
pub use self::partition::{OFFSETS_PARTITIONS, java_hash_code, partition_of};
pub use self::record::{CommittedOffset, CoordinatorRecord, GroupMetadata, MemberMetadata};
pub use self::request::{
    CommitRequest, JoinRequest, LeavingMember, MemberIdentity, MemberProtocol, Now, OffsetToCommit,
    Opaque, ReplyToken, SyncRequest,
};
