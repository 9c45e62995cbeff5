//! DescribeLogDirs, ElectLeaders and ListPartitionReassignments: there is one log folder, and one
//! replica, which is the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::path::absolute;

use crate::broker::Broker;
use crate::metadata::topics::{Topic, TopicMap};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};
use crate::protocol::tables::elect_leaders::{
    ElectLeadersRequest, ElectLeadersResponse, ElectLeadersResponsePartitionResult,
    ElectLeadersResponseReplicaElectionResult,
};
use crate::protocol::tables::list_partition_reassignments::ListPartitionReassignmentsResponse;
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The kinds of elections: of the preferred replica, and of any.
const ELECTIONS: std::ops::RangeInclusive<i8> = 0..=1;

/// Returns the path of the log folder.
pub(crate) fn log_folder(broker: &Broker) -> String {
    let folder = &broker.options.data;
    let folder = absolute(folder).unwrap_or_else(|_| folder.clone());
    folder.display().to_string()
}

/// Describes the log folder, with the sizes of partitions. Each is described once: otherwise a
/// request could make a response of any size.
pub(crate) fn log_dirs<'a>(
    request: &DescribeLogDirsRequest<'_>,
    broker: &Broker,
    (topics, access): (&'a TopicMap, &ClientAccess),
    folder: &'a str,
) -> DescribeLogDirsResponse<'a> {
    if !access.allows_cluster(AclOperation::Describe) {
        return DescribeLogDirsResponse {
            error_code: ErrorCode::ClusterAuthorizationFailed.number(),
            ..DescribeLogDirsResponse::default()
        };
    }
    let topics = match &request.topics {
        None => {
            let topics = topics.all();
            topics
                .map(|topic| described(topic, 0..topic.partitions.len() as i32))
                .collect()
        }
        Some(asked) => {
            let mut wanted = BTreeMap::<&str, BTreeSet<i32>>::new();
            for topic in asked {
                let partitions = wanted.entry(topic.topic).or_default();
                partitions.extend(&topic.partitions);
            }
            let known = wanted.into_iter();
            let known = known.filter_map(|(name, wanted)| Some((topics.named(name)?, wanted)));
            known
                .map(|(topic, wanted)| described(topic, wanted))
                .collect()
        }
    };
    let (total, usable) = broker.log.disk_space().unwrap_or((-1, -1));
    let code = match broker.log.is_offline() {
        true => ErrorCode::KafkaStorageError,
        false => ErrorCode::None,
    };
    DescribeLogDirsResponse {
        results: vec![DescribeLogDirsResult {
            error_code: code.number(),
            log_dir: folder,
            topics,
            total_bytes: total,
            usable_bytes: usable,
            is_cordoned: false,
        }],
        ..DescribeLogDirsResponse::default()
    }
}

fn described(topic: &Topic, numbers: impl IntoIterator<Item = i32>) -> DescribeLogDirsTopic<'_> {
    let numbers = numbers.into_iter();
    let partitions = numbers.filter_map(|partition_index| {
        let size = topic.partition(partition_index)?.size();
        Some(DescribeLogDirsPartition {
            partition_index,
            partition_size: i64::try_from(size).unwrap_or(i64::MAX),
            ..DescribeLogDirsPartition::default()
        })
    });
    DescribeLogDirsTopic {
        name: &topic.name,
        partitions: partitions.collect(),
    }
}

/// Answers that no election is needed. Like Kafka, lists no partitions if none is named.
pub(crate) fn elect_leaders<'a>(
    request: &ElectLeadersRequest<'a>,
    topics: &'a TopicMap,
    access: &ClientAccess,
) -> ElectLeadersResponse<'a> {
    if !access.allows_cluster(AclOperation::Alter) {
        return ElectLeadersResponse {
            error_code: ErrorCode::ClusterAuthorizationFailed.number(),
            ..ElectLeadersResponse::default()
        };
    }
    if !ELECTIONS.contains(&request.election_type) {
        return ElectLeadersResponse {
            error_code: ErrorCode::InvalidRequest.number(),
            ..ElectLeadersResponse::default()
        };
    }
    let results = match &request.topic_partitions {
        None => {
            let topics = topics.all();
            let results = topics.map(|topic| ElectLeadersResponseReplicaElectionResult {
                topic: &topic.name,
                partition_result: Vec::new(),
            });
            results.collect()
        }
        Some(asked) => {
            let results = asked.iter().map(|asked| {
                let known = topics.named(asked.topic);
                let partitions = asked.partitions.iter().map(|number| {
                    let log = known.and_then(|topic| topic.partition(*number));
                    let code = match log {
                        Some(_) => ErrorCode::ElectionNotNeeded,
                        None => ErrorCode::UnknownTopicOrPartition,
                    };
                    ElectLeadersResponsePartitionResult {
                        partition_id: *number,
                        error_code: code.number(),
                        error_message: None,
                    }
                });
                ElectLeadersResponseReplicaElectionResult {
                    topic: asked.topic,
                    partition_result: partitions.collect(),
                }
            });
            results.collect()
        }
    };
    ElectLeadersResponse {
        replica_election_results: results,
        ..ElectLeadersResponse::default()
    }
}

/// Answers that nothing is reassigned.
pub(crate) fn reassignments<'a>(access: &ClientAccess) -> ListPartitionReassignmentsResponse<'a> {
    let code = match access.allows_cluster(AclOperation::Describe) {
        true => ErrorCode::None,
        false => ErrorCode::ClusterAuthorizationFailed,
    };
    ListPartitionReassignmentsResponse {
        error_code: code.number(),
        ..ListPartitionReassignmentsResponse::default()
    }
}
