//! The actions that the group coordinator requests from its caller.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, OnceLock};

use crate::group::error::{GroupError, WriteError};
use crate::group::record::{CommittedOffset, CoordinatorRecord};
use crate::group::request::{Opaque, ReplyToken};

/// An action for the caller. Actions must be done in order.
#[derive(Debug, Eq, PartialEq)]
pub enum Effect {
    /// Answer a JoinGroup request.
    Joined(ReplyToken, Result<Joined, JoinRejected>),
    /// Answer a SyncGroup request.
    Synced(ReplyToken, Result<Synced, GroupError>),
    /// Answer an OffsetCommit request: all of its partitions, in the order of the request.
    Committed(ReplyToken, Vec<CommitResult>),
    /// Answer a DeleteGroups or OffsetDelete request, with the topics whose offsets stay because
    /// members subscribe to them.
    Removed(ReplyToken, Result<Vec<String>, GroupError>),
    /// Append records to `__consumer_offsets` with acks=all, and report the result with the token.
    /// Writes of one group are appended, and reported, in the order of the effects.
    Write {
        /// The token to report.
        token: WriteToken,
        /// The group, whose partition has the records ([`partition_of`](super::partition_of)).
        group_id: Arc<str>,
        /// The records, at least one.
        records: Vec<CoordinatorRecord>,
    },
}

/// Identifies a write. Tokens are ascending.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WriteToken(u64);

/// The answer to an accepted JoinGroup request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Joined {
    /// The generation.
    pub generation: i32,
    /// The protocol type of the group.
    pub protocol_type: String,
    /// The chosen protocol.
    pub protocol: String,
    /// The member id of the leader.
    pub leader: String,
    /// Whether the leader keeps the assignment of the generation (KIP-814).
    pub skip_assignment: bool,
    /// The id of the member that joined.
    pub member_id: String,
    /// For the leader: all members.
    pub members: Vec<JoinedMember>,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JoinedMember {
    /// The id assigned by JoinGroup.
    pub member_id: String,
    /// The name of a static member.
    pub group_instance_id: Option<String>,
    /// The member's metadata for the chosen protocol.
    pub metadata: Opaque,
}

/// The answer to a rejected JoinGroup request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JoinRejected {
    /// The reason.
    pub error: GroupError,
    /// The member id of the request; with [`GroupError::MemberIdRequired`] the assigned one.
    pub member_id: String,
}

/// The answer to a SyncGroup request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Synced {
    /// The protocol type of the group.
    pub protocol_type: String,
    /// The chosen protocol.
    pub protocol: String,
    /// The assignment of the member.
    pub assignment: Opaque,
}

/// The result for one offset of an OffsetCommit request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CommitResult {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// None if the offset was committed.
    pub error: Option<GroupError>,
}

/// Committed offsets of a group that were lowered to the ends of their logs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoweredOffsets {
    /// The group.
    pub group_id: Arc<str>,
    /// The topic.
    pub topic: String,
    /// The number of affected partitions: each has an [`Effect::Write`].
    pub partitions: usize,
    /// The sum of the differences over these partitions.
    pub records: i64,
}

/// The bytes of the tombstones in one write; a batch may have twice as many.
const TOMBSTONES_BYTES_MAX: usize = 512 << 10;

/// The largest tombstone without the name of its group, in bytes.
const TOMBSTONE_BYTES: usize = 320;

/// Collects effects, and the events that wait for writes.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    effects: Vec<Effect>,
    waiting: BTreeMap<WriteToken, Waiting>,
    writes: u64,
}

/// The event after a write is reported.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// The assignment of a generation takes effect.
    Assignment { group_id: Arc<str> },
    /// A static member that replaced another gets its answer.
    StaticJoin {
        group_id: Arc<str>,
        reply: ReplyToken,
        joined: Joined,
    },
    /// Offsets become visible.
    Commit(PendingCommit),
    /// A removal is answered after its last write, with the first failure.
    Removal {
        failure: Arc<OnceLock<WriteError>>,
        last: Option<(ReplyToken, Vec<String>)>,
    },
}

/// Offsets that are being written.
#[derive(Debug)]
pub(crate) struct PendingCommit {
    pub(crate) group_id: Arc<str>,
    pub(crate) reply: ReplyToken,
    pub(crate) results: Vec<CommitResult>,
    pub(crate) offsets: Vec<(String, i32, CommittedOffset)>,
}

impl Effects {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn reject_join(&mut self, reply: ReplyToken, error: GroupError, member_id: String) {
        self.push(Effect::Joined(
            reply,
            Err(JoinRejected { error, member_id }),
        ));
    }

    /// Writes records of a group.
    pub(crate) fn write(
        &mut self,
        group_id: &Arc<str>,
        records: Vec<CoordinatorRecord>,
    ) -> WriteToken {
        self.writes += 1;
        let token = WriteToken(self.writes);
        self.push(Effect::Write {
            token,
            group_id: Arc::clone(group_id),
            records,
        });
        token
    }

    /// Writes records of a group; `waiting` is kept until the write is reported.
    pub(crate) fn write_for(
        &mut self,
        group_id: &Arc<str>,
        records: Vec<CoordinatorRecord>,
        waiting: Waiting,
    ) -> WriteToken {
        let token = self.write(group_id, records);
        self.waiting.insert(token, waiting);
        token
    }

    /// Writes tombstones of a group, in batches that fit, and answers when all are written.
    pub(crate) fn write_removal(
        &mut self,
        group_id: &Arc<str>,
        mut records: Vec<CoordinatorRecord>,
        reply: (ReplyToken, Vec<String>),
    ) {
        if records.is_empty() {
            return self.push(Effect::Removed(reply.0, Ok(reply.1)));
        }
        let failure = Arc::new(OnceLock::new());
        let count = (TOMBSTONES_BYTES_MAX / (group_id.len() + TOMBSTONE_BYTES)).max(1);
        while records.len() > count {
            let rest = records.split_off(count);
            let waiting = Waiting::Removal {
                failure: Arc::clone(&failure),
                last: None,
            };
            self.write_for(group_id, mem::replace(&mut records, rest), waiting);
        }
        let last = Some(reply);
        self.write_for(group_id, records, Waiting::Removal { failure, last });
    }

    /// Removes and returns the event that waits for a write.
    pub(crate) fn take_waiting(&mut self, token: WriteToken) -> Option<Waiting> {
        self.waiting.remove(&token)
    }

    /// Returns the commits being written, of all groups.
    pub(crate) fn pending_commits(&mut self) -> impl Iterator<Item = &mut PendingCommit> {
        self.waiting
            .values_mut()
            .filter_map(|waiting| match waiting {
                Waiting::Commit(commit) => Some(commit),
                Waiting::Assignment { .. }
                | Waiting::StaticJoin { .. }
                | Waiting::Removal { .. } => None,
            })
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.effects)
    }
}
