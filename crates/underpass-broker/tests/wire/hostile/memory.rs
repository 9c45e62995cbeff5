//! Small requests that could take a lot of memory.

use std::thread;

use bytes::Bytes;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic,
};
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeGroupsRequest, DescribeLogDirsRequest, FetchRequest,
    FindCoordinatorRequest, GroupId, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest,
};

use crate::MEMORY_MAX;
use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, encoded, fetch_request, framed, topic_name};

/// The memory limit of a broker with some requests of the largest number of elements, in bytes.
const ELEMENTS_MEMORY_MAX: usize = 1 << 30;

#[test]
fn a_topic_that_is_asked_for_many_times_is_described_once() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("t")));
    let request = MetadataRequest::default().with_topics(Some(vec![topic; 1_000_000]));
    let response = client.ask(4, &request);
    assert_eq!(response.topics.len(), 1);
    broker.end_well(4 * MEMORY_MAX);
}

#[test]
fn the_name_of_a_topic_is_kept_once_for_all_partitions_whose_offsets_are_asked_for() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    // If it were kept for each partition, it would take 30 GB.
    let topic = OffsetFetchRequestTopic::default()
        .with_name(topic_name(&"t".repeat(30_000)))
        .with_partition_indexes((0..1_000_000).collect());
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId("g".into()))
        .with_topics(Some(vec![topic]));
    let response = client.ask(7, &request);
    assert_eq!(response.topics[0].partitions.len(), 1_000_000);
    broker.end_well(ELEMENTS_MEMORY_MAX);
}

#[test]
fn offsets_that_are_asked_for_many_times_are_answered_once() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let find = FindCoordinatorRequest::default().with_key("g".into());
    assert_eq!(client.ask(3, &find).error_code, 0);
    let partition = |number| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(number)
            .with_committed_metadata(Some("m".repeat(4096).into()))
    };
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partitions((0..4).map(partition).collect());
    let commit = OffsetCommitRequest::default()
        .with_group_id(GroupId("g".into()))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    assert_eq!(client.ask(6, &commit).topics[0].partitions[3].error_code, 0);
    // If every duplicate were answered, it would take 4 GB and 16 GB.
    let topic = OffsetFetchRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partition_indexes(vec![0; 1_000_000]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId("g".into()))
        .with_topics(Some(vec![topic]));
    let response = client.ask(7, &request);
    assert_eq!(response.topics[0].partitions.len(), 1);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId("g".into()))
        .with_topics(None);
    let request = OffsetFetchRequest::default().with_groups(vec![group; 1_000_000]);
    let response = client.ask(8, &request);
    let offsets = response.groups.iter().flat_map(|group| &group.topics);
    assert_eq!(offsets.flat_map(|topic| &topic.partitions).count(), 4);
    broker.end_well(ELEMENTS_MEMORY_MAX);
}

#[test]
fn a_group_with_a_long_name_commits_no_more_than_a_batch() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let find = FindCoordinatorRequest::default().with_key("g".into());
    assert_eq!(client.ask(3, &find).error_code, 0);
    // Each offset is a record with the name of the group: 3 GB in total.
    let partition = OffsetCommitRequestPartition::default();
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition; 100_000]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(GroupId("g".repeat(30_000).into()))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let response = client.ask(6, &commit);
    assert_eq!(response.topics[0].partitions[99_999].error_code, 28);
    broker.end_well(4 * MEMORY_MAX);
}

/// A Metadata request for topics that do not exist and are not created.
fn many_topics() -> Vec<u8> {
    let topics = (0..100_000).map(|number| {
        MetadataRequestTopic::default().with_name(Some(topic_name(&format!("{number}"))))
    });
    let request = MetadataRequest::default()
        .with_topics(Some(topics.collect()))
        .with_allow_auto_topic_creation(false);
    encoded(8, &request)
}

#[test]
fn answers_that_wait_for_an_earlier_one_take_a_bounded_amount_of_memory() {
    const REQUESTS: usize = 30;
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    // No further response follows until there is a record.
    let wait = fetch_request("t", 0, 0).with_max_wait_ms(i32::MAX);
    client.send_request(11, &wait);
    let mut writer = client.another();
    let frames = framed(&many_topics()).repeat(REQUESTS);
    let writer = thread::spawn(move || writer.write(&frames));
    broker.hear("no further request is read");
    assert_eq!(broker.connect().produce("t", 0, batch(1, 1)).0, 0);
    client.response::<FetchRequest>(11);
    for _ in 0..REQUESTS {
        let frame = client.receive().expect("an answer");
        assert!(frame.len() > 1_000_000);
    }
    writer.join().unwrap();
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_reader_that_stops_takes_no_memory_for_records() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    for _ in 0..60 {
        assert_eq!(client.produce("t", 0, batch(1, 1_000_000)).0, 0);
    }
    let mut request = fetch_request("t", 0, 0).with_max_bytes(i32::MAX);
    request.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    let frame = encoded(11, &request);
    let before = broker.peak_bytes();
    let silent: Vec<_> = (0..100)
        .map(|_| {
            let mut client = broker.connect();
            for _ in 0..64 {
                client.send(&frame);
            }
            client
        })
        .collect();
    broker.connect().behave();
    assert!(broker.peak_bytes() < before + MEMORY_MAX);
    drop(silent);
    broker.end_well(before + MEMORY_MAX);
}

