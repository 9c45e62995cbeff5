//! Metadata: the existing topics, and this broker as the leader of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::broker::Broker;
use crate::metadata::names::{check_name, is_internal};
use crate::metadata::topic_id::TopicId;
use crate::metadata::topics::{NewTopic, Topic, TopicError, TopicMap};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use crate::protocol::wire::Uuid;
use crate::requests::operations;
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// Creates missing topics of a request, if the configuration and the client allow it.
pub(crate) async fn create_missing(
    request: &MetadataRequest<'_>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) {
    if !broker.options.topics.auto_create || !request.allow_auto_topic_creation {
        return;
    }
    let present = broker.topics.present();
    let names = request
        .topics
        .iter()
        .flatten()
        .filter_map(|topic| topic.name);
    let missing = names.filter(|name| present.named(name).is_none() && check_name(name).is_ok());
    let missing: Vec<_> = missing
        .filter(|name| !is_internal(name) && may_create(name, access))
        .map(str::to_owned)
        .collect();
    if missing.is_empty() {
        return;
    }
    let broker = Arc::clone(broker);
    let create = move || {
        for name in missing {
            let new = NewTopic {
                name,
                partitions: broker.options.topics.partitions,
                config: BTreeMap::new(),
            };
            match broker.topics.create(&new) {
                // Several clients may ask for a topic concurrently.
                Ok(_) | Err(TopicError::Exists) => {}
                Err(error) => tracing::warn!("topic {} cannot be made: {error}", new.name),
            }
        }
    };
    // After a panic the topics are missing, which the response shows.
    let _ = tokio::task::spawn_blocking(create).await;
}

/// Whether the client may see a topic and create it.
fn may_create(name: &str, access: &ClientAccess) -> bool {
    let may_create = access.allows_cluster(AclOperation::Create)
        || access.allows_topic(AclOperation::Create, name);
    may_create && access.allows_topic(AclOperation::Describe, name)
}

/// Answers with the existing topics that the client may see.
pub(crate) fn metadata<'a>(
    request: &MetadataRequest<'a>,
    version: i16,
    broker: &'a Broker,
    (present, access): (&'a TopicMap, &ClientAccess),
    (host, port): (&'a str, u16),
) -> MetadataResponse<'a> {
    let node = broker.options.node_id;
    let creates = broker.options.topics.auto_create && request.allow_auto_topic_creation;
    let shown = |topic: MetadataResponseTopic<'a>| MetadataResponseTopic {
        topic_authorized_operations: operations::of_topic(
            request.include_topic_authorized_operations,
            access,
            topic.name.unwrap_or_default(),
        ),
        ..topic
    };
    let topics = match &request.topics {
        // In version 0 an empty list means all topics.
        Some(topics) if !topics.is_empty() || version > 0 => {
            // Duplicates are described once, as by Kafka.
            let mut seen = BTreeSet::new();
            let topics = topics
                .iter()
                .filter(|asked| seen.insert((asked.name, asked.topic_id.0)));
            topics
                .map(|asked| shown(asked_topic(asked, (present, access), node, creates)))
                .collect()
        }
        _ => {
            let all = present.all();
            let all = all.filter(|it| access.allows_topic(AclOperation::Describe, &it.name));
            all.map(|topic| shown(described(topic, node))).collect()
        }
    };
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: node,
            host,
            port: i32::from(port),
            rack: None,
        }],
        cluster_id: Some(&broker.cluster_id),
        controller_id: node,
        topics,
        cluster_authorized_operations: operations::of_cluster(
            request.include_cluster_authorized_operations,
            access,
        ),
        ..MetadataResponse::default()
    }
}

fn asked_topic<'a>(
    asked: &MetadataRequestTopic<'a>,
    (present, access): (&'a TopicMap, &ClientAccess),
    node: i32,
    creates: bool,
) -> MetadataResponseTopic<'a> {
    let id = TopicId::from_bytes(asked.topic_id.0);
    let known = match asked.name {
        Some(name) => present.named(name),
        None => present.with_id(id),
    };
    let may_see = |name: &str| access.allows_topic(AclOperation::Describe, name);
    if let Some(topic) = known
        && may_see(&topic.name)
    {
        return described(topic, node);
    }
    let code = match asked.name {
        Some(name) if !may_see(name) => ErrorCode::TopicAuthorizationFailed,
        Some(name) if check_name(name).is_err() => ErrorCode::InvalidTopic,
        Some(name) if creates && !is_internal(name) && !may_create(name, access) => {
            ErrorCode::TopicAuthorizationFailed
        }
        Some(_) => ErrorCode::UnknownTopicOrPartition,
        None => ErrorCode::UnknownTopicId,
    };
    MetadataResponseTopic {
        error_code: code.number(),
        name: asked.name,
        topic_id: asked.topic_id,
        ..MetadataResponseTopic::default()
    }
}

fn described<'a>(topic: &'a Topic, node: i32) -> MetadataResponseTopic<'a> {
    let partitions = topic
        .partitions
        .iter()
        .zip(0..)
        .map(|(log, partition_index)| MetadataResponsePartition {
            partition_index,
            leader_id: node,
            leader_epoch: log.offsets().leader_epoch,
            replica_nodes: vec![node],
            isr_nodes: vec![node],
            ..MetadataResponsePartition::default()
        });
    MetadataResponseTopic {
        name: Some(&topic.name),
        topic_id: Uuid(topic.id.to_bytes()),
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..MetadataResponseTopic::default()
    }
}
