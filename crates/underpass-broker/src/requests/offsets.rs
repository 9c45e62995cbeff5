//! OffsetCommit and OffsetFetch.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::{MutexGuard, oneshot};

use crate::broker::Broker;
use crate::group::{CommitRequest, CommittedOffset, GroupError, MemberIdentity, OffsetToCommit};
use crate::metadata::topics::TopicMap;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use crate::protocol::tables::offset_fetch::{
    OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The largest number of offsets that may fit in a batch of `max.message.bytes`, however short the
/// names are. A larger commit is rejected before it is processed.
const OFFSETS_PER_COMMIT_MAX: usize = 24_000;

/// Commits offsets after their records are durable. Releases the turn when the coordinator has the
/// commit.
pub(crate) async fn commit<'a>(
    request: &OffsetCommitRequest<'a>,
    turn: MutexGuard<'_, ()>,
    broker: &Broker,
    (topics, access): (&TopicMap, &ClientAccess),
) -> OffsetCommitResponse<'a> {
    let counts = request.topics.iter().map(|topic| topic.partitions.len());
    let is_too_large = counts.sum::<usize>() > OFFSETS_PER_COMMIT_MAX;
    let is_member = access.allows_group(AclOperation::Read, request.group_id);
    let refusal = |topic: &str, partition: i32| {
        let known = topics.named(topic);
        let is_there = known.and_then(|topic| topic.partition(partition)).is_some();
        match (
            is_member,
            access.allows_topic(AclOperation::Read, topic),
            is_there,
        ) {
            (false, ..) => Some(ErrorCode::GroupAuthorizationFailed.number()),
            (true, false, _) => Some(ErrorCode::TopicAuthorizationFailed.number()),
            (true, true, false) => Some(ErrorCode::UnknownTopicOrPartition.number()),
            _ => is_too_large.then(|| GroupError::InvalidCommitOffsetSize.code()),
        }
    };
    let asked = request.topics.iter();
    let asked = asked.flat_map(|topic| topic.partitions.iter().map(|one| (topic.name, one)));
    let taken = asked.filter(|(topic, one)| refusal(topic, one.partition_index).is_none());
    let offsets: Vec<_> = taken.map(|(topic, one)| offset(topic, one)).collect();
    let member = MemberIdentity {
        group_id: request.group_id.to_owned(),
        generation: request.generation_id_or_member_epoch,
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
    };
    let results = match offsets.is_empty() {
        true => Some(Vec::new()),
        false => {
            records_safe(&offsets, broker, topics).await;
            let commit = broker.groups.commit(CommitRequest { member, offsets });
            drop(turn);
            commit.await
        }
    };
    let mut results = results.into_iter().flatten();
    let topic = |topic: &OffsetCommitRequestTopic<'a>| {
        let partitions = topic.partitions.iter().map(|partition| {
            let index = partition.partition_index;
            let code = refusal(topic.name, index).unwrap_or_else(|| match results.next() {
                Some(result) => result.error.map_or(0, GroupError::code),
                None => GroupError::CoordinatorNotAvailable.code(),
            });
            OffsetCommitResponsePartition {
                partition_index: index,
                error_code: code,
            }
        });
        OffsetCommitResponseTopic {
            name: topic.name,
            partitions: partitions.collect(),
            ..OffsetCommitResponseTopic::default()
        }
    };
    OffsetCommitResponse {
        topics: request.topics.iter().map(topic).collect(),
        ..OffsetCommitResponse::default()
    }
}

fn offset(topic: &str, one: &OffsetCommitRequestPartition<'_>) -> OffsetToCommit {
    OffsetToCommit {
        topic: topic.to_owned(),
        partition: one.partition_index,
        offset: one.committed_offset,
        leader_epoch: one.committed_leader_epoch,
        metadata: one.committed_metadata.unwrap_or_default().to_owned(),
    }
}

/// Waits until the records before these offsets are as safe as the commit will be: a consumer may
/// have read them before they were synced. If they cannot be synced, the commit fails, too.
async fn records_safe(offsets: &[OffsetToCommit], broker: &Broker, topics: &TopicMap) {
    let waited_for = offsets.iter().filter_map(|one| {
        let log = topics.named(&one.topic)?.partition(one.partition)?;
        let (safe, waited) = oneshot::channel::<()>();
        let done = Box::new(move |_| drop(safe));
        broker.log.when_safe(log, one.offset, done);
        Some(waited)
    });
    for waited in Vec::from_iter(waited_for) {
        let _closed = waited.await;
    }
}

/// The offsets of a topic.
#[derive(Clone, Debug)]
pub(crate) struct FetchedTopic<'a> {
    name: Cow<'a, str>,
    partitions: Vec<FetchedOffset>,
}

/// A committed offset, or none.
#[derive(Clone, Debug)]
struct FetchedOffset {
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: String,
    error_code: i16,
}

/// The topics of a group, or the reason why the client does not get them.
pub(crate) type FetchedGroup<'a> = Result<Vec<FetchedTopic<'a>>, ErrorCode>;

/// The requested topics and partitions, without duplicates.
type AskedOffsets<'a> = BTreeMap<&'a str, BTreeSet<i32>>;

/// Returns the offsets of each group of a request, in its order, by topic. Duplicates are answered
/// once: otherwise a request could make a response of any size.
pub(crate) fn fetched<'a>(
    request: &OffsetFetchRequest<'a>,
    version: i16,
    broker: &Broker,
    access: &ClientAccess,
) -> Vec<FetchedGroup<'a>> {
    if version < 8 {
        let asked = request.topics.as_ref().map(|topics| {
            let topics = topics.iter();
            asked(topics.map(|topic| (topic.name, &topic.partition_indexes)))
        });
        return vec![of_group(request.group_id, asked, broker, access)];
    }
    let mut seen = BTreeSet::new();
    let groups = request.groups.iter().map(|group| {
        let asked = group.topics.as_ref().map(|topics| {
            let topics = topics.iter();
            asked(topics.map(|topic| (topic.name, &topic.partition_indexes)))
        });
        match seen.insert(group.group_id) {
            true => of_group(group.group_id, asked, broker, access),
            false => Ok(Vec::new()),
        }
    });
    groups.collect()
}

