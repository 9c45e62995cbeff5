//! The cluster, its topics, its log folder and its elections.

use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeLogDirsRequest, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, ElectLeadersRequest, ListPartitionReassignmentsRequest,
    MetadataRequest,
};

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, topic_name};
use crate::{MEMORY_MAX, create};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const INVALID_TOPIC_EXCEPTION: i16 = 17;
const INVALID_REQUEST: i16 = 42;
const ELECTION_NOT_NEEDED: i16 = 84;
const MISMATCHED_ENDPOINT_TYPE: i16 = 114;
const UNSUPPORTED_ENDPOINT_TYPE: i16 = 115;

/// The operations that were not asked for.
const NOT_ASKED: i32 = i32::MIN;
/// What Kafka without ACLs answers.
const CLUSTER_OPERATIONS: i32 = 8096;
const TOPIC_OPERATIONS: i32 = 3576;

#[test]
fn the_cluster_is_one_broker() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let metadata = client.ask(8, &MetadataRequest::default());
    assert_eq!(metadata.cluster_authorized_operations, NOT_ASKED);
    for version in 0..=2 {
        let request = DescribeClusterRequest::default();
        let cluster = client.ask(version, &request);
        assert_eq!((cluster.error_code, cluster.controller_id), (0, 1.into()));
        assert_eq!(Some(&cluster.cluster_id), metadata.cluster_id.as_ref());
        assert_eq!(cluster.cluster_authorized_operations, NOT_ASKED);
        let [one] = &cluster.brokers[..] else {
            panic!("{cluster:?}");
        };
        let there = (one.broker_id, &*one.host, one.port, one.is_fenced);
        let port = i32::from(broker.address.port());
        assert_eq!(there, (1.into(), "127.0.0.1", port, false));
        let request = request.with_include_cluster_authorized_operations(true);
        let cluster = client.ask(version, &request);
        assert_eq!(cluster.cluster_authorized_operations, CLUSTER_OPERATIONS);
    }
    for (kind, code) in [
        (2, MISMATCHED_ENDPOINT_TYPE),
        (0, UNSUPPORTED_ENDPOINT_TYPE),
        (i8::MIN, UNSUPPORTED_ENDPOINT_TYPE),
    ] {
        let request = DescribeClusterRequest::default().with_endpoint_type(kind);
        let refused = client.ask(1, &request);
        assert_eq!((refused.error_code, refused.brokers.len()), (code, 0));
        assert!(refused.error_message.is_some());
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn metadata_has_the_operations_if_asked() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 1, &[]);
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("t")));
    for version in 8..=13 {
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic.clone()]))
            .with_include_topic_authorized_operations(true)
            .with_include_cluster_authorized_operations(version < 11);
        let metadata = client.ask(version, &request);
        let operations = metadata.topics[0].topic_authorized_operations;
        assert_eq!(operations, TOPIC_OPERATIONS);
        if version < 11 {
            assert_eq!(metadata.cluster_authorized_operations, CLUSTER_OPERATIONS);
        }
    }
    broker.end_well(MEMORY_MAX);
}

fn describe(
    client: &mut Client,
    topics: &[&str],
    limit: i32,
    cursor: Option<(&str, i32)>,
) -> DescribeTopicPartitionsResponse {
    let topics = topics.iter();
    let topics = topics.map(|name| TopicRequest::default().with_name(topic_name(name)));
    let cursor = cursor.map(|(topic, partition)| {
        Cursor::default()
            .with_topic_name(topic_name(topic))
            .with_partition_index(partition)
    });
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(topics.collect())
        .with_response_partition_limit(limit)
        .with_cursor(cursor);
    client.ask(0, &request)
}

/// Returns topics with errors and partitions.
fn shown(response: &DescribeTopicPartitionsResponse) -> Vec<(String, i16, Vec<i32>)> {
    let topics = response.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|one| one.partition_index);
        let name = topic.name.as_ref().unwrap().to_string();
        (name, topic.error_code, partitions.collect())
    });
    topics.collect()
}

