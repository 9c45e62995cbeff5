//! All groups of this broker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::group::classic::commit::{GroupRetention, refused};
use crate::group::classic::describe::GroupDescription;
use crate::group::classic::member::join_bytes;
use crate::group::classic::state::{Context, Group, GroupState};
use crate::group::effect::{Effect, Effects, LoweredOffsets, Waiting, WriteToken};
use crate::group::error::{GroupError, WriteError};
use crate::group::limits::{
    GROUP_MEMBERS_MAX, GROUPS_MAX, GroupSettings, MEMBER_BYTES_MAX, MEMBER_NAME_CHARS_MAX,
    MEMBERS_MAX, OFFSETS_RETENTION_CHECK_INTERVAL,
};
use crate::group::record::{CommittedOffset, CoordinatorRecord};
use crate::group::request::{
    CommitRequest, JoinRequest, LeavingMember, MemberIdentity, Now, ReplyToken, SyncRequest,
};

/// The coordinator of all groups of this broker, as a state machine without sockets, clock or disk.
/// After every event the caller takes [`Coordinator::effects`] and the time of
/// [`Coordinator::next_tick`]. No method blocks.
pub struct Coordinator {
    settings: GroupSettings,
    new_id: Box<dyn FnMut() -> String + Send>,
    groups: BTreeMap<Arc<str>, GroupEntry>,
    /// The deadlines of groups; never too late, perhaps too early.
    deadlines: BTreeSet<(Duration, Arc<str>)>,
    usage: Usage,
    effects: Effects,
    next_retention_check: Option<Duration>,
}

struct GroupEntry {
    group: Group,
    /// The deadline in [`Coordinator::deadlines`].
    deadline: Option<Duration>,
}

/// The values that limits apply to, of one group or of all.
#[derive(Clone, Copy, Default)]
struct Usage {
    members: usize,
    bytes: usize,
}

impl Coordinator {
    /// A coordinator without groups. `new_id` returns a string that it never returns again (Kafka:
    /// a random UUID); member ids end with it.
    pub fn new(
        settings: GroupSettings,
        new_id: impl FnMut() -> String + Send + 'static,
    ) -> Coordinator {
        Coordinator {
            settings,
            new_id: Box::new(new_id),
            groups: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            usage: Usage::default(),
            effects: Effects::default(),
            next_retention_check: None,
        }
    }

    /// Rebuilds groups from records of `__consumer_offsets`, in their order, before any other
    /// event. Members continue in the stored generation, each with a fresh session timeout. Limits
    /// do not hold. May be called once for each partition.
    pub fn restore(&mut self, now: Now, records: impl IntoIterator<Item = CoordinatorRecord>) {
        for record in records {
            match record {
                CoordinatorRecord::Group { group_id, value } => {
                    self.create(&group_id);
                    self.with_group(now, &group_id, |group, cx| group.restore(cx, value));
                }
                CoordinatorRecord::Offset {
                    group_id,
                    topic,
                    partition,
                    value,
                } => {
                    self.create(&group_id);
                    self.with_settled_group(now, &group_id, |group, _| match value {
                        Some(offset) => group.offsets.insert(topic, partition, offset),
                        None => group.offsets.remove(&topic, partition),
                    });
                }
            }
        }
    }

    /// Lowers committed offsets that are past the end of their log to that end, after
    /// [`Coordinator::restore`]: a crash has taken the records before them, and consumers would
    /// skip new records at these offsets. `end_of` returns the end of a partition that exists.
    /// Returns the lowered offsets by group and topic.
    pub fn lower_offsets(
        &mut self,
        now: Now,
        end_of: impl Fn(&str, i32) -> Option<i64>,
    ) -> Vec<LoweredOffsets> {
        let groups = self.group_ids().into_iter();
        let lowered = groups.filter_map(|group_id| {
            self.with_settled_group(now, &group_id, |group, cx| group.lower_offsets(cx, &end_of))
        });
        lowered.flatten().collect()
    }

