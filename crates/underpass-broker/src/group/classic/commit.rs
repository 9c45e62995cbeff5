//! OffsetCommit, and the removal of offsets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::group::classic::state::{Context, Group, GroupState};
use crate::group::effect::{CommitResult, Effect, LoweredOffsets, PendingCommit, Waiting};
use crate::group::error::{GroupError, WriteError};
use crate::group::limits::OFFSET_METADATA_BYTES_MAX;
use crate::group::record::{CommittedOffset, CoordinatorRecord};
use crate::group::request::{CommitRequest, MemberIdentity, OffsetToCommit, ReplyToken};

impl Group {
    /// Handles an OffsetCommit request.
    pub(crate) fn commit(
        &mut self,
        cx: &mut Context<'_>,
        reply: ReplyToken,
        request: CommitRequest,
    ) {
        if let Err(error) = self.validate_commit(&request.member) {
            let results = refused(request.offsets, error);
            return cx.effects.push(Effect::Committed(reply, results));
        }
        self.keep_session(cx, &request.member.member_id);
        let mut results = Vec::with_capacity(request.offsets.len());
        let mut offsets = Vec::with_capacity(request.offsets.len());
        for commit in request.offsets {
            let fits = commit.metadata.len() <= OFFSET_METADATA_BYTES_MAX;
            let error = (!fits).then_some(GroupError::OffsetMetadataTooLarge);
            results.push(result_of(&commit, error));
            if fits {
                let offset = committed(commit.offset, commit.leader_epoch, commit.metadata, cx);
                offsets.push((commit.topic, commit.partition, offset));
            }
        }
        if offsets.is_empty() {
            return cx.effects.push(Effect::Committed(reply, results));
        }
        self.offsets.commits_pending += 1;
        let records = offsets.iter().map(|(topic, partition, offset)| {
            self.offset_record(topic, *partition, Some(offset.clone()))
        });
        let records = records.collect();
        let waiting = Waiting::Commit(PendingCommit {
            group_id: Arc::clone(&self.id),
            reply,
            results,
            offsets,
        });
        cx.effects.write_for(&self.id, records, waiting);
    }

    /// Makes written offsets visible or drops them, and answers.
    pub(crate) fn commit_written(
        &mut self,
        cx: &mut Context<'_>,
        mut commit: PendingCommit,
        result: Result<(), WriteError>,
    ) {
        self.offsets.commits_pending -= 1;
        match result {
            Ok(()) => {
                for (topic, partition, offset) in commit.offsets {
                    self.offsets.insert(topic, partition, offset);
                }
            }
            Err(error) => {
                for result in &mut commit.results {
                    result.error.get_or_insert(error.of_commit());
                }
            }
        }
        cx.effects
            .push(Effect::Committed(commit.reply, commit.results));
    }

    /// Removes the offsets of a topic, also from the log. `being_written` are partitions whose
    /// offsets are in the log or will be.
    pub(crate) fn remove_topic(
        &mut self,
        cx: &mut Context<'_>,
        topic: &str,
        being_written: Vec<i32>,
    ) {
        let partitions = self
            .offsets
            .partitions(topic)
            .into_iter()
            .chain(being_written);
        let partitions: BTreeSet<i32> = partitions.collect();
        let topics = partitions
            .into_iter()
            .map(|partition| (topic.to_owned(), partition));
        let records = self.remove_offsets(topics.collect());
        if !records.is_empty() {
            cx.effects.write(&self.id, records);
        }
    }

