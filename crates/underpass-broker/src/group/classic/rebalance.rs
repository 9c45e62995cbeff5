//! The transition from one generation to the next.

use std::mem;

use crate::group::classic::member::GroupMember;
use crate::group::classic::state::{Context, Group, GroupState, InitialDelay};
use crate::group::effect::{Effect, WriteToken};
use crate::group::error::{GroupError, WriteError};

impl Group {
    /// Begins a rebalance if none is being prepared, and ends its first phase if it can.
    pub(crate) fn rebalance(&mut self, cx: &mut Context<'_>) {
        match self.state {
            GroupState::Empty => self.delay_first_generation(cx),
            GroupState::CompletingRebalance { .. } | GroupState::Stable => {
                self.fail_syncs(cx, GroupError::RebalanceInProgress);
                self.pending_sync.clear();
                self.state = GroupState::PreparingRebalance {
                    deadline: cx.now.monotonic + self.rebalance_timeout(),
                    delay: None,
                };
            }
            GroupState::PreparingRebalance { .. } => {}
        }
        self.form_generation_if_all_joined(cx);
    }

    /// Removes a member and answers its pending requests. A rebalance has to follow.
    pub(crate) fn remove_member(&mut self, cx: &mut Context<'_>, member_id: &str) {
        let error = GroupError::UnknownMemberId;
        if let Some(reply) = self.members.end_join(member_id) {
            cx.effects.reject_join(reply, error, member_id.to_owned());
        }
        let Some(member) = self.members.remove(member_id) else {
            return;
        };
        if let Some(reply) = member.syncing {
            cx.effects.push(Effect::Synced(reply, Err(error)));
        }
        if self.is_leader(member_id) {
            self.leader = self
                .members
                .iter()
                .next()
                .map(|member| member.id().to_owned());
        }
    }

    /// Removes expired members and continues a rebalance whose deadline has passed.
    pub(crate) fn tick(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.monotonic;
        self.pending_members.retain(|_, deadline| *deadline > now);
        let mut expired = self.members.ids(|member| {
            member
                .session_deadline
                .is_some_and(|deadline| deadline <= now)
        });
        if self.sync_deadline <= now {
            expired.extend(mem::take(&mut self.pending_sync));
        }
        for member_id in &expired {
            self.remove_member(cx, member_id);
        }
        if !expired.is_empty() {
            self.rebalance(cx);
        }
        self.form_generation_if_all_joined(cx);
        self.end_preparation(cx);
    }

    /// Forms a generation if all members have joined, unless the first generation is being delayed.
    pub(crate) fn form_generation_if_all_joined(&mut self, cx: &mut Context<'_>) {
        let undelayed = matches!(
            self.state,
            GroupState::PreparingRebalance { delay: None, .. }
        );
        if undelayed && self.members.all_joining() && self.pending_members.is_empty() {
            self.form_generation(cx);
        }
    }

    /// Continues after the write of an assignment.
    pub(crate) fn assignment_written(
        &mut self,
        cx: &mut Context<'_>,
        token: WriteToken,
        result: Result<(), WriteError>,
    ) {
        let expected = GroupState::CompletingRebalance {
            assignment: Some(token),
        };
        if self.state != expected {
            // A rebalance has started meanwhile.
            return;
        }
        match result {
            Ok(()) => {
                self.state = GroupState::Stable;
                self.answer_syncs(cx);
            }
            Err(error) => {
                self.clear_assignments();
                self.fail_syncs(cx, error.of_group());
                self.rebalance(cx);
            }
        }
    }

    fn delay_first_generation(&mut self, cx: &mut Context<'_>) {
        let (now, delay) = (cx.now.monotonic, cx.settings.initial_rebalance_delay);
        self.state = GroupState::PreparingRebalance {
            deadline: now + delay,
            delay: Some(InitialDelay {
                next_deadline: now + delay,
                latest: now + delay.max(self.rebalance_timeout()),
            }),
        };
    }

    fn end_preparation(&mut self, cx: &mut Context<'_>) {
        let GroupState::PreparingRebalance { deadline, delay } = &mut self.state else {
            return;
        };
        if *deadline > cx.now.monotonic {
            return;
        }
        match delay {
            Some(delay) if delay.next_deadline > *deadline => *deadline = delay.next_deadline,
            _ => self.form_generation(cx),
        }
    }

    /// Ends the join phase: removes dynamic members that have not joined again, but keeps static
    /// ones, whose sessions decide.
    fn form_generation(&mut self, cx: &mut Context<'_>) {
        for member_id in self
            .members
            .ids(|member| !member.is_joining() && member.instance_id().is_none())
        {
            self.remove_member(cx, &member_id);
        }
        if self.members.is_empty() {
            self.become_empty(cx);
        } else if self.elect_leader() {
            self.begin_generation(cx);
        } else {
            self.state = GroupState::PreparingRebalance {
                deadline: cx.now.monotonic + self.rebalance_timeout(),
                delay: None,
            };
        }
    }

    /// Makes sure that the leader has joined; returns false if no member has.
    fn elect_leader(&mut self) -> bool {
        let leader = self.leader.as_deref();
        let stays = |member: &GroupMember| member.is_joining() && Some(member.id()) == leader;
        if !self.members.iter().any(stays) {
            let Some(elected) = self.members.iter().find(|member| member.is_joining()) else {
                return false;
            };
            self.leader = Some(elected.id().to_owned());
        }
        true
    }

    fn become_empty(&mut self, cx: &mut Context<'_>) {
        self.next_generation(cx, GroupState::Empty);
        self.protocol = None;
        self.leader = None;
        cx.effects.write(&self.id, vec![self.record()]);
    }

    fn begin_generation(&mut self, cx: &mut Context<'_>) {
        self.next_generation(cx, GroupState::CompletingRebalance { assignment: None });
        self.protocol = self.members.elect_protocol();
        self.sync_deadline = cx.now.monotonic + self.rebalance_timeout();
        for member_id in self.members.ids(|_| true) {
            let joined = self.joined(&member_id);
            if let Some(reply) = self.members.end_join(&member_id) {
                cx.effects.push(Effect::Joined(reply, Ok(joined)));
            }
            if let Some(member) = self.members.member_mut(&member_id) {
                member.restart_session(cx.now.monotonic);
            }
            self.pending_sync.insert(member_id);
        }
    }

    fn next_generation(&mut self, cx: &Context<'_>, state: GroupState) {
        // The number wraps to 1.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.state = state;
        self.state_timestamp_ms = Some(cx.now.unix_ms);
    }

    fn answer_syncs(&mut self, cx: &mut Context<'_>) {
        for member_id in self.members.ids(|member| member.syncing.is_some()) {
            let synced = self.synced(&member_id);
            self.end_sync(cx, &member_id, Ok(synced));
        }
    }

    fn fail_syncs(&mut self, cx: &mut Context<'_>, error: GroupError) {
        for member_id in self.members.ids(|member| member.syncing.is_some()) {
            self.end_sync(cx, &member_id, Err(error));
        }
    }
}