    /// Handles a JoinGroup request. It is answered when the next generation forms, or immediately
    /// with an error: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID,
    /// FENCED_INSTANCE_ID, MEMBER_ID_REQUIRED, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED
    /// or COORDINATOR_NOT_AVAILABLE.
    pub fn join(&mut self, now: Now, reply: ReplyToken, request: JoinRequest) {
        if let Err(error) = self.admit(&request) {
            return self.effects.reject_join(reply, error, request.member_id);
        }
        let group_id = request.group_id.clone();
        if request.member_id.is_empty() {
            let name = request
                .group_instance_id
                .as_ref()
                .unwrap_or(&request.client_id);
            let name: String = name.chars().take(MEMBER_NAME_CHARS_MAX).collect();
            let member_id = format!("{name}-{}", (self.new_id)());
            self.create(&group_id);
            self.with_group(now, &group_id, |group, cx| {
                group.join_new(cx, reply, member_id, request);
            });
        } else {
            self.with_group(now, &group_id, |group, cx| {
                group.join_again(cx, reply, request);
            });
        }
    }

    /// Handles a SyncGroup request. It is answered when the leader's assignment has been written,
    /// or immediately with an error: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    /// ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED or
    /// REBALANCE_IN_PROGRESS.
    pub fn sync(&mut self, now: Now, reply: ReplyToken, request: SyncRequest) {
        let group_id = request.member.group_id.clone();
        match self.admit_assignments(&request) {
            Ok(()) => {
                self.with_group(now, &group_id, |group, cx| group.sync(cx, reply, request));
            }
            Err(error) => self.effects.push(Effect::Synced(reply, Err(error))),
        }
    }

    /// Handles a heartbeat: restarts the session of the member.
    ///
    /// # Errors
    ///
    /// INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID and ILLEGAL_GENERATION; and
    /// REBALANCE_IN_PROGRESS, which restarts the session, too.
    pub fn heartbeat(&mut self, now: Now, member: &MemberIdentity) -> Result<(), GroupError> {
        self.check_group(&member.group_id)?;
        let event = |group: &mut Group, cx: &mut Context<'_>| group.heartbeat(cx, member);
        let result = self.with_settled_group(now, &member.group_id, event);
        result.unwrap_or(Err(GroupError::UnknownMemberId))
    }

