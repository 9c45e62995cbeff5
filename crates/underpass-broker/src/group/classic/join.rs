//! JoinGroup.

use crate::group::classic::member::GroupMember;
use crate::group::classic::state::{Context, Group, GroupState, InitialDelay};
use crate::group::effect::{Effect, Joined, JoinedMember, Waiting};
use crate::group::error::GroupError;
use crate::group::limits::NEW_MEMBER_JOIN_TIMEOUT;
use crate::group::request::{JoinRequest, ReplyToken};

/// Since this version of JoinGroup a dynamic member joins with an assigned id only (KIP-394).
const MEMBER_ID_REQUIRED_VERSION: i16 = 4;
/// Since this version of JoinGroup a leader can be asked to skip the assignment (KIP-814).
const SKIP_ASSIGNMENT_VERSION: i16 = 9;

impl Group {
    /// Handles a JoinGroup request without a member id; `id` is the one to assign.
    pub(crate) fn join_new(
        &mut self,
        cx: &mut Context<'_>,
        reply: ReplyToken,
        id: String,
        request: JoinRequest,
    ) {
        if !self.supports(&request) {
            let error = GroupError::InconsistentGroupProtocol;
            return cx.effects.reject_join(reply, error, String::new());
        }
        let instance_id = request.group_instance_id.as_ref();
        let replaced = instance_id.and_then(|instance_id| self.members.static_id(instance_id));
        if let Some(replaced) = replaced.cloned() {
            self.replace_static(cx, reply, &replaced, id, request);
        } else if instance_id.is_none() && request.version >= MEMBER_ID_REQUIRED_VERSION {
            let deadline = cx.now.monotonic + request.session_timeout;
            self.pending_members.insert(id.clone(), deadline);
            cx.effects
                .reject_join(reply, GroupError::MemberIdRequired, id);
        } else {
            self.add_member(cx, reply, id, request);
        }
    }

    /// Handles a JoinGroup request with a member id.
    pub(crate) fn join_again(
        &mut self,
        cx: &mut Context<'_>,
        reply: ReplyToken,
        request: JoinRequest,
    ) {
        let id = request.member_id.clone();
        if !self.supports(&request) {
            let error = GroupError::InconsistentGroupProtocol;
            return cx.effects.reject_join(reply, error, id);
        }
        let instance_id = request.group_instance_id.as_deref();
        // Only dynamic members are assigned an id before they join.
        if instance_id.is_none() && self.pending_members.remove(&id).is_some() {
            return self.add_member(cx, reply, id, request);
        }
        if let Err(error) = self.validate_member(&id, instance_id) {
            return cx.effects.reject_join(reply, error, id);
        }
        if self.is_current(&request) {
            // The answer was lost, or nothing has changed since.
            let joined = self.joined(&id);
            return cx.effects.push(Effect::Joined(reply, Ok(joined)));
        }
        self.members.change(&id, |member| member.update(request));
        self.await_generation(cx, &id, reply);
        self.rebalance(cx);
    }

