//! Requests of consumer groups.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{MutexGuard, oneshot};

use crate::broker::Broker;
use crate::group::{
    CommitRequest, CommittedOffset, GroupError, JoinRejected, JoinRequest, Joined, LeavingMember,
    MemberIdentity, MemberProtocol, OFFSETS_PARTITIONS, OffsetToCommit, SyncRequest, Synced,
};
use crate::metadata::names::OFFSETS_TOPIC;
use crate::metadata::topics::{NewTopic, TopicError, TopicMap};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::find_coordinator::{
    FindCoordinatorRequest, FindCoordinatorResponse, FindCoordinatorResponseCoordinator,
};
use crate::protocol::tables::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use crate::protocol::tables::join_group::{
    JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember,
};
use crate::protocol::tables::leave_group::{
    LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMemberResponse,
};
use crate::protocol::tables::offset_commit::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use crate::protocol::tables::offset_fetch::{
    OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use crate::protocol::tables::sync_group::{SyncGroupRequest, SyncGroupResponse};

/// The kinds of keys.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;

/// The reason why transactions have no coordinator.
pub(crate) const NO_TRANSACTIONS: &str =
    "transactions are not supported by this broker; remove transactional.id";

/// The largest number of offsets that may fit in a batch of `max.message.bytes`, however short the
/// names are. A larger commit is rejected before it is processed.
const OFFSETS_PER_COMMIT_MAX: usize = 24_000;

/// Whether a request is for the coordinator of a transaction.
pub(crate) fn asks_for_transaction(request: &FindCoordinatorRequest<'_>) -> bool {
    request.key_type == TRANSACTION_KEY
}

/// Answers that this broker coordinates every group. Creates the topic that stores groups.
///
/// For a transaction, librdkafka sends version 2 or lower, and of all errors fails only for
/// TRANSACTIONAL_ID_AUTHORIZATION_FAILED; it silently retries others until its timeout. Java sends
/// version 4 or higher, and shows the message of other errors only.
pub(crate) async fn find_coordinator<'a>(
    request: &FindCoordinatorRequest<'a>,
    version: i16,
    broker: &Arc<Broker>,
    (host, port): (&'a str, u16),
) -> FindCoordinatorResponse<'a> {
    let is_transaction = asks_for_transaction(request);
    let code = match request.key_type {
        GROUP_KEY => ready(broker).await,
        TRANSACTION_KEY if version < 4 => Err(ErrorCode::TransactionalIdAuthorizationFailed),
        _ => Err(ErrorCode::InvalidRequest),
    };
    let code = code.err().unwrap_or(ErrorCode::None);
    let error_message = is_transaction.then_some(NO_TRANSACTIONS);
    let (node_id, port) = match code {
        ErrorCode::None => (broker.options.node_id, i32::from(port)),
        _ => (-1, -1),
    };
    let mut response = FindCoordinatorResponse {
        error_code: code.number(),
        error_message,
        node_id,
        host,
        port,
        ..FindCoordinatorResponse::default()
    };
    if version >= 4 {
        let keys = request.coordinator_keys.iter();
        response.coordinators = keys
            .map(|key| FindCoordinatorResponseCoordinator {
                key,
                node_id,
                host,
                port,
                error_code: code.number(),
                error_message,
            })
            .collect();
    }
    response
}

/// Creates the topic of offsets if it does not exist.
async fn ready(broker: &Arc<Broker>) -> Result<(), ErrorCode> {
    if broker.groups.is_ready() {
        return Ok(());
    }
    let worker = Arc::clone(broker);
    let make = move || {
        let new = NewTopic {
            name: OFFSETS_TOPIC.to_owned(),
            partitions: OFFSETS_PARTITIONS as i32,
            config: BTreeMap::new(),
        };
        match worker.topics.create(&new) {
            Ok(topic) => Ok(topic),
            Err(TopicError::Exists) => {
                let present = worker.topics.present();
                let made = present.named(OFFSETS_TOPIC).cloned();
                made.ok_or(TopicError::Exists)
            }
            Err(error) => Err(error),
        }
    };
    match tokio::task::spawn_blocking(make).await {
        Ok(Ok(topic)) => {
            broker.groups.set_topic(topic);
            Ok(())
        }
        // Another request is creating it: clients retry.
        Ok(Err(TopicError::Exists)) => Err(ErrorCode::CoordinatorNotAvailable),
        Ok(Err(error)) => {
            tracing::warn!("{OFFSETS_TOPIC} cannot be made: {error}");
            Err(ErrorCode::KafkaStorageError)
        }
        Err(_) => Err(ErrorCode::UnknownServerError),
    }
}

fn milliseconds(time: i32) -> Duration {
    Duration::from_millis(u64::try_from(time).unwrap_or(0))
}