#[test]
fn a_fetch_of_a_million_partitions_is_answered() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let mut request = fetch_request("t", 0, 0).with_max_wait_ms(10);
    request.topics[0].partitions = vec![FetchPartition::default(); 1_000_000];
    let response = client.ask(4, &request);
    assert_eq!(response.responses[0].partitions.len(), 1_000_000);
    broker.end_well(2 * ELEMENTS_MEMORY_MAX);
}

#[test]
fn a_length_that_nothing_follows_keeps_no_memory_from_others() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let announced = (100_i32 << 20).to_be_bytes();
    let silent: Vec<_> = (0..50)
        .map(|_| {
            let mut client = broker.connect();
            client.write(&announced);
            client
        })
        .collect();
    let producers: Vec<_> = (0..4)
        .map(|_| {
            let at = broker.address;
            thread::spawn(move || Client::connect(at).produce("t", 0, batch(1, 900_000)).0)
        })
        .collect();
    for producer in producers {
        assert_eq!(producer.join().unwrap(), 0);
    }
    drop(silent);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn requests_that_stop_half_way_leave_memory_for_one_after_the_other() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    // The third request does not fit.
    let stopped = [(); 3].map(|()| {
        let mut client = broker.connect();
        client.write(&(100_i32 << 20).to_be_bytes());
        client.write(&vec![0; 88 << 20]);
        client
    });
    broker.connect().behave();
    for _ in 0..3 {
        assert_eq!(client.produce("t", 0, batch(1, 900_000)).0, 0);
    }
    stopped.iter().for_each(Client::finish);
    broker.end_well(1 << 30);
}

#[test]
fn a_large_fetch_does_not_wait_for_long() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let mut request = fetch_request("t", 0, 0).with_max_wait_ms(i32::MAX);
    request.topics[0].partitions = vec![FetchPartition::default(); 20_000];
    let response = client.ask(4, &request);
    assert_eq!(response.responses[0].partitions.len(), 20_000);
    broker.end_well(ELEMENTS_MEMORY_MAX);
}

#[test]
fn a_commit_of_a_million_offsets_is_refused_before_they_are_copied() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![OffsetCommitRequestPartition::default(); 1_000_000]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(GroupId("g".into()))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let response = client.ask(6, &commit);
    assert_eq!(response.topics[0].partitions[999_999].error_code, 28);
    broker.end_well(ELEMENTS_MEMORY_MAX / 2);
}

#[test]
fn producers_that_send_more_than_there_is_memory_for_have_to_wait() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let large = Bytes::from(vec![0; 60 << 20]);
    let producers: Vec<_> = (0..8)
        .map(|_| {
            let (at, large) = (broker.address, large.clone());
            thread::spawn(move || {
                let mut client = Client::connect(at);
                client.produce("t", 0, large.to_vec()).0
            })
        })
        .collect();
    for producer in producers {
        assert_eq!(producer.join().unwrap(), 10, "MESSAGE_TOO_LARGE");
    }
    broker.end_well(1 << 30);
}

#[test]
fn what_administrators_ask_for_many_times_is_described_once() {
    const COUNT: usize = 300_000;
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    // If every duplicate were answered, it would take some GB.
    for (kind, name) in [(2, "t"), (4, "1")] {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(name.into())
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![resource; COUNT])
            .with_include_synonyms(true);
        assert_eq!(client.ask(4, &request).results.len(), 1);
    }
    let groups = vec![GroupId("g".into()); COUNT];
    let request = DescribeGroupsRequest::default().with_groups(groups);
    assert_eq!(client.ask(5, &request).groups.len(), 1);
    let topic = DescribableLogDirTopic::default()
        .with_topic(topic_name("t"))
        .with_partitions(vec![0; COUNT]);
    let request = DescribeLogDirsRequest::default().with_topics(Some(vec![topic]));
    let response = client.ask(4, &request);
    assert_eq!(response.results[0].topics[0].partitions.len(), 1);
    broker.end_well(4 * MEMORY_MAX);
}
