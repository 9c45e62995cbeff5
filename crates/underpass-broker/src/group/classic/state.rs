//! The state of a group, and functions that all of its parts need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::group::classic::member::Members;
use crate::group::classic::offsets::Offsets;
use crate::group::effect::{Effects, WriteToken};
use crate::group::error::GroupError;
use crate::group::limits::{GroupSettings, REBALANCE_TIMEOUT_MIN};
use crate::group::record::{CoordinatorRecord, GroupMetadata, MemberMetadata};
use crate::group::request::{MemberIdentity, Now};

/// The environment of a group while it handles an event.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    pub(crate) settings: &'a GroupSettings,
    pub(crate) effects: &'a mut Effects,
}

/// A classic group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: Arc<str>,
    pub(crate) state: GroupState,
    /// When the group became empty or formed its generation, in milliseconds since the Unix epoch.
    pub(crate) state_timestamp_ms: Option<i64>,
    /// The number of the generation; 0 before the first.
    pub(crate) generation: i32,
    /// None as long as only consumers without group management have committed offsets.
    pub(crate) protocol_type: Option<String>,
    /// The protocol of the generation.
    pub(crate) protocol: Option<String>,
    /// The member id of the leader.
    pub(crate) leader: Option<String>,
    pub(crate) members: Members,
    /// Assigned member ids that have not joined yet (KIP-394), with their deadlines.
    pub(crate) pending_members: BTreeMap<String, Duration>,
    /// The members of the generation that have not sent SyncGroup yet, and their common deadline.
    pub(crate) pending_sync: BTreeSet<String>,
    pub(crate) sync_deadline: Duration,
    pub(crate) offsets: Offsets,
}

/// The state of a group. Kafka's fifth state, Dead, is a group that does not exist any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GroupState {
    /// No members; perhaps offsets.
    Empty,
    /// Members join again, until all have, or `deadline`.
    PreparingRebalance {
        deadline: Duration,
        delay: Option<InitialDelay>,
    },
    /// Waits for the leader's assignment, then until `assignment` is written.
    CompletingRebalance { assignment: Option<WriteToken> },
    /// Every member has an assignment.
    Stable,
}

/// The delay of the first generation of an empty group (KIP-134).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InitialDelay {
    /// The next value of the deadline: later if a member has joined meanwhile.
    pub(crate) next_deadline: Duration,
    /// The latest deadline, from the rebalance timeout.
    pub(crate) latest: Duration,
}

impl Group {
    pub(crate) fn new(id: Arc<str>) -> Group {
        Group {
            id,
            state: GroupState::Empty,
            state_timestamp_ms: None,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: Members::default(),
            pending_members: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            sync_deadline: Duration::ZERO,
            offsets: Offsets::default(),
        }
    }

    /// Whether the group has no state to keep, neither here nor in the log.
    pub(crate) fn is_vacant(&self) -> bool {
        self.state == GroupState::Empty
            && self.generation == 0
            && self.pending_members.is_empty()
            && self.offsets.is_empty()
    }

    /// Returns the number of members and assigned member ids.
    pub(crate) fn size(&self) -> usize {
        self.members.len() + self.pending_members.len()
    }

    /// Returns the approximate memory of members and assigned member ids, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let pending = self.pending_members.keys().map(String::len);
        self.members.bytes() + pending.sum::<usize>()
    }

    /// Returns the time at which [`Group::tick`] has to be called.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let rebalance = match self.state {
            GroupState::PreparingRebalance { deadline, .. } => Some(deadline),
            GroupState::Empty | GroupState::CompletingRebalance { .. } | GroupState::Stable => None,
        };
        let sync = (!self.pending_sync.is_empty()).then_some(self.sync_deadline);
        let sessions = self
            .members
            .iter()
            .filter_map(|member| member.session_deadline);
        let pending = self.pending_members.values().copied();
        let deadlines = rebalance.into_iter().chain(sync).chain(sessions);
        deadlines.chain(pending).min()
    }

    pub(crate) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub(crate) fn rebalance_timeout(&self) -> Duration {
        self.members.rebalance_timeout().max(REBALANCE_TIMEOUT_MIN)
    }

    /// Checks that a request is from a member of the current generation.
    pub(crate) fn validate(&self, member: &MemberIdentity) -> Result<(), GroupError> {
        self.validate_member(&member.member_id, member.group_instance_id.as_deref())?;
        if member.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        Ok(())
    }

    /// Checks that a member exists, and that no other has taken over its instance id.
    pub(crate) fn validate_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), GroupError> {
        if let Some(instance_id) = instance_id {
            match self.members.static_id(instance_id) {
                None => return Err(GroupError::UnknownMemberId),
                Some(current) if current != member_id => {
                    return Err(GroupError::FencedInstanceId);
                }
                Some(_) => {}
            }
        }
        if !self.members.contains(member_id) {
            return Err(GroupError::UnknownMemberId);
        }
        Ok(())
    }

    /// Returns the members of the generation.
    pub(crate) fn stored_members(&self) -> Vec<MemberMetadata> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.iter().map(|member| MemberMetadata {
            member_id: member.id().to_owned(),
            group_instance_id: member.instance_id().map(str::to_owned),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout: member.rebalance_timeout,
            session_timeout: member.session_timeout,
            subscription: member.metadata(protocol),
            assignment: member.assignment(),
        });
        members.collect()
    }

    /// Returns the record of the group.
    pub(crate) fn record(&self) -> CoordinatorRecord {
        CoordinatorRecord::Group {
            group_id: Arc::clone(&self.id),
            value: Some(GroupMetadata {
                protocol_type: self.protocol_type.clone().unwrap_or_default(),
                generation: self.generation,
                protocol: self.protocol.clone(),
                leader: self.leader.clone(),
                current_state_timestamp_ms: self.state_timestamp_ms,
                members: self.stored_members(),
            }),
        }
    }

    /// Returns the record that removes the group from the log; `None` if it was never stored.
    pub(crate) fn tombstone(&self) -> Option<CoordinatorRecord> {
        (self.generation > 0).then(|| CoordinatorRecord::Group {
            group_id: Arc::clone(&self.id),
            value: None,
        })
    }
}
