//! Requests that contradict themselves or the protocol.

use bytes::Buf;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, FetchRequest,
    FindCoordinatorRequest, ListOffsetsRequest, MetadataRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProduceRequest,
};

use crate::MEMORY_MAX;
use crate::support::broker::BrokerProcess;
use crate::support::client::{encoded, produce_request, raw, raw_flexible, topic_name};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const INVALID_TOPIC_EXCEPTION: i16 = 17;
const UNSUPPORTED_VERSION: i16 = 35;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_REPLICATION_FACTOR: i16 = 38;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const METADATA: i16 = 3;
const OFFSET_FETCH: i16 = 9;
const JOIN_GROUP: i16 = 11;
const API_VERSIONS: i16 = 18;

/// Checks that an invalid request closes the connection, and that the log shows the reason.
#[track_caller]
fn assert_unreadable(broker: &BrokerProcess, frame: &[u8], why: &str) {
    let mut client = broker.connect();
    client.send(frame);
    client.expect_end();
    let line = broker.hear("cannot be read");
    assert!(line.contains(why), "{line}: expected {why:?}");
}

#[test]
fn unknown_requests_and_versions_end_the_connection_with_a_line_in_the_log() {
    let broker = BrokerProcess::start();
    for (key, version) in [
        (-1, 0),
        (4, 0),
        (99, 0),
        (i16::MAX, 0),
        (METADATA, -1),
        (METADATA, 14),
        (METADATA, i16::MAX),
        (PRODUCE, 2),
        (FETCH, 18),
    ] {
        let mut client = broker.connect();
        client.send(&raw(key, version, &[0; 20]));
        client.expect_end();
        broker.hear(&format!(" version {version} is not supported"));
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn api_versions_of_an_unknown_version_are_answered_in_version_0() {
    let broker = BrokerProcess::start();
    for version in [5, 99, i16::MAX, -1] {
        let mut client = broker.connect();
        client.send(&raw(API_VERSIONS, version, b"whatever"));
        let mut frame = client.receive().expect("a response");
        assert_eq!(
            (frame.get_i32(), frame.get_i16()),
            (77, UNSUPPORTED_VERSION)
        );
        let count = frame.get_i32();
        assert_eq!(frame.len(), count as usize * 6);
        // The client continues with a version from the response.
        client.ask(0, &ApiVersionsRequest::default());
        client.ask(3, &ApiVersionsRequest::default());
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn counts_are_not_believed() {
    let broker = BrokerProcess::start();
    for count in [i32::MAX, 1 << 20, 5, -2, i32::MIN] {
        let count = count.to_be_bytes();
        let why = ["a length is wrong", "cut off"];
        for (key, version, before) in [
            (METADATA, 1, &b""[..]),
            (PRODUCE, 3, &[0xff, 0xff, 0, 1, 0, 0, 0, 1]),
            (FETCH, 4, &[0; 17]),
            (OFFSET_FETCH, 1, b"\0\x01g"),
            (JOIN_GROUP, 0, b"\0\x01g\0\0\x27\x10\0\0\0\x01c"),
        ] {
            let mut client = broker.connect();
            client.send(&raw(key, version, &[before, &count, &[0; 3]].concat()));
            client.expect_end();
            let line = broker.hear("cannot be read");
            assert!(why.iter().any(|why| line.contains(why)), "{line}");
        }
    }
    // As many elements as bytes, each of which is larger in memory.
    let many = 2 << 20;
    let body = [&(many as i32).to_be_bytes()[..], &vec![0; many + 1]].concat();
    assert_unreadable(&broker, &raw(METADATA, 1, &body), "too many elements");
    broker.end_well(MEMORY_MAX);
}

#[test]
fn numbers_of_variable_length_end() {
    let broker = BrokerProcess::start();
    for (body, why) in [
        (&[0xff; 5][..], "too long"),
        (&[0xff; 200], "too long"),
        (&[0x80; 40], "too long"),
        // 2^32 and larger.
        (&[0xff, 0xff, 0xff, 0xff, 0x1f], "too long"),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], "a length is wrong"),
        (&[0x80], "cut off"),
    ] {
        assert_unreadable(&broker, &raw_flexible(METADATA, 9, body), why);
        // In the header.
        let frame = raw(METADATA, 9, body);
        let mut client = broker.connect();
        client.send(&frame);
        client.expect_end();
        broker.hear("cannot be read");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn tagged_fields_have_the_size_that_they_claim() {
    let broker = BrokerProcess::start();
    // No topics, three booleans, and then tagged fields.
    let metadata = |tagged: &[u8]| raw_flexible(METADATA, 9, &[b"\x01\x01\0\0", tagged].concat());
    for (tagged, why) in [
        (&b"\x01\x07\x05abc"[..], "cut off"),
        (b"\x01\x07\xff\xff\xff\xff\x0f", "a length is wrong"),
        (b"\x02\x07\x01a", "cut off"),
        (b"\xff\xff\xff\xff\x0f", "cut off"),
    ] {
        assert_unreadable(&broker, &metadata(tagged), why);
    }
    let mut client = broker.connect();
    // Bytes after the message are ignored, as by Kafka.
    client.send(&metadata(b"\x02\x07\x03abc\xff\xff\xff\xff\x0f\0rest"));
    client.response::<MetadataRequest>(9);
    // A known field (the cluster ID of Fetch) whose size does not match its content.
    let fetch = |tagged: &[u8]| {
        let before = [&[0; 25][..], &[1, 1, 1], tagged].concat();
        raw_flexible(FETCH, 12, &before)
    };
    for (tagged, why) in [
        (&b"\x01\0\x09\x04abcrest!"[..], "bytes behind"),
        (b"\x01\0\x02\x04abc", "a length is wrong"),
        (b"\x01\0\0", "cut off"),
    ] {
        assert_unreadable(&broker, &fetch(tagged), why);
    }
    let many = [b"\x01\x07\x81\x80\x08".to_vec(), vec![0; 131_073]].concat();
    assert_unreadable(&broker, &metadata(&many), "a length is wrong");
    broker.end_well(MEMORY_MAX);
}

#[test]
fn null_is_nothing_where_something_has_to_be() {
    let broker = BrokerProcess::start();
    let null = "null that must not be";
    // Produce without topics; Fetch with topics of no partitions; JoinGroup without a group.
    let produce = [0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    assert_unreadable(&broker, &raw(PRODUCE, 3, &produce), null);
    let fetch = [&[0; 20][..], &[1], b"\0\x01t", &[0xff; 4]].concat();
    assert_unreadable(&broker, &raw(FETCH, 4, &fetch), null);
    assert_unreadable(&broker, &raw(JOIN_GROUP, 0, &[0xff; 20]), null);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn names_that_are_no_text_end_the_connection() {
    let broker = BrokerProcess::start();
    let named = |name: &[u8]| {
        let length = (name.len() as i16).to_be_bytes();
        raw(METADATA, 1, &[&[0, 0, 0, 1], &length[..], name].concat())
    };
    let compact = |name: &[u8]| {
        let length = name.len() as u8 + 1;
        raw_flexible(METADATA, 9, &[&[2, length], name, &[0; 9]].concat())
    };
    for name in [&b"\xff"[..], b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf"] {
        assert_unreadable(&broker, &named(name), "not UTF-8");
        assert_unreadable(&broker, &compact(name), "not UTF-8");
        // The client ID.
        let length = (name.len() as i16).to_be_bytes();
        let head = [&[0, 3, 0, 1, 0, 0, 0, 77], &length[..], name].concat();
        assert_unreadable(&broker, &[&head[..], &[0; 9]].concat(), "not UTF-8");
    }
    broker.end_well(MEMORY_MAX);
}

/// Invalid topic names.
fn bad_names() -> Vec<String> {
    let names = [
        "",
        ".",
        "..",
        "/",
        "../x",
        "a/b",
        "a\\b",
        "a\0b",
        "\u{e4}",
        "a b",
        "a\nb",
        "\u{7f}",
        "\u{1b}[2J",
        "a:b",
        "%2e",
    ];
    let names = names.iter().map(ToString::to_string);
    let long = [250, 300, 30_000].map(|length| "x".repeat(length));
    names.chain(long).collect()
}

#[test]
fn no_topic_is_made_under_a_name_that_none_may_have() {
    let broker = BrokerProcess::start();
    for name in bad_names() {
        let mut client = broker.connect();
        let topic = MetadataRequestTopic::default().with_name(Some(topic_name(&name)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(true);
        let answer = client.ask(9, &request);
        assert_eq!(
            answer.topics[0].error_code, INVALID_TOPIC_EXCEPTION,
            "{name:?}"
        );
        let topic = CreatableTopic::default()
            .with_name(topic_name(&name))
            .with_num_partitions(1)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]);
        let answer = client.ask(5, &request);
        assert_eq!(
            answer.topics[0].error_code, INVALID_TOPIC_EXCEPTION,
            "{name:?}"
        );
        let request = DeleteTopicsRequest::default().with_topic_names(vec![topic_name(&name)]);
        let answer = client.ask(5, &request);
        let code = answer.responses[0].error_code;
        assert_eq!(code, UNKNOWN_TOPIC_OR_PARTITION, "{name:?}");
        let (code, _) = client.produce(&name, 0, crate::support::batch::batch(1, 1));
        assert_eq!(code, UNKNOWN_TOPIC_OR_PARTITION, "{name:?}");
        let fetched = client.fetch(&name, 0, 0);
        let code = fetched.responses[0].partitions[0].error_code;
        assert_eq!(code, UNKNOWN_TOPIC_OR_PARTITION, "{name:?}");
    }
    let folder = broker.stop();
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut entries = entries.map(|entry| entry.unwrap());
    assert!(entries.all(|entry| entry.file_type().unwrap().is_file()));
}

#[test]
fn names_at_the_limits_are_those_of_topics() {
    let longest = "x".repeat(249);
    let names = [&*longest, "...", "-", "_"];
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    for name in names {
        client.create_topic(name);
        let (code, _) = client.produce(name, 0, crate::support::batch::batch(1, 1));
        assert_eq!(code, 0, "{name}");
    }
    let broker = BrokerProcess::start_in(broker.stop());
    let mut client = broker.connect();
    for name in names {
        let fetched = client.fetch(name, 0, 0);
        assert_eq!(fetched.responses[0].partitions[0].high_watermark, 1);
    }
    for name in names {
        let request = DeleteTopicsRequest::default().with_topic_names(vec![topic_name(name)]);
        assert_eq!(client.ask(5, &request).responses[0].error_code, 0, "{name}");
    }
    let broker = BrokerProcess::start_in(broker.stop());
    let answer = broker
        .connect()
        .ask(1, &MetadataRequest::default().with_topics(None));
    assert!(answer.topics.is_empty(), "{:?}", answer.topics);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn requests_for_nothing_are_answered_with_nothing() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let metadata = MetadataRequest::default().with_topics(Some(Vec::new()));
    assert_eq!(client.ask(1, &metadata).topics.len(), 0);
    assert_eq!(client.ask(0, &metadata).topics.len(), 1, "all of them");
    for version in [3, 9] {
        let produced = client.ask(version, &ProduceRequest::default().with_acks(-1));
        assert_eq!(produced.responses.len(), 0);
        // This request gets no response.
        client.send_request(version, &ProduceRequest::default());
    }
    let fetch = FetchRequest::default()
        .with_max_wait_ms(i32::MAX)
        .with_min_bytes(1);
    for version in [4, 11, 13] {
        assert_eq!(client.ask(version, &fetch).responses.len(), 0);
    }
    let lists = ListOffsetsRequest::default();
    assert_eq!(client.ask(1, &lists).topics.len(), 0);
    let ends = OffsetForLeaderEpochRequest::default();
    assert_eq!(client.ask(3, &ends).topics.len(), 0);
    let created = client.ask(5, &CreateTopicsRequest::default());
    assert_eq!(created.topics.len(), 0);
    let deleted = client.ask(5, &DeleteTopicsRequest::default());
    assert_eq!(deleted.responses.len(), 0);
    let found = client.ask(4, &FindCoordinatorRequest::default());
    assert_eq!(found.coordinators.len(), 0);
    let fetched = client.ask(8, &OffsetFetchRequest::default());
    assert_eq!(fetched.groups.len(), 0);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_partition_that_is_named_twice_has_an_answer_each_time() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let asked = MetadataRequestTopic::default().with_name(Some(topic_name("twice")));
    let request = MetadataRequest::default().with_topics(Some(vec![asked; 2]));
    assert_eq!(client.ask(9, &request).topics.len(), 1);
    let batch = || Some(crate::support::batch::batch(1, 1));
    let request = produce_request(-1, &[("twice", 0, batch()), ("twice", 0, batch())]);
    let produced = client.ask(9, &request);
    let offsets = produced.responses.iter().map(|topic| {
        let partition = &topic.partition_responses[0];
        (partition.error_code, partition.base_offset)
    });
    assert_eq!(Vec::from_iter(offsets), [(0, 0), (0, 1)]);
    let request = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("twice"); 2]);
    let deleted = client.ask(5, &request);
    // A duplicate is rejected once, as by Kafka.
    let codes = deleted.responses.iter().map(|it| it.error_code);
    assert_eq!(Vec::from_iter(codes), [INVALID_REQUEST]);
    let topic = CreatableTopic::default()
        .with_name(topic_name("again"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![topic; 2]);
    let created = client.ask(5, &request);
    let codes = created.topics.iter().map(|it| it.error_code);
    assert_eq!(Vec::from_iter(codes), [INVALID_REQUEST]);
    let listed = client.ask(1, &MetadataRequest::default().with_topics(None));
    let names = listed.topics.iter().map(|it| it.name.clone().unwrap());
    assert_eq!(Vec::from_iter(names), [topic_name("twice")]);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn whatever_is_in_the_body_of_api_versions_the_versions_are_the_answer() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    for version in 0..=4 {
        for body in [&b""[..], &[0xff; 40], &[0; 3], b"\x7fx", b"\x02\xff\x01\0"] {
            let frame = match version {
                ..3 => raw(API_VERSIONS, version, body),
                _ => raw_flexible(API_VERSIONS, version, body),
            };
            client.send(&frame);
            let answer = client.response::<ApiVersionsRequest>(version);
            assert_eq!((answer.error_code, answer.api_keys.len()), (0, 38));
        }
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn topics_that_cannot_be_are_refused() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let mut create = |partitions: i32, replicas: i16, config: Option<(&str, &str)>| {
        let config = config.map(|(name, value)| {
            kafka_protocol::messages::create_topics_request::CreatableTopicConfig::default()
                .with_name(name.to_owned().into())
                .with_value(Some(value.to_owned().into()))
        });
        let topic = CreatableTopic::default()
            .with_name(topic_name("t"))
            .with_num_partitions(partitions)
            .with_replication_factor(replicas)
            .with_configs(config.into_iter().collect());
        let request = CreateTopicsRequest::default().with_topics(vec![topic]);
        client.ask(5, &request).topics[0].error_code
    };
    for partitions in [0, -2, i32::MIN, 10_001, i32::MAX] {
        assert_eq!(
            create(partitions, 1, None),
            INVALID_PARTITIONS,
            "{partitions}"
        );
    }
    assert_eq!(create(1, 0, None), INVALID_REPLICATION_FACTOR);
    assert_eq!(create(1, -2, None), INVALID_REPLICATION_FACTOR);
    for config in [
        ("retention.ms", "-2"),
        ("segment.bytes", "1"),
        ("segment.bytes", "99999999999999999999"),
        ("max.message.bytes", "-1"),
        ("no.such.thing", "1"),
        ("", ""),
    ] {
        assert_eq!(create(1, 1, Some(config)), INVALID_CONFIG, "{config:?}");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn partitions_that_are_not_there_have_no_offsets() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    for partition in [-1, 4, i32::MAX, i32::MIN] {
        let asked = ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_timestamp(-1);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = client.ask(5, &request);
        let code = answer.topics[0].partitions[0].error_code;
        assert_eq!(code, UNKNOWN_TOPIC_OR_PARTITION, "{partition}");
    }
    for timestamp in [0, 1, i64::MAX] {
        let asked = ListOffsetsPartition::default().with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = client.ask(5, &request);
        assert_eq!(answer.topics[0].partitions[0].offset, -1, "{timestamp}");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn timestamps_without_a_meaning_in_a_version_are_refused() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    client.produce("t", 0, crate::support::batch::batch(1, 1));
    let mut listed = |version: i16, timestamp: i64| {
        let asked = ListOffsetsPartition::default().with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = client.ask(version, &request);
        answer.topics[0].partitions[0].error_code
    };
    for (timestamp, first) in [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (0, 1)] {
        for version in 1..=10 {
            let code = if version < first {
                UNSUPPORTED_VERSION
            } else {
                0
            };
            assert_eq!(listed(version, timestamp), code, "{timestamp} in {version}");
        }
    }
    for timestamp in [-6, -7, i64::MIN] {
        assert_eq!(listed(10, timestamp), UNSUPPORTED_VERSION, "{timestamp}");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn bytes_of_every_kind_in_every_version_leave_the_broker_as_it_was() {
    let broker = BrokerProcess::start();
    let mut cases = underpass_testkit::SeededRandom::new(7);
    let good = encoded(9, &MetadataRequest::default());
    for key in (0..50).chain(55..80) {
        for version in 0..14 {
            let mut client = broker.connect();
            let length = cases.below(60) as usize;
            let body: Vec<u8> = (0..length).map(|_| cases.below(256) as u8).collect();
            client.send(&raw(key, version, &body));
            // Depending on the bytes, the broker responds or closes the connection.
            client.send_or_end(&good);
            client.finish();
            while client.receive().is_some() {}
        }
    }
    broker.end_well(MEMORY_MAX);
}
