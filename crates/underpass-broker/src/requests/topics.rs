//! CreateTopics, DeleteTopics, and producer ids: what changes the metadata.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::broker::Broker;
use crate::metadata::names::is_internal;
use crate::metadata::topic_id::TopicId;
use crate::metadata::topics::{NewTopic, Topic, TopicError};
use crate::options::ReplicationPolicy;
use crate::protocol::tables::create_topics::{
    CreateTopicsCreatableTopic, CreateTopicsCreatableTopicConfig, CreateTopicsRequest,
    CreateTopicsResponse, CreateTopicsResponseCreatableTopicResult,
};
use crate::protocol::tables::delete_topics::{
    DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicsResponseDeletableTopicResult,
};
use crate::protocol::tables::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::protocol::wire::Uuid;
use crate::requests::error_code::ErrorCode;

/// The configuration of topics that goes with the replication factor.
const MIN_IN_SYNC_REPLICAS: &str = "min.insync.replicas";

/// What became of a topic that was asked for.
pub(crate) enum TopicOutcome {
    Made { id: TopicId, partitions: i32 },
    Refused(ErrorCode, String),
}

pub(crate) async fn create(
    request: &CreateTopicsRequest<'_>,
    broker: &Arc<Broker>,
) -> Vec<TopicOutcome> {
    let mut outcomes = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let created = create_one(topic, request.validate_only, broker).await;
        outcomes.push(created.unwrap_or_else(|(code, why)| {
            tracing::info!("topic {:?} is not made: {why}", topic.name);
            TopicOutcome::Refused(code, why)
        }));
    }
    outcomes
}

/// The response to [`create`].
pub(crate) fn created<'a>(
    request: &CreateTopicsRequest<'a>,
    outcomes: &'a [TopicOutcome],
) -> CreateTopicsResponse<'a> {
    let results = request.topics.iter().zip(outcomes);
    let results = results.map(|(asked, outcome)| {
        let result = CreateTopicsResponseCreatableTopicResult {
            name: asked.name,
            ..Default::default()
        };
        match outcome {
            TopicOutcome::Made { id, partitions } => CreateTopicsResponseCreatableTopicResult {
                num_partitions: *partitions,
                replication_factor: 1,
                configs: Some(Vec::new()),
                topic_id: Uuid(id.to_bytes()),
                ..result
            },
            TopicOutcome::Refused(code, why) => CreateTopicsResponseCreatableTopicResult {
                error_code: code.number(),
                error_message: Some(why),
                ..result
            },
        }
    });
    CreateTopicsResponse {
        topics: results.collect(),
        ..Default::default()
    }
}

async fn create_one(
    asked: &CreateTopicsCreatableTopic<'_>,
    validate_only: bool,
    broker: &Arc<Broker>,
) -> Result<TopicOutcome, (ErrorCode, String)> {
    let clamped = clamped(asked, broker.options.replication)?;
    let new = new_topic(asked, broker);
    let (partitions, worker) = (new.partitions, Arc::clone(broker));
    let made = match validate_only {
        true => worker.topics.check_new(&new).map(|()| None),
        false => {
            let create = move || worker.topics.create(&new).map(Some);
            let made = tokio::task::spawn_blocking(create).await;
            made.unwrap_or(Err(TopicError::Unknown))
        }
    };
    let made = made.map_err(|error| (code_of(&error), error.to_string()))?;
    if made.is_some() && !clamped.is_empty() {
        let (name, clamped) = (asked.name, clamped.join(" and "));
        tracing::warn!("topic {name:?} has one replica: {clamped} taken as 1");
    }
    let id = made.map_or(TopicId::NONE, |topic| topic.id);
    Ok(TopicOutcome::Made { id, partitions })
}

/// What is asked for of replicas that one broker does not have.
///
/// # Errors
/// It is to be refused, or is no number of replicas.
fn clamped(
    asked: &CreateTopicsCreatableTopic<'_>,
    policy: ReplicationPolicy,
) -> Result<Vec<String>, (ErrorCode, String)> {
    let refused = |code, why: String| Err((code, why + "; there is one broker"));
    let replicas = asked.replication_factor;
    if replicas == 0 || replicas < -1 {
        let why = format!("{replicas} is no replication factor");
        return refused(ErrorCode::InvalidReplicationFactor, why);
    }
    // The brokers are listed otherwise.
    let replicas = Some(replicas).filter(|it| *it > 1 && asked.assignments.is_empty());
    let in_sync = asked.configs.iter().find_map(replicas_in_sync);
    let replicas = replicas.map(|count| format!("replication factor {count}"));
    let in_sync = in_sync.map(|count| format!("{MIN_IN_SYNC_REPLICAS} {count}"));
    match (policy, replicas, in_sync) {
        (ReplicationPolicy::Reject, Some(replicas), _) => {
            refused(ErrorCode::InvalidReplicationFactor, replicas)
        }
        (ReplicationPolicy::Reject, None, Some(in_sync)) => {
            refused(ErrorCode::InvalidConfig, in_sync)
        }
        (_, replicas, in_sync) => Ok(replicas.into_iter().chain(in_sync).collect()),
    }
}

