//! DescribeCluster and DescribeTopicPartitions.

use std::collections::BTreeSet;

use crate::broker::Broker;
use crate::metadata::names::{check_name, is_internal};
use crate::metadata::topics::{Topic, TopicMap};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use crate::protocol::tables::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};
use crate::protocol::wire::Uuid;
use crate::requests::operations;
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The kinds of endpoints (KIP-919).
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// The largest number of partitions in a response (Kafka's `max.request.partition.size.limit`).
const PARTITIONS_DESCRIBED_MAX: i32 = 2000;

pub(crate) fn describe<'a>(
    request: &DescribeClusterRequest,
    (broker, access): (&'a Broker, &ClientAccess),
    (host, port): (&'a str, u16),
) -> DescribeClusterResponse<'a> {
    let refused = |code: ErrorCode, why| DescribeClusterResponse {
        error_code: code.number(),
        error_message: Some(why),
        ..DescribeClusterResponse::default()
    };
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            let why = "this is a broker; controllers cannot be described";
            return refused(ErrorCode::MismatchedEndpointType, why);
        }
        _ => return refused(ErrorCode::UnsupportedEndpointType, "unknown endpoint type"),
    }
    let node = broker.options.node_id;
    DescribeClusterResponse {
        cluster_id: &broker.cluster_id,
        controller_id: node,
        brokers: vec![DescribeClusterBroker {
            broker_id: node,
            host,
            port: i32::from(port),
            ..DescribeClusterBroker::default()
        }],
        cluster_authorized_operations: operations::of_cluster(
            request.include_cluster_authorized_operations,
            access,
        ),
        ..DescribeClusterResponse::default()
    }
}

/// Describes partitions by topic and number, from a cursor on, and returns the next cursor if more
/// follow.
pub(crate) fn describe_partitions<'a>(
    request: &DescribeTopicPartitionsRequest<'a>,
    (topics, access): (&'a TopicMap, &ClientAccess),
    node: i32,
) -> DescribeTopicPartitionsResponse<'a> {
    let asked: BTreeSet<&str> = request.topics.iter().map(|topic| topic.name).collect();
    let is_all = asked.is_empty();
    let (cursor, first) = match &request.cursor {
        Some(cursor) => (cursor.topic_name, cursor.partition_index),
        None => ("", 0),
    };
    let lacks_cursor = request.cursor.is_some() && !is_all && !asked.contains(cursor);
    let first = usize::try_from(first).ok().filter(|_| !lacks_cursor);
    let Some(first) = first else {
        return refused(&asked);
    };
    let names: Vec<&str> = match is_all {
        true => topics.all().map(|topic| &*topic.name).collect(),
        false => asked.into_iter().collect(),
    };
    let limit = request.response_partition_limit;
    let mut left = limit.clamp(1, PARTITIONS_DESCRIBED_MAX).unsigned_abs() as usize;
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.into_iter().filter(|name| *name >= cursor) {
        let from = if name == cursor { first } else { 0 };
        if !access.allows_topic(AclOperation::Describe, name) {
            let denied = failed(name, ErrorCode::TopicAuthorizationFailed);
            response.topics.extend((!is_all).then_some(denied));
            continue;
        }
        if left == 0 {
            response.next_cursor = Some(cursor_at(name, from));
            break;
        }
        let Some(topic) = topics.named(name) else {
            response.topics.extend((!is_all).then(|| unknown(name)));
            continue;
        };
        let mut described = described(topic, from, left, node);
        described.topic_authorized_operations = operations::of_topic(true, access, name);
        let next = from + described.partitions.len();
        left -= described.partitions.len();
        response.topics.push(described);
        if next < topic.partitions.len() {
            response.next_cursor = Some(cursor_at(name, next));
            break;
        }
    }
    response
}

/// The response to a cursor that does not fit the request.
fn refused<'a>(asked: &BTreeSet<&'a str>) -> DescribeTopicPartitionsResponse<'a> {
    let topics = asked
        .iter()
        .map(|name| DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::InvalidRequest.number(),
            name: Some(name),
            ..DescribeTopicPartitionsResponseTopic::default()
        });
    DescribeTopicPartitionsResponse {
        topics: topics.collect(),
        ..DescribeTopicPartitionsResponse::default()
    }
}

fn cursor_at(topic: &str, partition: usize) -> DescribeTopicPartitionsResponseCursor<'_> {
    DescribeTopicPartitionsResponseCursor {
        topic_name: topic,
        partition_index: i32::try_from(partition).unwrap_or(i32::MAX),
    }
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic<'_> {
    let code = match check_name(name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopic,
    };
    failed(name, code)
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic<'_> {
    DescribeTopicPartitionsResponseTopic {
        error_code: code.number(),
        name: Some(name),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn described(
    topic: &Topic,
    from: usize,
    count: usize,
    node: i32,
) -> DescribeTopicPartitionsResponseTopic<'_> {
    let partitions = topic.partitions.iter().zip(0..).skip(from).take(count);
    let partitions =
        partitions.map(
            |(log, partition_index)| DescribeTopicPartitionsResponsePartition {
                partition_index,
                leader_id: node,
                leader_epoch: log.offsets().leader_epoch,
                replica_nodes: vec![node],
                isr_nodes: vec![node],
                eligible_leader_replicas: Some(Vec::new()),
                last_known_elr: Some(Vec::new()),
                ..DescribeTopicPartitionsResponsePartition::default()
            },
        );
    DescribeTopicPartitionsResponseTopic {
        name: Some(&topic.name),
        topic_id: Uuid(topic.id.to_bytes()),
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
