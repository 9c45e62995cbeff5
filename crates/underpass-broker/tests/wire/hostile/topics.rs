//! CreateTopics and DeleteTopics that contradict themselves, and epochs in ListOffsets.

use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, ListOffsetsRequest, MetadataRequest,
};

use crate::MEMORY_MAX;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, encoded, framed, topic_name};

const INVALID_PARTITIONS: i16 = 37;
const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;
const FENCED_LEADER_EPOCH: i16 = 74;
const UNKNOWN_LEADER_EPOCH: i16 = 75;
const UNKNOWN_TOPIC_ID: i16 = 100;

/// A topic with assigned replicas: partitions, and the brokers of each.
fn assigned(name: &str, partitions: &[(i32, &[i32])]) -> CreatableTopic {
    let assignments = partitions.iter().map(|(number, brokers)| {
        let brokers = brokers.iter().map(|id| BrokerId(*id));
        CreatableReplicaAssignment::default()
            .with_partition_index(*number)
            .with_broker_ids(brokers.collect())
    });
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_assignments(assignments.collect())
}

fn configured(name: &str, configs: &[(&'static str, Option<&'static str>)]) -> CreatableTopic {
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name((*name).into())
            .with_value(value.map(Into::into))
    });
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(configs.collect())
}

fn create(client: &mut Client, topic: CreatableTopic) -> CreatableTopicResult {
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    client.ask(7, &request).topics.remove(0)
}