/// `min.insync.replicas` above 1.
fn replicas_in_sync(config: &CreateTopicsCreatableTopicConfig<'_>) -> Option<i32> {
    let value = config.value.filter(|_| config.name == MIN_IN_SYNC_REPLICAS);
    let count = value?.trim().parse().ok();
    count.filter(|count| *count > 1)
}

fn new_topic(asked: &CreateTopicsCreatableTopic<'_>, broker: &Broker) -> NewTopic {
    let is_default = |number: i32| number == -1;
    let partitions = match asked.assignments.is_empty() {
        true if is_default(asked.num_partitions) => broker.options.topics.partitions,
        true => asked.num_partitions,
        false => i32::try_from(asked.assignments.len()).unwrap_or(i32::MAX),
    };
    let kept = asked.configs.iter();
    let kept = kept.filter(|config| replicas_in_sync(config).is_none());
    let config = kept.filter_map(|config| Some((config.name.to_owned(), config.value?.to_owned())));
    NewTopic {
        name: asked.name.to_owned(),
        partitions,
        config: config.collect::<BTreeMap<_, _>>(),
    }
}

fn code_of(error: &TopicError) -> ErrorCode {
    match error {
        TopicError::Name(_) | TopicError::Collides(_) => ErrorCode::InvalidTopic,
        TopicError::Exists => ErrorCode::TopicAlreadyExists,
        TopicError::Config(_) => ErrorCode::InvalidConfig,
        TopicError::TooMany { .. } => ErrorCode::PolicyViolation,
        TopicError::Partitions(_) => ErrorCode::InvalidPartitions,
        TopicError::Unknown => ErrorCode::UnknownTopicOrPartition,
        TopicError::Log(_) | TopicError::Disk(_) | TopicError::Unreadable { .. } => {
            ErrorCode::KafkaStorageError
        }
    }
}

pub(crate) async fn delete<'a>(
    request: &DeleteTopicsRequest<'a>,
    broker: &Arc<Broker>,
) -> DeleteTopicsResponse<'a> {
    let by_name = request
        .topic_names
        .iter()
        .map(|name| (Some(*name), TopicId::NONE));
    let by_state = request.topics.iter();
    let by_state = by_state.map(|topic| (topic.name, TopicId::from_bytes(topic.topic_id.0)));
    let asked: Vec<_> = by_name.chain(by_state).collect();
    let mut response = DeleteTopicsResponse::default();
    for (name, id) in asked {
        let present = broker.topics.present();
        let found = match name {
            Some(name) => present.named(name),
            None => present.with_id(id),
        };
        let code = match found {
            None if name.is_none() => ErrorCode::UnknownTopicId,
            None => ErrorCode::UnknownTopicOrPartition,
            Some(topic) if is_internal(&topic.name) => ErrorCode::InvalidTopic,
            Some(topic) => delete_one(topic, broker).await,
        };
        response
            .responses
            .push(DeleteTopicsResponseDeletableTopicResult {
                name,
                topic_id: Uuid(found.map_or(id, |topic| topic.id).to_bytes()),
                error_code: code.number(),
                ..Default::default()
            });
    }
    response
}

async fn delete_one(topic: &Arc<Topic>, broker: &Arc<Broker>) -> ErrorCode {
    let (topic, worker) = (Arc::clone(topic), Arc::clone(broker));
    let delete = move || {
        let deleted = worker.topics.delete(&topic.name);
        worker
            .groups
            .event(|coordinator, now| coordinator.topic_deleted(now, &topic.name));
        // Fetches that wait for records learn that none will come.
        let partitions = topic.partitions.iter().map(|log| log.number());
        worker.moved.report(&partitions.collect::<Vec<_>>());
        deleted
    };
    match tokio::task::spawn_blocking(delete).await {
        Ok(Ok(())) => ErrorCode::None,
        Ok(Err(error)) => code_of(&error),
        Err(_) => ErrorCode::UnknownServerError,
    }
}

/// Hands out an id that no producer has, in an epoch that begins.
pub(crate) async fn init_producer_id(
    request: &InitProducerIdRequest<'_>,
    broker: &Arc<Broker>,
) -> InitProducerIdResponse {
    let mut response = InitProducerIdResponse {
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    if request.transactional_id.is_some() {
        response.error_code = ErrorCode::InvalidRequest.number();
        return response;
    }
    match broker.next_producer_id().await {
        Ok(id) => {
            response.producer_id = id;
            response.producer_epoch = 0;
        }
        Err(error) => {
            tracing::warn!("no producer id can be handed out: {error}");
            response.error_code = ErrorCode::KafkaStorageError.number();
        }
    }
    response
}
