//! CreateTopics, DeleteTopics and InitProducerId, which change the metadata.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::broker::Broker;
use crate::metadata::configs::{EffectiveConfig, effective, replicas_in_sync};
use crate::metadata::names::is_internal;
use crate::metadata::topic_id::TopicId;
use crate::metadata::topics::{NewTopic, Topic, TopicError};
use crate::options::ReplicationPolicy;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::create_topics::{
    CreateTopicsCreatableTopic, CreateTopicsRequest, CreateTopicsResponse,
    CreateTopicsResponseCreatableTopicConfigs, CreateTopicsResponseCreatableTopicResult,
};
use crate::protocol::tables::delete_topics::{
    DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicsResponseDeletableTopicResult,
};
use crate::protocol::tables::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::protocol::wire::Uuid;
use crate::security::access::ClientAccess;
use crate::security::acl::{AclOperation, ResourceType};

const TWICE: &str = "the request has this topic twice";
const DENIED: &str = "the client may not create the topic";
const BOTH: &str = "expected the name or the id of a topic, not both";
const NEITHER: &str = "expected the name or the id of a topic";

/// The result of creating a topic.
pub(crate) enum TopicOutcome {
    Made {
        id: TopicId,
        partitions: i32,
        config: BTreeMap<String, String>,
    },
    Refused(ErrorCode, String),
}

/// Creates topics. A name that occurs twice in a request is rejected once.
pub(crate) async fn create<'a>(
    request: &CreateTopicsRequest<'a>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> Vec<(&'a str, TopicOutcome)> {
    let may_create_all = access.allows_cluster(AclOperation::Create);
    let may_create = |name: &str| may_create_all || access.allows_topic(AclOperation::Create, name);
    let mut counts = HashMap::<&str, usize>::new();
    for topic in &request.topics {
        *counts.entry(topic.name).or_default() += 1;
    }
    let mut outcomes = Vec::with_capacity(counts.len());
    for topic in &request.topics {
        let created = match counts.remove(topic.name) {
            None => continue,
            Some(_) if !may_create(topic.name) => {
                Err((ErrorCode::TopicAuthorizationFailed, DENIED.to_owned()))
            }
            Some(1) => create_one(topic, request.validate_only, broker).await,
            Some(_) => Err((ErrorCode::InvalidRequest, TWICE.to_owned())),
        };
        let outcome = created.unwrap_or_else(|(code, why)| {
            tracing::info!("topic {:?} is not made: {why}", topic.name);
            TopicOutcome::Refused(code, why)
        });
        outcomes.push((topic.name, outcome));
    }
    outcomes
}