#[test]
fn assignments_have_to_be_possible() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    for (partitions, code) in [
        (&[(0, &[2][..])][..], INVALID_REPLICA_ASSIGNMENT),
        (&[(0, &[1, 2])], INVALID_REPLICA_ASSIGNMENT),
        (&[(0, &[1, 1])], INVALID_REPLICA_ASSIGNMENT),
        (&[(0, &[])], INVALID_REPLICA_ASSIGNMENT),
        (&[(0, &[1]), (0, &[1])], INVALID_REPLICA_ASSIGNMENT),
        (&[(0, &[1]), (2, &[1])], INVALID_REPLICA_ASSIGNMENT),
        (&[(1, &[1])], INVALID_REPLICA_ASSIGNMENT),
        (&[(-1, &[1])], INVALID_REPLICA_ASSIGNMENT),
        (&[(i32::MAX, &[1])], INVALID_REPLICA_ASSIGNMENT),
        (&[(1, &[1]), (0, &[1])], 0),
    ] {
        let created = create(&mut client, assigned("t", partitions));
        assert_eq!(created.error_code, code, "{partitions:?}: {created:?}");
        assert_eq!(created.error_message.is_some(), code != 0, "{created:?}");
    }
    let one = || assigned("u", &[(0, &[1])]);
    for topic in [
        one().with_num_partitions(1),
        one().with_replication_factor(1),
    ] {
        assert_eq!(create(&mut client, topic).error_code, INVALID_REQUEST);
    }
    let none = assigned("u", &[]).with_num_partitions(0);
    assert_eq!(create(&mut client, none).error_code, INVALID_PARTITIONS);
    let listed = client.ask(1, &MetadataRequest::default().with_topics(None));
    assert_eq!(listed.topics.len(), 1, "{listed:?}");
    assert_eq!(listed.topics[0].partitions.len(), 2);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn created_topics_are_returned_with_all_their_configurations() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let harmless = [
        ("preallocate", Some("false")),
        ("segment.jitter.ms", Some("0")),
        ("delete.retention.ms", Some("1000")),
        ("unclean.leader.election.enable", Some("true")),
        ("retention.ms", Some("5000")),
    ];
    let topic = configured("t", &harmless);
    for validate_only in [true, false] {
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic.clone()])
            .with_validate_only(validate_only);
        let created = &client.ask(7, &request).topics[0];
        assert_eq!(created.error_code, 0, "{created:?}");
        let configs = created.configs.as_ref().unwrap();
        assert_eq!(configs.len(), 33);
        let of = |name: &str| {
            let found = configs.iter().find(|config| &*config.name == name).unwrap();
            (found.value.as_deref().unwrap(), found.config_source)
        };
        assert_eq!(of("retention.ms"), ("5000", 1));
        assert_eq!(of("preallocate"), ("false", 1));
        assert_eq!(of("segment.bytes"), ("1073741824", 5));
        assert_eq!(of("min.insync.replicas"), ("1", 5));
    }
    for (name, value, word) in [
        ("retention.ms", None, "null"),
        ("preallocate", Some("true"), "preallocate=true"),
        ("compression.type", Some("zstd"), "compression.type=zstd"),
        ("cleanup.policy", Some("compacted"), "delete, compact"),
        ("nonsense", Some("1"), "nonsense"),
    ] {
        let created = create(&mut client, configured("u", &[(name, value)]));
        assert_eq!(created.error_code, INVALID_CONFIG, "{name}: {created:?}");
        let message = created.error_message.unwrap();
        assert!(
            message.contains(name) && message.contains(word),
            "{message}"
        );
        assert!(created.configs.is_none_or(|configs| configs.is_empty()));
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn topics_are_deleted_by_their_name_or_their_id() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let ids =
        ["a", "b", "c", "gone"].map(|name| create(&mut client, configured(name, &[])).topic_id);
    let by_name = |name: &str| DeleteTopicState::default().with_name(Some(topic_name(name)));
    let by_id = |id| {
        DeleteTopicState::default()
            .with_name(None)
            .with_topic_id(id)
    };
    let mut delete = |topics: Vec<DeleteTopicState>| {
        let request = DeleteTopicsRequest::default().with_topics(topics);
        let responses = client.ask(6, &request).responses;
        Vec::from_iter(responses.iter().map(|deleted| deleted.error_code))
    };
    assert_eq!(delete(vec![by_name("gone")]), [0]);
    let neither = DeleteTopicState::default().with_name(None);
    for (topics, codes) in [
        (
            vec![by_name("a").with_topic_id(ids[0])],
            &[INVALID_REQUEST][..],
        ),
        (vec![by_name("a").with_topic_id(ids[1])], &[INVALID_REQUEST]),
        (vec![by_name("a").with_topic_id(ids[3])], &[INVALID_REQUEST]),
        (vec![neither], &[INVALID_REQUEST]),
        (vec![by_id(ids[0]), by_id(ids[0])], &[INVALID_REQUEST]),
        (vec![by_name("a"), by_name("a")], &[INVALID_REQUEST]),
        (vec![by_name("a"), by_id(ids[0])], &[INVALID_REQUEST; 2]),
        (vec![by_id(ids[3])], &[UNKNOWN_TOPIC_ID]),
        (vec![by_name("a"), by_id(ids[1])], &[0, 0]),
    ] {
        assert_eq!(delete(topics.clone()), codes, "{topics:?}");
    }
    let listed = client.ask(1, &MetadataRequest::default().with_topics(None));
    assert_eq!(listed.topics.len(), 1, "{listed:?}");
    assert_eq!(listed.topics[0].name, Some(topic_name("c")));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn offsets_are_listed_for_the_present_epoch_only() {
    let broker = BrokerProcess::start();
    broker.connect().create_topic("t");
    // An unclean end raises the epoch.
    let broker = BrokerProcess::start_in(broker.kill());
    let mut client = broker.connect();
    assert_eq!(
        client.produce("t", 0, crate::support::batch::batch(1, 1)).0,
        0
    );
    let mut ask = |epoch: i32, timestamp: i64| {
        let partition = ListOffsetsPartition::default()
            .with_current_leader_epoch(epoch)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = client
            .ask(7, &request)
            .topics
            .remove(0)
            .partitions
            .remove(0);
        (answer.error_code, answer.offset)
    };
    for timestamp in [-1, -2, -3, 0] {
        let (code, offset) = ask(-1, timestamp);
        assert_eq!(code, 0);
        assert_eq!(ask(1, timestamp), (0, offset));
        assert_eq!(ask(0, timestamp), (FENCED_LEADER_EPOCH, -1));
        assert_eq!(ask(2, timestamp), (UNKNOWN_LEADER_EPOCH, -1));
        assert_eq!(ask(i32::MAX, timestamp), (UNKNOWN_LEADER_EPOCH, -1));
    }
    broker.end_well(MEMORY_MAX);
}

/// librdkafka sends the requests of two refreshes at once, and gives up a topic that the second
/// response lacks.
#[test]
fn a_response_about_topics_is_not_older_than_the_one_before() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    for number in 0..20 {
        let name = topic_name(&format!("new-{number}"));
        let topic = MetadataRequestTopic::default().with_name(Some(name.clone()));
        let creating = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(true);
        let listing = MetadataRequest::default().with_topics(None);
        let both = [&creating, &listing].map(|request| framed(&encoded(9, request)));
        client.write(&both.concat());
        for _ in both {
            let response = client.response::<MetadataRequest>(9);
            let found = response
                .topics
                .iter()
                .find(|one| one.name.as_ref() == Some(&name));
            let found = found.expect("the topic");
            assert_eq!((found.error_code, found.partitions.len()), (0, 4));
        }
    }
    broker.end_well(MEMORY_MAX);
}
