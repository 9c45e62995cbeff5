//! Partitions that are added, and records that are deleted.

use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, DeleteRecordsRequest, ListOffsetsRequest, MetadataRequest,
};

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, topic_name};
use crate::{MEMORY_MAX, create};

const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const INVALID_TOPIC_EXCEPTION: i16 = 17;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
const INVALID_REQUEST: i16 = 42;
const POLICY_VIOLATION: i16 = 44;

fn topic(name: &str, count: i32, assignments: Option<&[&[i32]]>) -> CreatePartitionsTopic {
    let assignments = assignments.map(|all| {
        let all = all.iter().map(|brokers| {
            let brokers = brokers.iter().map(|id| (*id).into());
            CreatePartitionsAssignment::default().with_broker_ids(brokers.collect())
        });
        all.collect()
    });
    CreatePartitionsTopic::default()
        .with_name(topic_name(name))
        .with_count(count)
        .with_assignments(assignments)
}

fn request(topics: Vec<CreatePartitionsTopic>) -> CreatePartitionsRequest {
    CreatePartitionsRequest::default()
        .with_topics(topics)
        .with_timeout_ms(30_000)
}

#[track_caller]
fn partitions(client: &mut Client, name: &str) -> usize {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
    let request = MetadataRequest::default().with_topics(Some(vec![topic]));
    client.ask(9, &request).topics[0].partitions.len()
}

#[test]
fn partitions_are_added_and_serve_at_once_and_after_a_restart() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 1, &[]);
    for version in 0..=3 {
        let count = 2 + i32::from(version);
        let checked = request(vec![topic("t", count, None)]).with_validate_only(true);
        assert_eq!(client.ask(version, &checked).results[0].error_code, 0);
        assert_eq!(partitions(&mut client, "t") as i32, count - 1);
        let wanted = request(vec![topic("t", count, None)]);
        let results = client.ask(version, &wanted).results;
        assert_eq!(
            (results.len(), results[0].error_code),
            (1, 0),
            "{results:?}"
        );
        assert_eq!(partitions(&mut client, "t") as i32, count);
        assert_eq!(client.produce("t", count - 1, batch(1, 10)), (0, 0));
    }
    let assigned = request(vec![topic("t", 7, Some(&[&[1], &[1]]))]);
    assert_eq!(client.ask(3, &assigned).results[0].error_code, 0);
    let broker = BrokerProcess::start_in(broker.kill());
    let mut client = broker.connect();
    assert_eq!(partitions(&mut client, "t"), 7);
    assert_eq!(client.produce("t", 4, batch(1, 10)), (0, 1));
    assert_eq!(client.produce("t", 6, batch(1, 10)), (0, 0));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn partitions_that_cannot_be_are_refused() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.find_coordinator();
    create(&mut client, "t", 2, &[]);
    let one = [1];
    for (asked, code) in [
        (topic("none", 3, None), UNKNOWN_TOPIC_OR_PARTITION),
        (topic("", 3, None), UNKNOWN_TOPIC_OR_PARTITION),
        (topic("t", 2, None), INVALID_PARTITIONS),
        (topic("t", 1, None), INVALID_PARTITIONS),
        (topic("t", 0, None), INVALID_PARTITIONS),
        (topic("t", i32::MIN, None), INVALID_PARTITIONS),
        (topic("t", 10_001, None), INVALID_PARTITIONS),
        (topic("t", i32::MAX, None), INVALID_PARTITIONS),
        (topic("__consumer_offsets", 60, None), POLICY_VIOLATION),
        (topic("t", 3, Some(&[])), INVALID_REPLICA_ASSIGNMENT),
        (
            topic("t", 3, Some(&[&one, &one])),
            INVALID_REPLICA_ASSIGNMENT,
        ),
        (topic("t", 3, Some(&[&[2]])), INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, Some(&[&[1, 1]])), INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, Some(&[&[]])), INVALID_REPLICA_ASSIGNMENT),
    ] {
        for validate_only in [true, false] {
            let request = request(vec![asked.clone()]).with_validate_only(validate_only);
            let refused = client.ask(3, &request).results.remove(0);
            assert_eq!(refused.error_code, code, "{asked:?}");
            assert!(refused.error_message.is_some());
        }
    }
    let twice = request(vec![topic("t", 3, None), topic("t", 4, None)]);
    let results = client.ask(3, &twice).results;
    let codes = results.iter().map(|result| result.error_code);
    assert_eq!(Vec::from_iter(codes), [INVALID_REQUEST]);
    assert_eq!(partitions(&mut client, "t"), 2);
    broker.end_well(MEMORY_MAX);
}

/// Deletes records before an offset; returns the error code and the low watermark.
fn delete(client: &mut Client, version: i16, name: &str, place: (i32, i64)) -> (i16, i64) {
    let (partition, offset) = place;
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(partition)
        .with_offset(offset);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name(name))
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
    let deleted = client
        .ask(version, &request)
        .topics
        .remove(0)
        .partitions
        .remove(0);
    (deleted.error_code, deleted.low_watermark)
}

/// Returns the first offset of a partition.
fn earliest(client: &mut Client, name: &str, partition: i32) -> i64 {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_timestamp(-2);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name(name))
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default().with_topics(vec![topic]);
    client.ask(5, &request).topics[0].partitions[0].offset
}

#[test]
fn deleted_records_are_gone_at_once_and_after_a_crash() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.find_coordinator();
    create(&mut client, "t", 2, &[]);
    for _ in 0..3 {
        assert_eq!(client.produce("t", 1, batch(10, 10)).0, 0);
    }
    for (version, before, expected) in [
        (0, 0, (0, 0)),
        (1, 7, (0, 7)),
        (2, 5, (0, 7)),
        (2, 20, (0, 20)),
        (2, 31, (OFFSET_OUT_OF_RANGE, -1)),
        (2, i64::MAX, (OFFSET_OUT_OF_RANGE, -1)),
        (2, -2, (OFFSET_OUT_OF_RANGE, -1)),
        (2, i64::MIN, (OFFSET_OUT_OF_RANGE, -1)),
    ] {
        let deleted = delete(&mut client, version, "t", (1, before));
        assert_eq!(deleted, expected, "{before}");
    }
    assert_eq!(
        (earliest(&mut client, "t", 1), earliest(&mut client, "t", 0)),
        (20, 0)
    );
    let fetched = client.fetch("t", 1, 19);
    let partition = &fetched.responses[0].partitions[0];
    assert_eq!(partition.error_code, OFFSET_OUT_OF_RANGE);
    assert_eq!(
        client.fetch("t", 1, 20).responses[0].partitions[0].error_code,
        0
    );
    for (name, partition, code) in [
        ("none", 0, UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", 0, INVALID_TOPIC_EXCEPTION),
    ] {
        assert_eq!(delete(&mut client, 2, name, (partition, 0)), (code, -1));
    }
    let broker = BrokerProcess::start_in(broker.kill());
    let mut client = broker.connect();
    assert_eq!(earliest(&mut client, "t", 1), 20);
    // Up to the high watermark.
    assert_eq!(delete(&mut client, 2, "t", (1, -1)), (0, 30));
    assert_eq!(earliest(&mut client, "t", 1), 30);
    assert_eq!(client.produce("t", 1, batch(1, 10)), (0, 30));
    broker.end_well(MEMORY_MAX);
}