    /// Returns the answer to a JoinGroup request of a member of the current generation.
    pub(crate) fn joined(&self, member_id: &str) -> Joined {
        let members = match self.is_leader(member_id) {
            true => self.joined_members(),
            false => Vec::new(),
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol.clone().unwrap_or_default(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members,
        }
    }

    /// Checks that an answer that waited for a write is still valid. A later generation would have
    /// been written later.
    pub(crate) fn check_joined(&self, joined: &Joined) -> Result<(), GroupError> {
        self.validate_member(&joined.member_id, None)?;
        if self.state != GroupState::Stable {
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.iter().map(|member| JoinedMember {
            member_id: member.id().to_owned(),
            group_instance_id: member.instance_id().map(str::to_owned),
            metadata: member.metadata(protocol),
        });
        members.collect()
    }

    /// Whether the member's protocols are compatible with those of the others.
    fn supports(&self, request: &JoinRequest) -> bool {
        if self.members.is_empty() {
            return !request.protocol_type.is_empty() && !request.protocols.is_empty();
        }
        self.protocol_type.as_ref() == Some(&request.protocol_type)
            && self.members.support_any(&request.protocols)
    }

    /// Whether a member that joins again can stay in the current generation. A leader that joins
    /// again in a stable group wants a new assignment.
    fn is_current(&mut self, request: &JoinRequest) -> bool {
        let formed = match self.state {
            GroupState::Empty | GroupState::PreparingRebalance { .. } => false,
            GroupState::CompletingRebalance { .. } => true,
            GroupState::Stable => !self.is_leader(&request.member_id),
        };
        let member = self.members.member_mut(&request.member_id);
        formed && member.is_some_and(|member| member.offers(&request.protocols))
    }

    fn add_member(
        &mut self,
        cx: &mut Context<'_>,
        reply: ReplyToken,
        id: String,
        request: JoinRequest,
    ) {
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        let mut member = GroupMember::joining(id, reply, request);
        member.session_deadline = Some(cx.now.monotonic + NEW_MEMBER_JOIN_TIMEOUT);
        self.members.insert(member);
        if let GroupState::PreparingRebalance {
            deadline,
            delay:
                Some(InitialDelay {
                    next_deadline,
                    latest,
                }),
        } = &mut self.state
        {
            *next_deadline = (*deadline + cx.settings.initial_rebalance_delay).min(*latest);
        }
        self.rebalance(cx);
    }

    /// Lets a new instance of a static member take over from the one with the id `replaced`, which
    /// is fenced (KIP-345). In a stable group that would choose the same protocol, it takes over
    /// the assignment, too.
    fn replace_static(
        &mut self,
        cx: &mut Context<'_>,
        reply: ReplyToken,
        replaced: &str,
        id: String,
        request: JoinRequest,
    ) {
        let version = request.version;
        self.fence(cx, replaced);
        self.members.change(replaced, |member| {
            member.replace_id(id.clone());
            member.update(request);
            member.restart_session(cx.now.monotonic);
        });
        self.pending_sync.remove(replaced);
        let was_leader = self.is_leader(replaced);
        if was_leader {
            self.leader = Some(id.clone());
        }
        if self.state != GroupState::Stable || self.members.elect_protocol() != self.protocol {
            self.await_generation(cx, &id, reply);
            return self.rebalance(cx);
        }
        let mut joined = self.joined(&id);
        if was_leader && version >= SKIP_ASSIGNMENT_VERSION {
            joined.skip_assignment = true;
        } else if was_leader {
            // Not its own id: an older client would compute an assignment as the leader.
            replaced.clone_into(&mut joined.leader);
            joined.members.clear();
        }
        let waiting = Waiting::StaticJoin {
            group_id: self.id.clone(),
            reply,
            joined,
        };
        cx.effects.write_for(&self.id, vec![self.record()], waiting);
    }

    /// Answers the requests of a static member that is replaced.
    fn fence(&mut self, cx: &mut Context<'_>, member_id: &str) {
        let error = GroupError::FencedInstanceId;
        if let Some(reply) = self.members.end_join(member_id) {
            cx.effects.reject_join(reply, error, member_id.to_owned());
        }
        let member = self.members.member_mut(member_id);
        if let Some(reply) = member.and_then(|member| member.syncing.take()) {
            cx.effects.push(Effect::Synced(reply, Err(error)));
        }
    }

    /// Lets a JoinGroup request wait for the next generation. An earlier request of the member,
    /// whose connection was probably lost, is answered.
    fn await_generation(&mut self, cx: &mut Context<'_>, id: &str, reply: ReplyToken) {
        if let Some(earlier) = self.members.begin_join(id, reply) {
            let error = GroupError::RebalanceInProgress;
            return cx.effects.reject_join(earlier, error, id.to_owned());
        }
        if let Some(member) = self.members.member_mut(id) {
            member.session_deadline = None;
        }
    }
}