    /// Handles a LeaveGroup request; returns a result for each member. Errors: INVALID_GROUP_ID,
    /// UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    pub fn leave(
        &mut self,
        now: Now,
        group_id: &str,
        leaving: &[LeavingMember],
    ) -> Vec<Result<(), GroupError>> {
        if let Err(error) = self.check_group(group_id) {
            return vec![Err(error); leaving.len()];
        }
        let results = self.with_group(now, group_id, |group, cx| {
            let members_before = group.members.len();
            let results = leaving
                .iter()
                .map(|leaving| group.leave(cx, leaving))
                .collect();
            group.after_leave(cx, members_before);
            results
        });
        results.unwrap_or_default()
    }

    /// Handles an OffsetCommit request. It is answered when the offsets have been written, or
    /// immediately if none is acceptable. Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    /// ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS and COORDINATOR_NOT_AVAILABLE for the whole
    /// request, OFFSET_METADATA_TOO_LARGE for a partition, and the error of a failed write.
    pub fn commit(&mut self, now: Now, reply: ReplyToken, request: CommitRequest) {
        let group_id = request.member.group_id.clone();
        if let Err(error) = self.admit_commit(&request.member) {
            let results = refused(request.offsets, error);
            return self.effects.push(Effect::Committed(reply, results));
        }
        self.create(&group_id);
        self.with_settled_group(now, &group_id, |group, cx| group.commit(cx, reply, request));
    }

    /// Returns the committed offset of a group in a partition. `None` is answered as offset −1.
    pub fn committed(
        &self,
        group_id: &str,
        topic: &str,
        partition: i32,
    ) -> Option<&CommittedOffset> {
        self.groups
            .get(group_id)?
            .group
            .offsets
            .committed(topic, partition)
    }

    /// Returns all committed offsets of a group, by topic and partition.
    pub fn committed_offsets(
        &self,
        group_id: &str,
    ) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        let entry = self.groups.get(group_id).into_iter();
        entry.flat_map(|entry| entry.group.offsets.iter())
    }

    /// Returns all committed offsets of all groups, by group, topic and partition.
    pub fn all_offsets(&self) -> impl Iterator<Item = (&str, &str, i32, &CommittedOffset)> {
        self.groups.iter().flat_map(|(group_id, entry)| {
            let offsets = entry.group.offsets.iter();
            offsets.map(|(topic, partition, offset)| (&**group_id, topic, partition, offset))
        })
    }

    /// Removes the offsets of a deleted topic in all groups immediately. If the write of their
    /// tombstones fails, a restart brings them back. After [`Coordinator::restore`] the caller
    /// therefore calls this for topics that do not exist.
    pub fn topic_deleted(&mut self, now: Now, topic: &str) {
        let mut being_written: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
        for commit in self.effects.pending_commits() {
            let group = being_written
                .entry(Arc::clone(&commit.group_id))
                .or_default();
            let removed = commit.offsets.extract_if(.., |(of, _, _)| of == topic);
            group.extend(removed.map(|(_, partition, _)| partition));
        }
        for group_id in self.group_ids() {
            let being_written = being_written.remove(&group_id).unwrap_or_default();
            self.with_settled_group(now, &group_id, |group, cx| {
                group.remove_topic(cx, topic, being_written);
            });
        }
    }

    /// Returns all groups: the id, the protocol type and the state of each.
    pub fn list(&self) -> impl Iterator<Item = (&Arc<str>, &str, &'static str)> {
        self.groups.iter().map(|(group_id, entry)| {
            let kind = entry.group.protocol_type.as_deref().unwrap_or_default();
            (group_id, kind, entry.group.state.name())
        })
    }

    /// Returns the state and the members of a group; `None` if it does not exist.
    pub fn describe(&self, group_id: &str) -> Option<GroupDescription> {
        let entry = self.groups.get(group_id)?;
        Some(entry.group.describe())
    }

    /// Handles the deletion of a group. It is gone immediately, and the answer waits for the write.
    /// If that fails, a restart brings the group back. Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP,
    /// and the error of a failed write.
    pub fn delete(&mut self, now: Now, reply: ReplyToken, group_id: &str) {
        let state = self.groups.get(group_id).map(|entry| entry.group.state);
        let error = match state {
            None => GroupError::GroupIdNotFound,
            Some(GroupState::Empty) => {
                let being_written = self.take_pending(group_id, |_, _| true);
                self.with_group(now, group_id, |group, cx| {
                    group.delete(cx, reply, being_written);
                });
                return;
            }
            Some(_) => GroupError::NonEmptyGroup,
        };
        self.effects.push(Effect::Removed(reply, Err(error)));
    }

    /// Handles an OffsetDelete request: removes offsets of topics that no member subscribes to.
    /// They are gone immediately, and the answer waits for the write. If that fails, a restart
    /// brings them back. Errors: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and the
    /// error of a failed write.
    pub fn delete_offsets(
        &mut self,
        now: Now,
        reply: ReplyToken,
        group_id: &str,
        mut offsets: BTreeMap<String, BTreeSet<i32>>,
    ) {
        let group = self.groups.get(group_id).map(|entry| &entry.group);
        let subscribed = match group {
            None if group_id.is_empty() => Err(GroupError::InvalidGroupId),
            None => Err(GroupError::GroupIdNotFound),
            Some(group) if group.has_unknown_subscriptions() => Err(GroupError::NonEmptyGroup),
            Some(group) => {
                let topics = group.subscribed_topics();
                let mut subscribed = Vec::new();
                offsets.retain(|topic, _| {
                    let topics = topics.as_ref();
                    let stays = topics.is_none_or(|topics| topics.contains(topic.as_bytes()));
                    subscribed.extend(stays.then(|| topic.clone()));
                    !stays
                });
                Ok(subscribed)
            }
        };
        let subscribed = match subscribed {
            Ok(subscribed) => subscribed,
            Err(error) => return self.effects.push(Effect::Removed(reply, Err(error))),
        };
        let is_removed = |topic: &str, partition: i32| {
            let partitions = offsets.get(topic);
            partitions.is_some_and(|partitions| partitions.contains(&partition))
        };
        let being_written = self.take_pending(group_id, is_removed);
        self.with_settled_group(now, group_id, |group, cx| {
            group.delete_offsets(cx, (reply, subscribed), is_removed, being_written);
        });
    }

    /// Takes offsets of a group that are being written; returns their partitions.
    fn take_pending(
        &mut self,
        group_id: &str,
        is_taken: impl Fn(&str, i32) -> bool,
    ) -> Vec<(String, i32)> {
        let pending = self.effects.pending_commits();
        let pending = pending.filter(|commit| &*commit.group_id == group_id);
        let taken = pending.flat_map(|commit| {
            let taken = &mut commit.offsets;
            taken.extract_if(.., |(topic, partition, _)| is_taken(topic, *partition))
        });
        taken
            .map(|(topic, partition, _)| (topic, partition))
            .collect()
    }

    /// Reports the result of [`Effect::Write`]. Unknown tokens are ignored.
    pub fn written(&mut self, now: Now, token: WriteToken, result: Result<(), WriteError>) {
        match self.effects.take_waiting(token) {
            Some(Waiting::Assignment { group_id }) => {
                self.with_group(now, &group_id, |group, cx| {
                    group.assignment_written(cx, token, result);
                });
            }
            Some(Waiting::StaticJoin {
                group_id,
                reply,
                joined,
            }) => {
                let entry = self.groups.get(&group_id);
                let current = entry.map_or(Err(GroupError::UnknownMemberId), |entry| {
                    entry.group.check_joined(&joined)
                });
                match result.map_err(WriteError::of_group).and(current) {
                    Ok(()) => self.effects.push(Effect::Joined(reply, Ok(joined))),
                    Err(error) => self.effects.reject_join(reply, error, joined.member_id),
                }
            }
            Some(Waiting::Commit(commit)) => {
                let group_id = Arc::clone(&commit.group_id);
                self.with_settled_group(now, &group_id, |group, cx| {
                    group.commit_written(cx, commit, result);
                });
            }
            Some(Waiting::Removal { failure, last }) => {
                if let Err(error) = result {
                    // The first failure is kept.
                    let _ = failure.set(error);
                }
                if let Some((reply, subscribed)) = last {
                    let failed = failure.get().map(|error| error.of_group());
                    let removed = failed.map_or(Ok(subscribed), Err);
                    self.effects.push(Effect::Removed(reply, removed));
                }
            }
            None => {}
        }
    }

    /// Expires sessions, rebalances, pending member ids and offsets.
    pub fn tick(&mut self, now: Now) {
        while let Some(group_id) = self.take_due(now.monotonic) {
            self.with_group(now, &group_id, Group::tick);
        }
        let check = self.next_retention_check;
        if check.is_some_and(|check| check <= now.monotonic) {
            self.expire_offsets(now);
        }
    }

    /// Returns when to call [`Coordinator::tick`], on the clock of [`Now::monotonic`]. The call may
    /// have no effect.
    pub fn next_tick(&self) -> Option<Duration> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        deadline.into_iter().chain(self.next_retention_check).min()
    }

    /// Takes the effects of the events so far, in their order.
    pub fn effects(&mut self) -> Vec<Effect> {
        self.effects.take_effects()
    }

    /// Handles an event of a group, if it exists, and updates its usage and deadlines.
    fn with_group<R>(
        &mut self,
        now: Now,
        group_id: &str,
        event: impl FnOnce(&mut Group, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let entry = self.groups.get_mut(group_id)?;
        let mut cx = context(now, &self.settings, &mut self.effects);
        self.usage.subtract(Usage::of(&entry.group));
        let result = event(&mut entry.group, &mut cx);
        self.usage.add(Usage::of(&entry.group));

        let deadline = entry.group.next_deadline();
        if deadline != entry.deadline {
            let id = &entry.group.id;
            if let Some(earlier) = entry.deadline {
                self.deadlines.remove(&(earlier, Arc::clone(id)));
            }
            self.deadlines
                .extend(deadline.map(|deadline| (deadline, Arc::clone(id))));
            entry.deadline = deadline;
        }
        self.after_event(now, group_id);
        Some(result)
    }

    /// Handles an event that changes no members, and no deadline to an earlier one. The time it
    /// takes does not depend on the number of members.
    fn with_settled_group<R>(
        &mut self,
        now: Now,
        group_id: &str,
        event: impl FnOnce(&mut Group, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let entry = self.groups.get_mut(group_id)?;
        let mut cx = context(now, &self.settings, &mut self.effects);
        let result = event(&mut entry.group, &mut cx);
        self.after_event(now, group_id);
        Some(result)
    }

    fn after_event(&mut self, now: Now, group_id: &str) {
        let entry = self.groups.get(group_id);
        if entry.is_some_and(|entry| entry.group.is_vacant()) {
            self.groups.remove(group_id);
        }
        let check = now.monotonic + OFFSETS_RETENTION_CHECK_INTERVAL;
        self.next_retention_check.get_or_insert(check);
    }

    /// Takes the group whose deadline passed first.
    fn take_due(&mut self, now: Duration) -> Option<Arc<str>> {
        let first = self.deadlines.first()?;
        if first.0 > now {
            return None;
        }
        let (_, group_id) = self.deadlines.pop_first()?;
        if let Some(entry) = self.groups.get_mut(&group_id) {
            entry.deadline = None;
        }
        Some(group_id)
    }

    /// Creates a group unless it exists.
    fn create(&mut self, group_id: &str) {
        if !self.groups.contains_key(group_id) {
            let id: Arc<str> = Arc::from(group_id);
            let entry = GroupEntry {
                group: Group::new(Arc::clone(&id)),
                deadline: None,
            };
            self.groups.insert(id, entry);
        }
    }

    pub(crate) fn group_ids(&self) -> Vec<Arc<str>> {
        self.groups.keys().cloned().collect()
    }

    /// Checks the conditions that do not depend on the state of the group.
    fn admit(&self, request: &JoinRequest) -> Result<(), GroupError> {
        let settings = &self.settings;
        let timeouts = settings.session_timeout_min..=settings.session_timeout_max;
        if request.group_id.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        if !timeouts.contains(&request.session_timeout) {
            return Err(GroupError::InvalidSessionTimeout);
        }
        if self.usage.bytes + join_bytes(request) > MEMBER_BYTES_MAX {
            return Err(GroupError::GroupMaxSizeReached);
        }
        if !request.member_id.is_empty() {
            return self.check_group(&request.group_id);
        }
        let group = self.groups.get(request.group_id.as_str());
        let group_size = group.map_or(0, |entry| entry.group.size());
        if self.usage.members >= MEMBERS_MAX || group_size >= GROUP_MEMBERS_MAX {
            return Err(GroupError::GroupMaxSizeReached);
        }
        self.check_room(&request.group_id)
    }

    fn admit_assignments(&self, request: &SyncRequest) -> Result<(), GroupError> {
        self.check_group(&request.member.group_id)?;
        let bytes = request
            .assignments
            .iter()
            .map(|(_, assignment)| assignment.len());
        if self.usage.bytes + bytes.sum::<usize>() > MEMBER_BYTES_MAX {
            return Err(GroupError::GroupMaxSizeReached);
        }
        Ok(())
    }

    fn admit_commit(&self, member: &MemberIdentity) -> Result<(), GroupError> {
        if member.generation >= 0 && !self.groups.contains_key(member.group_id.as_str()) {
            return Err(GroupError::IllegalGeneration);
        }
        self.check_room(&member.group_id)
    }

    /// Checks that a group exists.
    fn check_group(&self, group_id: &str) -> Result<(), GroupError> {
        match self.groups.contains_key(group_id) {
            true => Ok(()),
            false if group_id.is_empty() => Err(GroupError::InvalidGroupId),
            false => Err(GroupError::UnknownMemberId),
        }
    }

    /// Checks that a group exists or may be created.
    fn check_room(&self, group_id: &str) -> Result<(), GroupError> {
        if self.groups.len() < GROUPS_MAX || self.groups.contains_key(group_id) {
            return Ok(());
        }
        Err(GroupError::CoordinatorNotAvailable)
    }

    fn expire_offsets(&mut self, now: Now) {
        for group_id in self.group_ids() {
            let retention = self.with_settled_group(now, &group_id, Group::expire_offsets);
            if retention == Some(GroupRetention::Remove) {
                self.groups.remove(&group_id);
            }
        }
        let check = now.monotonic + OFFSETS_RETENTION_CHECK_INTERVAL;
        self.next_retention_check = (!self.groups.is_empty()).then_some(check);
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("groups", &self.groups.len())
            .field("members", &self.usage.members)
            .finish_non_exhaustive()
    }
}

impl Usage {
    fn of(group: &Group) -> Usage {
        Usage {
            members: group.size(),
            bytes: group.bytes(),
        }
    }

    fn add(&mut self, other: Usage) {
        self.members += other.members;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Usage) {
        self.members -= other.members;
        self.bytes -= other.bytes;
    }
}

fn context<'a>(now: Now, settings: &'a GroupSettings, effects: &'a mut Effects) -> Context<'a> {
    Context {
        now,
        settings,
        effects,
    }
}