/// Returns the response to [`create`].
pub(crate) fn created<'a>(
    outcomes: &'a [(&'a str, TopicOutcome)],
    broker: &'a Broker,
    access: &ClientAccess,
) -> CreateTopicsResponse<'a> {
    let defaults = &broker.options.topics.config;
    let results = outcomes.iter().map(|(name, outcome)| {
        let result = CreateTopicsResponseCreatableTopicResult {
            name,
            ..Default::default()
        };
        match outcome {
            // As in Kafka, only those who may describe the configuration learn about it.
            TopicOutcome::Made { id, .. }
                if !access.allows_topic(AclOperation::DescribeConfigs, name) =>
            {
                CreateTopicsResponseCreatableTopicResult {
                    topic_id: Uuid(id.to_bytes()),
                    topic_config_error_code: ErrorCode::TopicAuthorizationFailed.number(),
                    num_partitions: -1,
                    replication_factor: -1,
                    configs: None,
                    ..result
                }
            }
            TopicOutcome::Made {
                id,
                partitions,
                config,
            } => CreateTopicsResponseCreatableTopicResult {
                num_partitions: *partitions,
                replication_factor: 1,
                configs: Some(effective(config, defaults).map(created_config).collect()),
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

fn created_config(config: EffectiveConfig<'_>) -> CreateTopicsResponseCreatableTopicConfigs<'_> {
    CreateTopicsResponseCreatableTopicConfigs {
        name: config.key.name,
        value: Some(config.value),
        read_only: false,
        config_source: config.source.number(),
        is_sensitive: false,
    }
}

async fn create_one(
    asked: &CreateTopicsCreatableTopic<'_>,
    validate_only: bool,
    broker: &Arc<Broker>,
) -> Result<TopicOutcome, (ErrorCode, String)> {
    let new = new_topic(asked, broker)?;
    let clamped = clamped(asked, broker.options.replication)?;
    let config = new.config.clone();
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
    Ok(TopicOutcome::Made {
        id: made.map_or(TopicId::NONE, |topic| topic.id),
        partitions,
        config,
    })
}

/// Returns the requested replication settings that are lowered to 1, in words.
///
/// # Errors
/// The policy rejects them, or the replication factor is invalid.
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
    let replicas = Some(replicas).filter(|count| *count > 1);
    let mut in_sync = asked.configs.iter();
    let in_sync = in_sync.find_map(|config| replicas_in_sync(config.name, config.value));
    let replicas = replicas.map(|count| format!("replication factor {count}"));
    let in_sync = in_sync.map(|count| format!("min.insync.replicas {count}"));
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

fn new_topic(
    asked: &CreateTopicsCreatableTopic<'_>,
    broker: &Broker,
) -> Result<NewTopic, (ErrorCode, String)> {
    let partitions = match (asked.assignments.is_empty(), asked.num_partitions) {
        (true, -1) => broker.options.topics.partitions,
        (true, number) => number,
        (false, _) => assigned_partitions(asked, broker.options.node_id)?,
    };
    let mut config = BTreeMap::new();
    for asked in &asked.configs {
        let Some(value) = asked.value else {
            let why = format!("{}: expected a value, not null", asked.name);
            return Err((ErrorCode::InvalidConfig, why));
        };
        if replicas_in_sync(asked.name, asked.value).is_none() {
            config.insert(asked.name.to_owned(), value.to_owned());
        }
    }
    Ok(NewTopic {
        name: asked.name.to_owned(),
        partitions,
        config,
    })
}

/// Returns the number of partitions of a topic whose replicas are assigned.
///
/// # Errors
/// The same as Kafka's: the request also contains counts, names another broker, or omits
/// partitions.
fn assigned_partitions(
    asked: &CreateTopicsCreatableTopic<'_>,
    node_id: i32,
) -> Result<i32, (ErrorCode, String)> {
    if asked.num_partitions != -1 || asked.replication_factor != -1 {
        let why = "replicas are assigned: expected -1 for the number of partitions and the \
                   replication factor";
        return Err((ErrorCode::InvalidRequest, why.to_owned()));
    }
    let refused = |why: String| Err((ErrorCode::InvalidReplicaAssignment, why));
    let mut numbers = BTreeSet::new();
    for assigned in &asked.assignments {
        let (number, brokers) = (assigned.partition_index, &assigned.broker_ids);
        if *brokers != [node_id] {
            return refused(format!(
                "partition {number}: expected one replica, on broker {node_id}: there is no other"
            ));
        }
        if !numbers.insert(number) {
            return refused(format!("partition {number} is assigned twice"));
        }
    }
    match numbers
        .iter()
        .zip(0..)
        .find(|(number, place)| *number != place)
    {
        Some((_, missing)) => refused(format!("partition {missing} is not assigned")),
        None => Ok(i32::try_from(numbers.len()).unwrap_or(i32::MAX)),
    }
}

pub(crate) fn code_of(error: &TopicError) -> ErrorCode {
    match error {
        TopicError::Name(_) | TopicError::Collides(_) => ErrorCode::InvalidTopic,
        TopicError::Exists => ErrorCode::TopicAlreadyExists,
        TopicError::Config(_) => ErrorCode::InvalidConfig,
        TopicError::TooMany { .. } | TopicError::Internal => ErrorCode::PolicyViolation,
        TopicError::Partitions(_) | TopicError::NotMore { .. } => ErrorCode::InvalidPartitions,
        TopicError::Unknown => ErrorCode::UnknownTopicOrPartition,
        TopicError::Log(_) | TopicError::Disk(_) | TopicError::Unreadable { .. } => {
            ErrorCode::KafkaStorageError
        }
    }
}

/// Deletes topics. A topic that a request lists in two ways is not deleted.
pub(crate) async fn delete<'a>(
    request: &DeleteTopicsRequest<'a>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> DeleteTopicsResponse<'a> {
    let by_name = request.topic_names.iter();
    let by_name = by_name.map(|name| (Some(*name), TopicId::NONE));
    let by_state = request.topics.iter();
    let by_state = by_state.map(|topic| (topic.name, TopicId::from_bytes(topic.topic_id.0)));
    let asked: Vec<_> = by_name.chain(by_state).collect();
    let present = broker.topics.present();
    let found_by = |(name, id): &(Option<&str>, TopicId)| match name {
        Some(name) => present.named(name),
        None => present.with_id(*id),
    };
    let mut counts = HashMap::<TopicId, usize>::new();
    for topic in asked.iter().filter_map(found_by) {
        *counts.entry(topic.id).or_default() += 1;
    }
    let mut answered = HashSet::new();
    let mut response = DeleteTopicsResponse::default();
    for state in asked {
        if !answered.insert(state) {
            continue;
        }
        let (name, id) = state;
        let found = found_by(&state);
        let (code, why) = match (name, found) {
            (Some(_), _) if id != TopicId::NONE => (ErrorCode::InvalidRequest, Some(BOTH)),
            (None, _) if id == TopicId::NONE => (ErrorCode::InvalidRequest, Some(NEITHER)),
            (None, None) => (ErrorCode::UnknownTopicId, None),
            (Some(name), _) if !access.allows_topic(AclOperation::Delete, name) => {
                (ErrorCode::TopicAuthorizationFailed, None)
            }
            (None, Some(topic)) if !access.allows_topic(AclOperation::Delete, &topic.name) => {
                (ErrorCode::TopicAuthorizationFailed, None)
            }
            (Some(_), None) => (ErrorCode::UnknownTopicOrPartition, None),
            (_, Some(topic)) if counts[&topic.id] > 1 => (ErrorCode::InvalidRequest, Some(TWICE)),
            (_, Some(topic)) if is_internal(&topic.name) => (ErrorCode::InvalidTopic, None),
            (_, Some(topic)) => (delete_one(topic, broker).await, None),
        };
        let shown = found.filter(|topic| access.allows_topic(AclOperation::Describe, &topic.name));
        let id = shown.map_or(id, |topic| topic.id);
        response
            .responses
            .push(DeleteTopicsResponseDeletableTopicResult {
                name,
                topic_id: Uuid(id.to_bytes()),
                error_code: code.number(),
                error_message: why,
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
        // Wake fetches that wait for records of the topic.
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

/// Hands out an unused producer ID with a new epoch.
pub(crate) async fn init_producer_id(
    request: &InitProducerIdRequest<'_>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> InitProducerIdResponse {
    let mut response = InitProducerIdResponse {
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    if let Some(id) = request.transactional_id {
        let kind = ResourceType::TransactionalId;
        let code = match access.allows(AclOperation::Write, kind, id) {
            true => ErrorCode::InvalidRequest,
            false => ErrorCode::TransactionalIdAuthorizationFailed,
        };
        response.error_code = code.number();
        return response;
    }
    if !access.allows_cluster(AclOperation::IdempotentWrite)
        && !access.allows_any_topic(AclOperation::Write)
    {
        response.error_code = ErrorCode::ClusterAuthorizationFailed.number();
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
