//! SyncGroup, Heartbeat and LeaveGroup.

use std::collections::BTreeMap;

use crate::group::classic::state::{Context, Group, GroupState};
use crate::group::effect::{Effect, Synced, Waiting};
use crate::group::error::GroupError;
use crate::group::request::{LeavingMember, MemberIdentity, Opaque, ReplyToken, SyncRequest};

impl Group {
    /// Handles a SyncGroup request.
    pub(crate) fn sync(&mut self, cx: &mut Context<'_>, reply: ReplyToken, request: SyncRequest) {
        if let Err(error) = self.validate_sync(&request) {
            return cx.effects.push(Effect::Synced(reply, Err(error)));
        }
        let member_id = &request.member.member_id;
        self.pending_sync.remove(member_id);
        match self.state {
            GroupState::Empty | GroupState::PreparingRebalance { .. } => {
                let error = GroupError::RebalanceInProgress;
                cx.effects.push(Effect::Synced(reply, Err(error)));
            }
            GroupState::CompletingRebalance { assignment } => {
                self.await_assignment(cx, member_id, reply);
                if self.is_leader(member_id) && assignment.is_none() {
                    self.assign(cx, request.assignments);
                }
            }
            GroupState::Stable => {
                let synced = self.synced(member_id);
                cx.effects.push(Effect::Synced(reply, Ok(synced)));
            }
        }
    }

    /// Handles a heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        cx: &Context<'_>,
        member: &MemberIdentity,
    ) -> Result<(), GroupError> {
        self.validate(member)?;
        self.keep_session(cx, &member.member_id);
        match self.state {
            GroupState::Empty => Err(GroupError::UnknownMemberId),
            GroupState::PreparingRebalance { .. } => Err(GroupError::RebalanceInProgress),
            GroupState::CompletingRebalance { .. } | GroupState::Stable => Ok(()),
        }
    }

    /// Removes a member immediately, and rebalances unless it had not joined.
    pub(crate) fn leave(
        &mut self,
        cx: &mut Context<'_>,
        leaving: &LeavingMember,
    ) -> Result<(), GroupError> {
        let instance_id = leaving.group_instance_id.as_deref();
        let member_id = match instance_id {
            // An administrator removes a static member by its name.
            Some(instance_id) if leaving.member_id.is_empty() => {
                let member_id = self.members.static_id(instance_id);
                member_id.ok_or(GroupError::UnknownMemberId)?.clone()
            }
            _ => leaving.member_id.clone(),
        };
        if instance_id.is_none() && self.pending_members.remove(&member_id).is_some() {
            return Ok(());
        }
        self.validate_member(&member_id, instance_id)?;
        self.remove_member(cx, &member_id);
        Ok(())
    }

    /// Continues after members have left.
    pub(crate) fn after_leave(&mut self, cx: &mut Context<'_>, members_before: usize) {
        if self.members.len() < members_before {
            self.rebalance(cx);
        } else {
            self.form_generation_if_all_joined(cx);
        }
    }

    /// Restarts the session of a member.
    pub(crate) fn keep_session(&mut self, cx: &Context<'_>, member_id: &str) {
        if let Some(member) = self.members.member_mut(member_id) {
            member.heartbeat(cx.now.monotonic);
        }
    }

    /// Returns the answer to a SyncGroup request in a stable group.
    pub(crate) fn synced(&mut self, member_id: &str) -> Synced {
        let member = self.members.member_mut(member_id);
        Synced {
            assignment: member.map(|member| member.assignment()).unwrap_or_default(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol.clone().unwrap_or_default(),
        }
    }

    /// Answers the pending SyncGroup request of a member.
    pub(crate) fn end_sync(
        &mut self,
        cx: &mut Context<'_>,
        member_id: &str,
        result: Result<Synced, GroupError>,
    ) {
        if let Some(member) = self.members.member_mut(member_id)
            && let Some(reply) = member.syncing.take()
        {
            if !member.is_joining() {
                member.restart_session(cx.now.monotonic);
            }
            cx.effects.push(Effect::Synced(reply, result));
        }
    }

    fn validate_sync(&self, request: &SyncRequest) -> Result<(), GroupError> {
        self.validate(&request.member)?;
        let differs =
            |asked: &Option<String>, own: &Option<String>| asked.is_some() && asked != own;
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// Lets a SyncGroup request wait for the leader. An earlier request of the member, whose
    /// connection was probably lost, is answered.
    fn await_assignment(&mut self, cx: &mut Context<'_>, member_id: &str, reply: ReplyToken) {
        self.end_sync(cx, member_id, Err(GroupError::RebalanceInProgress));
        if let Some(member) = self.members.member_mut(member_id) {
            member.syncing = Some(reply);
            member.session_deadline = None;
        }
    }

    /// Stores and writes the leader's assignment. Members without one get an empty assignment.
    /// Members do not see it before it is written.
    fn assign(&mut self, cx: &mut Context<'_>, assignments: Vec<(String, Opaque)>) {
        self.clear_assignments();
        // Of several assignments for a member, the last one counts.
        let assignments: BTreeMap<_, _> = assignments.into_iter().collect();
        for (member_id, assignment) in assignments {
            self.members
                .change(&member_id, |member| member.assign(assignment));
        }
        let waiting = Waiting::Assignment {
            group_id: self.id.clone(),
        };
        let token = cx.effects.write_for(&self.id, vec![self.record()], waiting);
        self.state = GroupState::CompletingRebalance {
            assignment: Some(token),
        };
    }

    /// Clears all assignments.
    pub(crate) fn clear_assignments(&mut self) {
        for member_id in self.members.ids(|member| !member.assignment().is_empty()) {
            self.members
                .change(&member_id, |member| member.assign(Opaque::default()));
        }
    }
}