/// Converts a JoinGroup request for the coordinator. It may wait for long, and keeps only this.
pub(crate) fn join_request(
    request: &JoinGroupRequest<'_>,
    version: i16,
    (client_id, client_host): (&str, &str),
) -> JoinRequest {
    let rebalance = match version {
        0 => request.session_timeout_ms,
        _ => request.rebalance_timeout_ms,
    };
    let protocols = request.protocols.iter().map(|protocol| MemberProtocol {
        name: protocol.name.to_owned(),
        metadata: protocol.metadata.into(),
    });
    JoinRequest {
        version,
        group_id: request.group_id.to_owned(),
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
        client_id: client_id.to_owned(),
        client_host: client_host.to_owned(),
        session_timeout: milliseconds(request.session_timeout_ms),
        rebalance_timeout: milliseconds(rebalance),
        protocol_type: request.protocol_type.to_owned(),
        protocols: protocols.collect(),
    }
}

/// Returns the answer of the coordinator to a JoinGroup request.
pub(crate) async fn join(request: JoinRequest, broker: &Broker) -> Result<Joined, JoinRejected> {
    let member_id = request.member_id.clone();
    let joined = broker.groups.join(request).await;
    joined.unwrap_or(Err(JoinRejected {
        error: GroupError::CoordinatorNotAvailable,
        member_id,
    }))
}

pub(crate) fn join_response(
    joined: &Result<Joined, JoinRejected>,
    version: i16,
) -> JoinGroupResponse<'_> {
    match joined {
        Ok(joined) => JoinGroupResponse {
            generation_id: joined.generation,
            protocol_type: Some(&joined.protocol_type),
            protocol_name: Some(&joined.protocol),
            leader: &joined.leader,
            skip_assignment: joined.skip_assignment,
            member_id: &joined.member_id,
            members: joined
                .members
                .iter()
                .map(|member| JoinGroupResponseMember {
                    member_id: &member.member_id,
                    group_instance_id: member.group_instance_id.as_deref(),
                    metadata: &member.metadata,
                })
                .collect(),
            ..JoinGroupResponse::default()
        },
        Err(rejected) => JoinGroupResponse {
            error_code: rejected.error.code(),
            // Before version 7 the name must not be null.
            protocol_name: (version < 7).then_some(""),
            member_id: &rejected.member_id,
            ..JoinGroupResponse::default()
        },
    }
}

pub(crate) fn sync_request(request: &SyncGroupRequest<'_>) -> SyncRequest {
    let assignments = request.assignments.iter();
    let assignments = assignments.map(|one| (one.member_id.to_owned(), one.assignment.into()));
    SyncRequest {
        member: MemberIdentity {
            group_id: request.group_id.to_owned(),
            generation: request.generation_id,
            member_id: request.member_id.to_owned(),
            group_instance_id: request.group_instance_id.map(str::to_owned),
        },
        protocol_type: request.protocol_type.map(str::to_owned),
        protocol: request.protocol_name.map(str::to_owned),
        assignments: assignments.collect(),
    }
}

pub(crate) async fn sync(request: SyncRequest, broker: &Broker) -> Result<Synced, GroupError> {
    let synced = broker.groups.sync(request).await;
    synced.unwrap_or(Err(GroupError::CoordinatorNotAvailable))
}

pub(crate) fn sync_response(synced: &Result<Synced, GroupError>) -> SyncGroupResponse<'_> {
    match synced {
        Ok(synced) => SyncGroupResponse {
            protocol_type: Some(&synced.protocol_type),
            protocol_name: Some(&synced.protocol),
            assignment: &synced.assignment,
            ..SyncGroupResponse::default()
        },
        Err(error) => SyncGroupResponse {
            error_code: error.code(),
            ..SyncGroupResponse::default()
        },
    }
}

pub(crate) fn heartbeat(request: &HeartbeatRequest<'_>, broker: &Broker) -> HeartbeatResponse {
    let member = MemberIdentity {
        group_id: request.group_id.to_owned(),
        generation: request.generation_id,
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
    };
    let event = broker
        .groups
        .event(|coordinator, now| coordinator.heartbeat(now, &member));
    HeartbeatResponse {
        error_code: event.err().map_or(0, GroupError::code),
        ..HeartbeatResponse::default()
    }
}

pub(crate) fn leave<'a>(
    request: &LeaveGroupRequest<'a>,
    version: i16,
    broker: &Broker,
) -> LeaveGroupResponse<'a> {
    let member = |member_id: &str, instance: Option<&str>| LeavingMember {
        member_id: member_id.to_owned(),
        group_instance_id: instance.map(str::to_owned),
    };
    let leaving: Vec<_> = match version {
        0..=2 => vec![member(request.member_id, None)],
        _ => {
            let members = request.members.iter();
            members
                .map(|one| member(one.member_id, one.group_instance_id))
                .collect()
        }
    };
    let left = broker
        .groups
        .event(|coordinator, now| coordinator.leave(now, request.group_id, &leaving));
    let code = |result: Option<&Result<(), GroupError>>| match result {
        Some(Ok(())) => 0,
        Some(Err(error)) => error.code(),
        None => GroupError::UnknownMemberId.code(),
    };
    let members = request.members.iter().enumerate();
    LeaveGroupResponse {
        error_code: match version {
            0..=2 => code(left.first()),
            _ => 0,
        },
        members: members
            .map(|(number, member)| LeaveGroupResponseMemberResponse {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                error_code: code(left.get(number)),
            })
            .collect(),
        ..LeaveGroupResponse::default()
    }
}