    /// Removes expired offsets, and a group that is then empty, also from the log.
    pub(crate) fn expire_offsets(&mut self, cx: &mut Context<'_>) -> GroupRetention {
        // An offset that is being written is newer than any that could expire.
        if self.state != GroupState::Empty || self.offsets.commits_pending > 0 {
            return GroupRetention::Keep;
        }
        let retention = milliseconds(cx.settings.offsets_retention);
        let expires_before = cx.now.unix_ms.saturating_sub(retention);
        // An offset that was committed to the empty group, by an administrator for instance, counts
        // from then on.
        let emptied = self.state_timestamp_ms.unwrap_or(i64::MIN);
        let expired = self
            .offsets
            .iter()
            .filter(|(_, _, offset)| offset.commit_timestamp_ms.max(emptied) <= expires_before);
        let expired = expired.map(|(topic, partition, _)| (topic.to_owned(), partition));
        let mut records = self.remove_offsets(expired.collect());
        let vacant = self.offsets.is_empty() && self.pending_members.is_empty();
        if vacant {
            records.extend(self.tombstone());
        }
        if !records.is_empty() {
            cx.effects.write(&self.id, records);
        }
        if vacant {
            GroupRetention::Remove
        } else {
            GroupRetention::Keep
        }
    }

    /// Lowers offsets that are past the end of their log, here and in the log of groups. Each gets
    /// its own write: together they may be larger than a batch.
    pub(crate) fn lower_offsets(
        &mut self,
        cx: &mut Context<'_>,
        end_of: &impl Fn(&str, i32) -> Option<i64>,
    ) -> Vec<LoweredOffsets> {
        let beyond = self
            .offsets
            .iter()
            .filter_map(|(topic, partition, offset)| {
                let end = end_of(topic, partition).filter(|end| *end < offset.offset)?;
                Some((topic.to_owned(), partition, end, offset.clone()))
            });
        let beyond: Vec<_> = beyond.collect();
        let mut lowered: Vec<LoweredOffsets> = Vec::new();
        for (topic, partition, end, committed) in beyond {
            if lowered.last().is_none_or(|last| last.topic != topic) {
                lowered.push(LoweredOffsets {
                    group_id: Arc::clone(&self.id),
                    topic: topic.clone(),
                    partitions: 0,
                    records: 0,
                });
            }
            if let Some(last) = lowered.last_mut() {
                last.partitions += 1;
                last.records = last.records.saturating_add(committed.offset - end);
            }
            let offset = CommittedOffset {
                offset: end,
                ..committed
            };
            let record = self.offset_record(&topic, partition, Some(offset.clone()));
            cx.effects.write(&self.id, vec![record]);
            self.offsets.insert(topic, partition, offset);
        }
        lowered
    }

    /// Checks that a member, or a consumer without group management, may commit.
    fn validate_commit(&self, member: &MemberIdentity) -> Result<(), GroupError> {
        if member.generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        self.validate(member)?;
        match self.state {
            // The member does not know its partitions yet.
            GroupState::CompletingRebalance { .. } => Err(GroupError::RebalanceInProgress),
            GroupState::Empty | GroupState::PreparingRebalance { .. } | GroupState::Stable => {
                Ok(())
            }
        }
    }

    /// Removes offsets; returns their tombstones.
    pub(crate) fn remove_offsets(
        &mut self,
        partitions: Vec<(String, i32)>,
    ) -> Vec<CoordinatorRecord> {
        let removed = partitions.into_iter().map(|(topic, partition)| {
            self.offsets.remove(&topic, partition);
            self.offset_record(&topic, partition, None)
        });
        removed.collect()
    }

    fn offset_record(
        &self,
        topic: &str,
        partition: i32,
        value: Option<CommittedOffset>,
    ) -> CoordinatorRecord {
        CoordinatorRecord::Offset {
            group_id: Arc::clone(&self.id),
            topic: topic.to_owned(),
            partition,
            value,
        }
    }
}

/// Whether a group is still needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GroupRetention {
    Keep,
    Remove,
}

/// Returns the answer to a commit that is rejected as a whole.
pub(crate) fn refused(offsets: Vec<OffsetToCommit>, error: GroupError) -> Vec<CommitResult> {
    offsets
        .iter()
        .map(|commit| result_of(commit, Some(error)))
        .collect()
}

fn result_of(commit: &OffsetToCommit, error: Option<GroupError>) -> CommitResult {
    CommitResult {
        topic: commit.topic.clone(),
        partition: commit.partition,
        error,
    }
}

fn committed(
    offset: i64,
    leader_epoch: i32,
    metadata: String,
    cx: &Context<'_>,
) -> CommittedOffset {
    CommittedOffset {
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms: cx.now.unix_ms,
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
