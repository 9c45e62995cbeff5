//! ListOffsets and OffsetForLeaderEpoch: first offsets, last offsets, offsets for timestamps, and
//! the ends of epochs.

use std::sync::Arc;

use underpass_log::PartitionLog;

use crate::metadata::topics::TopicMap;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use crate::protocol::tables::offset_for_leader_epoch::{
    OffsetForLeaderEpochOffsetForLeaderPartition, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseOffsetForLeaderTopicResult,
};
use crate::requests::fetch::check_epoch;
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The record with the largest timestamp (KIP-734).
const MAX_TIMESTAMP: i64 = -3;
/// The first offset on this broker, which is the first of the log.
const EARLIEST_LOCAL: i64 = -4;
/// The last offset in tiered storage, which is not supported.
const LATEST_TIERED: i64 = -5;

pub(crate) async fn list_offsets<'a>(
    mut request: ListOffsetsRequest<'a>,
    version: i16,
    topics: &TopicMap,
    access: &ClientAccess,
) -> ListOffsetsResponse<'a> {
    let denied = access.take_denied(&mut request.topics, |access, topic| {
        access.allows_topic(AclOperation::Describe, topic.name)
    });
    let mut response = ListOffsetsResponse::default();
    for topic in &request.topics {
        let known = topics.named(topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let log = known.and_then(|topic| topic.partition(asked.partition_index));
            partitions.push(of_partition(asked, version, log).await);
        }
        response.topics.push(ListOffsetsTopicResponse {
            name: topic.name,
            partitions,
        });
    }
    let denied = denied.iter().map(|topic| {
        let partitions = topic.partitions.iter();
        let partitions = partitions.map(|asked| ListOffsetsPartitionResponse {
            partition_index: asked.partition_index,
            error_code: ErrorCode::TopicAuthorizationFailed.number(),
            ..ListOffsetsPartitionResponse::default()
        });
        ListOffsetsTopicResponse {
            name: topic.name,
            partitions: partitions.collect(),
        }
    });
    response.topics.extend(denied);
    response
}

async fn of_partition(
    asked: &ListOffsetsPartition,
    version: i16,
    log: Option<&Arc<PartitionLog>>,
) -> ListOffsetsPartitionResponse {
    let mut answer = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        ..ListOffsetsPartitionResponse::default()
    };
    if version < first_version(asked.timestamp) {
        answer.error_code = ErrorCode::UnsupportedVersion.number();
        return answer;
    }
    let known = log.ok_or(ErrorCode::UnknownTopicOrPartition);
    let known = known.and_then(|log| check_epoch(log, asked.current_leader_epoch).map(|()| log));
    let log = match known {
        Ok(log) => log,
        Err(code) => {
            answer.error_code = code.number();
            return answer;
        }
    };
    let offsets = log.offsets();
    match asked.timestamp {
        LATEST => answer.offset = offsets.high_watermark,
        EARLIEST | EARLIEST_LOCAL => answer.offset = offsets.start,
        LATEST_TIERED => {}
        timestamp => match found(log, timestamp).await {
            Ok(Some((offset, timestamp))) => {
                (answer.offset, answer.timestamp) = (offset, timestamp);
            }
            Ok(None) => {}
            Err(code) => answer.error_code = code.number(),
        },
    }
    if answer.offset >= 0 {
        answer.leader_epoch = offsets.leader_epoch;
    }
    answer
}

/// Returns the first version in which a negative timestamp has its meaning.
fn first_version(timestamp: i64) -> i16 {
    match timestamp {
        LATEST | EARLIEST | 0.. => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        _ => i16::MAX,
    }
}

/// Looks up an offset and its timestamp, on a thread that may wait for the disk.
async fn found(log: &Arc<PartitionLog>, timestamp: i64) -> Result<Option<(i64, i64)>, ErrorCode> {
    let (searched, name) = (Arc::clone(log), log.name().clone());
    let search = move || match timestamp {
        MAX_TIMESTAMP => searched.largest_timestamp(),
        timestamp => searched.offset_of_time(timestamp),
    };
    let found = tokio::task::spawn_blocking(search).await;
    let found = found.map_err(|_| ErrorCode::UnknownServerError)?;
    found.map_err(|error| {
        tracing::warn!("{name}: {error}");
        ErrorCode::KafkaStorageError
    })
}

/// Returns the ends of epochs, so that consumers notice when records that they have read are lost
/// (KIP-320).
pub(crate) fn ends_of_epochs<'a>(
    request: &OffsetForLeaderEpochRequest<'a>,
    topics: &TopicMap,
    access: &ClientAccess,
) -> OffsetForLeaderEpochResponse<'a> {
    let of_topics = request.topics.iter().map(|topic| {
        let known = match access.allows_topic(AclOperation::Describe, topic.topic) {
            true => Ok(topics.named(topic.topic)),
            false => Err(ErrorCode::TopicAuthorizationFailed),
        };
        let partitions = topic.partitions.iter().map(|asked| {
            let log = known.and_then(|topic| {
                let log = topic.and_then(|topic| topic.partition(asked.partition));
                log.ok_or(ErrorCode::UnknownTopicOrPartition)
            });
            end_of_epoch(asked, log)
        });
        OffsetForLeaderEpochResponseOffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions: partitions.collect(),
        }
    });
    OffsetForLeaderEpochResponse {
        topics: of_topics.collect(),
        ..OffsetForLeaderEpochResponse::default()
    }
}

fn end_of_epoch(
    asked: &OffsetForLeaderEpochOffsetForLeaderPartition,
    log: Result<&Arc<PartitionLog>, ErrorCode>,
) -> OffsetForLeaderEpochResponseEpochEndOffset {
    let mut answer = OffsetForLeaderEpochResponseEpochEndOffset {
        partition: asked.partition,
        ..OffsetForLeaderEpochResponseEpochEndOffset::default()
    };
    let known = log.and_then(|log| check_epoch(log, asked.current_leader_epoch).map(|()| log));
    match known {
        Ok(log) => {
            if let Some((epoch, end)) = log.end_of_epoch(asked.leader_epoch) {
                (answer.leader_epoch, answer.end_offset) = (epoch, end);
            }
        }
        Err(code) => answer.error_code = code.number(),
    }
    answer
}