/// Commits offsets after their records are durable. Releases the turn when the coordinator has the
/// commit.
pub(crate) async fn commit<'a>(
    request: &OffsetCommitRequest<'a>,
    turn: MutexGuard<'_, ()>,
    broker: &Broker,
    topics: &TopicMap,
) -> OffsetCommitResponse<'a> {
    let exists = |topic: &str, partition: i32| {
        topics
            .named(topic)
            .is_some_and(|topic| topic.partition(partition).is_some())
    };
    let counts = request.topics.iter().map(|topic| topic.partitions.len());
    let is_too_large = counts.sum::<usize>() > OFFSETS_PER_COMMIT_MAX;
    let mut offsets = Vec::new();
    for topic in request.topics.iter().filter(|_| !is_too_large) {
        for partition in &topic.partitions {
            if exists(topic.name, partition.partition_index) {
                offsets.push(OffsetToCommit {
                    topic: topic.name.to_owned(),
                    partition: partition.partition_index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.unwrap_or_default().to_owned(),
                });
            }
        }
    }
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
    let topic = |topic: &crate::protocol::tables::offset_commit::OffsetCommitRequestTopic<'a>| {
        let partitions = topic.partitions.iter().map(|partition| {
            let code = match exists(topic.name, partition.partition_index) {
                false => ErrorCode::UnknownTopicOrPartition.number(),
                true if is_too_large => GroupError::InvalidCommitOffsetSize.code(),
                true => match results.next() {
                    Some(result) => result.error.map_or(0, GroupError::code),
                    None => GroupError::CoordinatorNotAvailable.code(),
                },
            };
            OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
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
}

/// The requested topics and partitions, without duplicates.
type AskedOffsets<'a> = BTreeMap<&'a str, BTreeSet<i32>>;

/// Returns the offsets of each group of a request, in its order, by topic. Duplicates are answered
/// once: otherwise a request could make a response of any size.
pub(crate) fn fetched<'a>(
    request: &OffsetFetchRequest<'a>,
    version: i16,
    broker: &Broker,
) -> Vec<Vec<FetchedTopic<'a>>> {
    if version < 8 {
        let asked = request.topics.as_ref().map(|topics| {
            let topics = topics.iter();
            asked(topics.map(|topic| (topic.name, &topic.partition_indexes)))
        });
        return vec![of_group(request.group_id, asked, broker)];
    }
    let mut seen = BTreeSet::new();
    let groups = request.groups.iter().map(|group| {
        let asked = group.topics.as_ref().map(|topics| {
            let topics = topics.iter();
            asked(topics.map(|topic| (topic.name, &topic.partition_indexes)))
        });
        match seen.insert(group.group_id) {
            true => of_group(group.group_id, asked, broker),
            false => Vec::new(),
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
) -> Vec<FetchedTopic<'a>> {
    broker.groups.event(|coordinator, _| match asked {
        None => {
            let mut topics: Vec<FetchedTopic<'_>> = Vec::new();
            for (topic, partition, offset) in coordinator.committed_offsets(group) {
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
                let partitions = partitions.into_iter().map(|partition| {
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
    })
}

impl FetchedOffset {
    fn of(partition: i32, found: Option<&CommittedOffset>) -> FetchedOffset {
        FetchedOffset {
            partition,
            offset: found.map_or(-1, |offset| offset.offset),
            leader_epoch: found.map_or(-1, |offset| offset.leader_epoch),
            metadata: found.map_or_else(String::new, |offset| offset.metadata.clone()),
        }
    }
}

pub(crate) fn fetch_response<'a>(
    request: &OffsetFetchRequest<'a>,
    version: i16,
    fetched: &'a [Vec<FetchedTopic<'a>>],
) -> OffsetFetchResponse<'a> {
    if version < 8 {
        let topics = fetched.iter().flatten();
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
                    error_code: 0,
                })
                .collect(),
        });
        return OffsetFetchResponse {
            topics: topics.collect(),
            ..OffsetFetchResponse::default()
        };
    }
    let groups = request.groups.iter().zip(fetched).map(|(group, topics)| {
        let topics = topics.iter().map(|topic| OffsetFetchResponseTopics {
            name: &topic.name,
            partitions: topic
                .partitions
                .iter()
                .map(|one| OffsetFetchResponsePartitions {
                    partition_index: one.partition,
                    committed_offset: one.offset,
                    committed_leader_epoch: one.leader_epoch,
                    metadata: Some(&one.metadata),
                    error_code: 0,
                })
                .collect(),
            ..OffsetFetchResponseTopics::default()
        });
        OffsetFetchResponseGroup {
            group_id: group.group_id,
            topics: topics.collect(),
            error_code: 0,
        }
    });
    OffsetFetchResponse {
        groups: groups.collect(),
        ..OffsetFetchResponse::default()
    }
}