fn asked<'r, 'a: 'r>(topics: impl Iterator<Item = (&'a str, &'r Vec<i32>)>) -> AskedOffsets<'a> {
    let mut asked = AskedOffsets::new();
    for (topic, partitions) in topics {
        asked.entry(topic).or_default().extend(partitions);
    }
    asked
}

fn of_group<'a>(
    group: &str,
    asked: Option<AskedOffsets<'a>>,
    broker: &Broker,
    access: &ClientAccess,
) -> FetchedGroup<'a> {
    if !access.allows_group(AclOperation::Describe, group) {
        return Err(ErrorCode::GroupAuthorizationFailed);
    }
    let may_see = |topic: &str| access.allows_topic(AclOperation::Describe, topic);
    Ok(broker.groups.event(|coordinator, _| match asked {
        None => {
            let mut topics: Vec<FetchedTopic<'_>> = Vec::new();
            let committed = coordinator.committed_offsets(group);
            for (topic, partition, offset) in committed.filter(|(topic, _, _)| may_see(topic)) {
                if topics.last().is_none_or(|last| last.name != topic) {
                    topics.push(FetchedTopic {
                        name: Cow::Owned(topic.to_owned()),
                        partitions: Vec::new(),
                    });
                }
                if let Some(last) = topics.last_mut() {
                    let fetched = FetchedOffset::of(partition, Some(offset));
                    last.partitions.push(fetched);
                }
            }
            topics
        }
        Some(asked) => {
            let topic = |(topic, partitions): (&'a str, BTreeSet<i32>)| {
                let is_denied = !may_see(topic);
                let partitions = partitions.into_iter().map(|partition| {
                    if is_denied {
                        let mut denied = FetchedOffset::of(partition, None);
                        denied.error_code = ErrorCode::TopicAuthorizationFailed.number();
                        return denied;
                    }
                    let found = coordinator.committed(group, topic, partition);
                    FetchedOffset::of(partition, found)
                });
                FetchedTopic {
                    name: Cow::Borrowed(topic),
                    partitions: partitions.collect(),
                }
            };
            asked.into_iter().map(topic).collect()
        }
    }))
}

impl FetchedOffset {
    fn of(partition: i32, found: Option<&CommittedOffset>) -> FetchedOffset {
        FetchedOffset {
            partition,
            offset: found.map_or(-1, |offset| offset.offset),
            leader_epoch: found.map_or(-1, |offset| offset.leader_epoch),
            metadata: found.map_or_else(String::new, |offset| offset.metadata.clone()),
            error_code: 0,
        }
    }
}

pub(crate) fn fetch_response<'a>(
    request: &OffsetFetchRequest<'a>,
    version: i16,
    fetched: &'a [FetchedGroup<'a>],
) -> OffsetFetchResponse<'a> {
    if let (..8, [Err(code)]) = (version, fetched) {
        return denied_fetch(request, *code);
    }
    if version < 8 {
        let topics = fetched.iter().flatten().flatten();
        let topics = topics.map(|topic| OffsetFetchResponseTopic {
            name: &topic.name,
            partitions: topic
                .partitions
                .iter()
                .map(|one| OffsetFetchResponsePartition {
                    partition_index: one.partition,
                    committed_offset: one.offset,
                    committed_leader_epoch: one.leader_epoch,
                    metadata: Some(&one.metadata),
                    error_code: one.error_code,
                })
                .collect(),
        });
        return OffsetFetchResponse {
            topics: topics.collect(),
            ..OffsetFetchResponse::default()
        };
    }
    let groups = request.groups.iter().zip(fetched).map(|(group, fetched)| {
        let topics = fetched
            .iter()
            .flatten()
            .map(|topic| OffsetFetchResponseTopics {
                name: &topic.name,
                partitions: topic
                    .partitions
                    .iter()
                    .map(|one| OffsetFetchResponsePartitions {
                        partition_index: one.partition,
                        committed_offset: one.offset,
                        committed_leader_epoch: one.leader_epoch,
                        metadata: Some(&one.metadata),
                        error_code: one.error_code,
                    })
                    .collect(),
                ..OffsetFetchResponseTopics::default()
            });
        OffsetFetchResponseGroup {
            group_id: group.group_id,
            topics: topics.collect(),
            error_code: fetched.as_ref().err().map_or(0, |code| code.number()),
        }
    });
    OffsetFetchResponse {
        groups: groups.collect(),
        ..OffsetFetchResponse::default()
    }
}

/// Returns the response for a group that the client may not see, which has the error in one field
/// since version 2, and in all partitions before.
fn denied_fetch<'a>(request: &OffsetFetchRequest<'a>, code: ErrorCode) -> OffsetFetchResponse<'a> {
    let topics = request.topics.iter().flatten().map(|topic| {
        let partitions = topic.partition_indexes.iter();
        let partitions = partitions.map(|partition| OffsetFetchResponsePartition {
            partition_index: *partition,
            committed_offset: -1,
            committed_leader_epoch: -1,
            metadata: Some(""),
            error_code: code.number(),
        });
        OffsetFetchResponseTopic {
            name: topic.name,
            partitions: partitions.collect(),
        }
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code: code.number(),
        ..OffsetFetchResponse::default()
    }
}