#[test]
fn partitions_are_described_part_by_part() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "a", 3, &[]);
    create(&mut client, "b", 2, &[]);
    create(&mut client, "c", 1, &[]);
    let all = describe(&mut client, &[], 2000, None);
    assert!(all.next_cursor.is_none());
    let names = |all: &DescribeTopicPartitionsResponse| {
        let names = shown(all).into_iter().map(|(name, ..)| name);
        names.collect::<String>()
    };
    assert_eq!(names(&all), "abc");
    let first = &all.topics[0];
    assert_eq!(first.topic_authorized_operations, TOPIC_OPERATIONS);
    let partition = &first.partitions[2];
    assert_eq!(
        (partition.leader_id, &*partition.isr_nodes),
        (1.into(), &[1.into()][..])
    );
    // Every limit leads through the same partitions.
    for limit in [i32::MIN, 0, 1, 2, 3, 4, 5, 6, i32::MAX] {
        let mut cursor: Option<(String, i32)> = None;
        let mut seen = Vec::new();
        loop {
            let at = cursor.as_ref().map(|(topic, number)| (&**topic, *number));
            let part = describe(&mut client, &[], limit, at);
            let count: usize = part.topics.iter().map(|topic| topic.partitions.len()).sum();
            assert!(count <= limit.max(1) as usize);
            for (name, _, partitions) in shown(&part) {
                seen.extend(
                    partitions
                        .into_iter()
                        .map(|number| format!("{name}{number}")),
                );
            }
            let Some(next) = &part.next_cursor else {
                break;
            };
            cursor = Some((next.topic_name.to_string(), next.partition_index));
        }
        assert_eq!(seen, ["a0", "a1", "a2", "b0", "b1", "c0"], "{limit}");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn topics_that_are_named_are_described_once_with_their_errors() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "b", 1, &[]);
    let named = describe(&mut client, &["none", "b", "b", "a/b"], 10, None);
    let expected = [
        ("a/b".to_owned(), INVALID_TOPIC_EXCEPTION, vec![]),
        ("b".to_owned(), 0, vec![0]),
        ("none".to_owned(), UNKNOWN_TOPIC_OR_PARTITION, vec![]),
    ];
    assert_eq!(shown(&named), expected);
    for cursor in [("c", 0), ("b", -1)] {
        let refused = describe(&mut client, &["b"], 10, Some(cursor));
        assert_eq!(shown(&refused), [("b".to_owned(), INVALID_REQUEST, vec![])]);
    }
    // A cursor may be past the end, or of a topic that is gone.
    let none = describe(&mut client, &["b"], 10, Some(("b", i32::MAX)));
    assert_eq!(shown(&none), [("b".to_owned(), 0, vec![])]);
    let rest = describe(&mut client, &[], 10, Some(("a", 7)));
    assert_eq!(shown(&rest), [("b".to_owned(), 0, vec![0])]);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn the_log_folder_has_the_sizes_of_partitions() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 2, &[]);
    let records = batch(3, 1000);
    let size = records.len() as i64;
    assert_eq!(client.produce("t", 1, records).0, 0);
    for version in 1..=4 {
        let all = client.ask(
            version,
            &DescribeLogDirsRequest::default().with_topics(None),
        );
        let [folder] = &all.results[..] else {
            panic!("{all:?}");
        };
        assert_eq!(&*folder.log_dir, broker.folder().to_str().unwrap());
        let partitions = folder.topics[0].partitions.iter();
        let sizes = partitions.map(|one| (one.partition_index, one.partition_size, one.offset_lag));
        assert_eq!(Vec::from_iter(sizes), [(0, 0, 0), (1, size, 0)]);
        if version >= 4 {
            assert!(0 < folder.usable_bytes && folder.usable_bytes <= folder.total_bytes);
        }
        let asked = |name: &str, partitions: &[i32]| {
            DescribableLogDirTopic::default()
                .with_topic(topic_name(name))
                .with_partitions(partitions.to_vec())
        };
        let asked = vec![
            asked("t", &[1, 1, 7, -1]),
            asked("none", &[0]),
            asked("t", &[1]),
        ];
        let request = DescribeLogDirsRequest::default().with_topics(Some(asked));
        let some = client.ask(version, &request);
        let topics = &some.results[0].topics;
        assert_eq!((topics.len(), topics[0].partitions.len()), (1, 1));
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn no_election_is_needed_and_nothing_is_reassigned() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 2, &[]);
    let named = |name: &str, partitions: &[i32]| {
        TopicPartitions::default()
            .with_topic(topic_name(name))
            .with_partitions(partitions.to_vec())
    };
    for version in 0..=2 {
        for kind in 0..=i8::from(version > 0) {
            let topics = vec![named("t", &[1, 2]), named("none", &[0])];
            let request = ElectLeadersRequest::default()
                .with_election_type(kind)
                .with_topic_partitions(Some(topics));
            let elected = client.ask(version, &request);
            assert_eq!(elected.error_code, 0);
            let results = elected.replica_election_results.iter();
            let codes = results.flat_map(|topic| &topic.partition_result);
            let codes = codes.map(|partition| partition.error_code);
            let unknown = UNKNOWN_TOPIC_OR_PARTITION;
            assert_eq!(
                Vec::from_iter(codes),
                [ELECTION_NOT_NEEDED, unknown, unknown]
            );
        }
        let all = ElectLeadersRequest::default().with_topic_partitions(None);
        let elected = client.ask(version, &all);
        let results = &elected.replica_election_results;
        assert_eq!((results.len(), results[0].partition_result.len()), (1, 0));
    }
    let request = ElectLeadersRequest::default().with_election_type(2);
    assert_eq!(client.ask(2, &request).error_code, INVALID_REQUEST);
    let request = ListPartitionReassignmentsRequest::default().with_topics(None);
    let listed = client.ask(0, &request);
    assert_eq!((listed.error_code, listed.topics.len()), (0, 0));
    broker.end_well(MEMORY_MAX);
}
