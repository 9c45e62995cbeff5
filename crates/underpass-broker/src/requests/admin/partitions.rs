//! CreatePartitions and DeleteRecords.

use std::collections::HashMap;
use std::sync::Arc;

use crate::broker::Broker;
use crate::metadata::names::is_internal;
use crate::metadata::topics::{TopicError, TopicMap};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult,
};
use crate::protocol::tables::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};
use crate::requests::topics::code_of;
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

const TWICE: &str = "the request has this topic twice";
const DENIED: &str = "the client may not change the topic";

/// The offset that means the high watermark.
const HIGH_WATERMARK: i64 = -1;

/// A topic that got partitions or not.
pub(crate) type Extended<'a> = (&'a str, Result<(), (ErrorCode, String)>);

/// Adds partitions to topics. A name that occurs twice in a request is rejected once.
pub(crate) async fn create<'a>(
    request: &CreatePartitionsRequest<'a>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> Vec<Extended<'a>> {
    let mut counts = HashMap::<&str, usize>::new();
    for topic in &request.topics {
        *counts.entry(topic.name).or_default() += 1;
    }
    let mut outcomes = Vec::with_capacity(counts.len());
    for topic in &request.topics {
        let extended = match counts.remove(topic.name) {
            None => continue,
            Some(_) if !access.allows_topic(AclOperation::Alter, topic.name) => {
                Err((ErrorCode::TopicAuthorizationFailed, DENIED.to_owned()))
            }
            Some(1) => create_one(topic, request.validate_only, broker).await,
            Some(_) => Err((ErrorCode::InvalidRequest, TWICE.to_owned())),
        };
        if let Err((_, why)) = &extended {
            tracing::info!("topic {:?} gets no partitions: {why}", topic.name);
        }
        outcomes.push((topic.name, extended));
    }
    outcomes
}

async fn create_one(
    asked: &CreatePartitionsTopic<'_>,
    validate_only: bool,
    broker: &Arc<Broker>,
) -> Result<(), (ErrorCode, String)> {
    let refused = |error: TopicError| (code_of(&error), error.to_string());
    let (name, count) = (asked.name, asked.count);
    broker
        .topics
        .check_extension(name, count)
        .map_err(refused)?;
    let present = broker.topics.present();
    let present = present
        .named(name)
        .map_or(0, |topic| topic.partitions.len());
    check_assignments(asked, present, broker.options.node_id)
        .map_err(|why| (ErrorCode::InvalidReplicaAssignment, why))?;
    if validate_only {
        return Ok(());
    }
    let (name, worker) = (name.to_owned(), Arc::clone(broker));
    let extend = move || worker.topics.extend(&name, count);
    let extended = tokio::task::spawn_blocking(extend).await;
    extended
        .unwrap_or(Err(TopicError::Unknown))
        .map_err(refused)
}

/// Checks the replicas of each new partition, if the request has them.
fn check_assignments(
    asked: &CreatePartitionsTopic<'_>,
    present: usize,
    node_id: i32,
) -> Result<(), String> {
    let Some(assignments) = &asked.assignments else {
        return Ok(());
    };
    let wanted = usize::try_from(asked.count).unwrap_or(0) - present.min(asked.count as usize);
    if assignments.len() != wanted {
        let count = assignments.len();
        return Err(format!(
            "expected {wanted} assignments for the new partitions, not {count}"
        ));
    }
    match assignments.iter().all(|one| one.broker_ids == [node_id]) {
        true => Ok(()),
        false => Err(format!(
            "expected one replica of each partition, on broker {node_id}: there is no other"
        )),
    }
}

pub(crate) fn created<'a>(outcomes: &'a [Extended<'a>]) -> CreatePartitionsResponse<'a> {
    let results = outcomes.iter().map(|(name, outcome)| {
        let refused = outcome.as_ref().err();
        CreatePartitionsTopicResult {
            name,
            error_code: refused.map_or(0, |(code, _)| code.number()),
            error_message: refused.map(|(_, why)| &**why),
        }
    });
    CreatePartitionsResponse {
        results: results.collect(),
        ..CreatePartitionsResponse::default()
    }
}

/// Moves the starts of logs, and answers when that is durable.
pub(crate) async fn delete_records<'a>(
    request: &DeleteRecordsRequest<'a>,
    broker: &Arc<Broker>,
    (topics, access): (&TopicMap, &ClientAccess),
) -> DeleteRecordsResponse<'a> {
    let mut moved = Vec::new();
    let results = request.topics.iter().map(|topic| {
        let is_denied = !access.allows_topic(AclOperation::Delete, topic.name);
        let partitions = topic.partitions.iter().map(|asked| {
            let known = topics.named(topic.name);
            let log = match is_denied {
                true => Err(ErrorCode::TopicAuthorizationFailed),
                false => known
                    .and_then(|known| known.partition(asked.partition_index))
                    .ok_or(ErrorCode::UnknownTopicOrPartition),
            };
            let before = log.and_then(|log| {
                let end = log.offsets().high_watermark;
                match asked.offset {
                    _ if is_internal(topic.name) => Err(ErrorCode::InvalidTopic),
                    HIGH_WATERMARK => Ok((log, end)),
                    offset if (0..=end).contains(&offset) => Ok((log, offset)),
                    _ => Err(ErrorCode::OffsetOutOfRange),
                }
            });
            let code = before.map(|(log, before)| moved.push((Arc::clone(log), before)));
            DeleteRecordsPartitionResult {
                partition_index: asked.partition_index,
                low_watermark: -1,
                error_code: code.err().unwrap_or(ErrorCode::None).number(),
            }
        });
        DeleteRecordsTopicResult {
            name: topic.name,
            partitions: partitions.collect(),
        }
    });
    let mut response = DeleteRecordsResponse {
        topics: results.collect(),
        ..DeleteRecordsResponse::default()
    };
    let log = Arc::clone(&broker.log);
    let starts = tokio::task::spawn_blocking(move || log.delete_records(&moved)).await;
    let starts = starts.map_err(|_| ErrorCode::UnknownServerError);
    let starts = starts.and_then(|starts| {
        starts.map_err(|error| {
            tracing::warn!("the starts of logs cannot be written: {error}");
            ErrorCode::KafkaStorageError
        })
    });
    let partitions = response
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions);
    let moved = partitions.filter(|partition| partition.error_code == 0);
    match starts {
        Ok(starts) => moved.zip(starts).for_each(|(partition, start)| {
            partition.low_watermark = start;
        }),
        Err(code) => moved.for_each(|partition| partition.error_code = code.number()),
    }
    response
}
