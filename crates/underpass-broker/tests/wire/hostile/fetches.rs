//! Fetches that ask for missing data, for too much, or wait for too long.

use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest, MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, fetch_request};
use crate::{MEMORY_MAX, create};

const NONE: i16 = 0;
const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const FENCED_LEADER_EPOCH: i16 = 74;
const UNKNOWN_LEADER_EPOCH: i16 = 75;
const UNKNOWN_TOPIC_ID: i16 = 100;

fn started() -> (BrokerProcess, Client) {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    for _ in 0..10 {
        assert_eq!(client.produce("t", 0, batch(10, 1000)).0, NONE);
    }
    (broker, client)
}

/// Returns the error and the number of record bytes of the first partition of a response.
fn fetched(client: &mut Client, version: i16, request: &FetchRequest) -> (i16, usize) {
    let response = client.ask(version, request);
    let partition = &response.responses[0].partitions[0];
    let records = partition
        .records
        .as_ref()
        .map_or(0, |records| records.len());
    (partition.error_code, records)
}

#[test]
fn offsets_that_are_not_there_are_out_of_range() {
    let (broker, mut client) = started();
    for offset in [-1, i64::MIN, 101, i64::MAX] {
        let mut request = fetch_request("t", 0, offset);
        // An error is returned without waiting.
        request.max_wait_ms = i32::MAX;
        assert_eq!(
            fetched(&mut client, 11, &request),
            (OFFSET_OUT_OF_RANGE, 0),
            "{offset}"
        );
    }
    assert_eq!(
        fetched(&mut client, 11, &fetch_request("t", 0, 100)),
        (NONE, 0)
    );
    for partition in [-1, 4, i32::MAX, i32::MIN] {
        let request = fetch_request("t", partition, 0);
        let answer = fetched(&mut client, 11, &request);
        assert_eq!(answer, (UNKNOWN_TOPIC_OR_PARTITION, 0), "{partition}");
    }
    for (epoch, expected) in [
        (i32::MAX, UNKNOWN_LEADER_EPOCH),
        (i32::MIN, NONE),
        (-1, NONE),
    ] {
        let mut request = fetch_request("t", 0, 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        assert_eq!(fetched(&mut client, 11, &request).0, expected, "{epoch}");
    }
    // An epoch becomes outdated at the next start after a crash.
    let mut request = fetch_request("t", 0, 0);
    request.topics[0].partitions[0].current_leader_epoch = 0;
    assert_ne!(fetched(&mut client, 11, &request).0, FENCED_LEADER_EPOCH);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn topics_by_their_ids_are_known_or_not() {
    let (broker, mut client) = started();
    let described = client.ask(12, &MetadataRequest::default().with_topics(None));
    let id = described.topics[0].topic_id;
    let mut request = fetch_request("t", 0, 0);
    assert_eq!(
        fetched(&mut client, 13, &request),
        (UNKNOWN_TOPIC_ID, 0),
        "no id"
    );
    request.topics[0].topic_id = id;
    assert_eq!(fetched(&mut client, 13, &request).0, NONE);
    request.topics[0].partitions[0].partition = 4;
    assert_eq!(
        fetched(&mut client, 13, &request).0,
        UNKNOWN_TOPIC_OR_PARTITION
    );
    broker.end_well(MEMORY_MAX);
}

/// Makes partitions with ten batches, with two and with none. Returns each with the records from a
/// fetch offset on and the end offset.
fn three_partitions(client: &mut Client) -> [(FetchPartition, Vec<u8>, i64); 3] {
    [(0, 10, 53), (1, 2, 0), (2, 0, 0)].map(|(partition, batches, from)| {
        let (mut expected, mut end) = (Vec::new(), 0);
        for _ in 0..batches {
            let mut batch = batch(10, 300);
            let placed = client.produce("three", partition, batch.clone());
            assert_eq!(placed, (NONE, end));
            // The broker sets the offset and the epoch.
            batch[..8].copy_from_slice(&end.to_be_bytes());
            batch[12..16].copy_from_slice(&0i32.to_be_bytes());
            end += 10;
            if end > from {
                expected.extend(batch);
            }
        }
        let asked = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(from)
            .with_partition_max_bytes(1 << 20);
        (asked, expected, end)
    })
}

#[test]
fn every_version_says_of_no_one_and_three_partitions_what_another_implementation_reads() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("three");
    let described = client.ask(12, &MetadataRequest::default().with_topics(None));
    let id = described.topics[0].topic_id;
    let all = three_partitions(&mut client);
    for version in 4..=17 {
        for chosen in [&[][..], &all[..1], &all[1..2], &all[2..], &all[..]] {
            let partitions = chosen.iter().map(|(asked, ..)| asked.clone());
            let mut request = fetch_request("three", 0, 0);
            request.topics[0].partitions = partitions.collect();
            if version >= 13 {
                request.topics[0].topic = Default::default();
                request.topics[0].topic_id = id;
            }
            let response = client.ask(version, &request);
            assert_eq!((response.error_code, response.session_id), (NONE, 0));
            let topic = match &response.responses[..] {
                [] if chosen.is_empty() => continue,
                [topic] => topic,
                _ => panic!("version {version}: {response:?}"),
            };
            let wanted = &request.topics[0];
            assert_eq!(
                (&topic.topic, topic.topic_id),
                (&wanted.topic, wanted.topic_id)
            );
            assert_eq!(topic.partitions.len(), chosen.len());
            for (found, (asked, expected, end)) in topic.partitions.iter().zip(chosen) {
                let what = format!("version {version}, partition {}", asked.partition);
                assert_eq!(found.partition_index, asked.partition, "{what}");
                assert_eq!(
                    (found.error_code, found.high_watermark),
                    (NONE, *end),
                    "{what}"
                );
                assert_eq!(found.last_stable_offset, *end, "{what}");
                assert_eq!(
                    found.log_start_offset,
                    if version < 5 { -1 } else { 0 },
                    "{what}"
                );
                assert!(
                    found.records.as_deref().unwrap_or_default() == expected,
                    "{what}"
                );
            }
        }
        let nothing = fetch_request("three", 0, 0).with_topics(Vec::new());
        let response = client.ask(version, &nothing);
        assert_eq!((response.error_code, response.responses.len()), (NONE, 0));
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn sizes_and_times_of_all_values_are_bounds() {
    let (broker, mut client) = started();
    for max in [i32::MIN, -1, 0, 1, i32::MAX] {
        let mut request = fetch_request("t", 0, 0);
        (request.max_bytes, request.min_bytes) = (max, max);
        request.topics[0].partitions[0].partition_max_bytes = max;
        let (code, bytes) = fetched(&mut client, 11, &request);
        // One batch is always returned, so that the consumer makes progress.
        let expected = match max {
            i32::MAX => 10 * batch(10, 1000).len(),
            _ => batch(10, 1000).len(),
        };
        assert_eq!((code, bytes), (NONE, expected), "{max}");
    }
    let mut request = fetch_request("t", 0, 100);
    request.max_wait_ms = i32::MIN;
    request.min_bytes = i32::MAX;
    assert_eq!(fetched(&mut client, 11, &request), (NONE, 0));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_fetch_that_waits_for_weeks_ends_with_a_record() {
    let (broker, mut client) = started();
    let mut request = fetch_request("t", 0, 100);
    request.max_wait_ms = i32::MAX;
    client.send_request(11, &request);
    assert_eq!(broker.connect().produce("t", 0, batch(1, 10)).0, NONE);
    let response = client.response::<FetchRequest>(11);
    assert_eq!(response.responses[0].partitions[0].high_watermark, 101);
    // A fetch that waits forever ends with the broker.
    client.send_request(11, &request.with_min_bytes(i32::MAX));
    broker.end_well(MEMORY_MAX);
}

/// The last file has more records, and the other partitions get none.
#[test]
fn a_fetch_does_not_wait_at_the_end_of_a_file_nor_for_more_than_it_may_have() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 1, &[("segment.bytes", "1048576")]);
    for _ in 0..3 {
        assert_eq!(client.produce("t", 0, batch(1, 600_000)).0, NONE);
    }
    let size = batch(1, 600_000).len();
    let mut request = fetch_request("t", 0, 0);
    request.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    (request.max_bytes, request.max_wait_ms) = (i32::MAX, i32::MAX);
    request.min_bytes = 10_000_000;
    for offset in 0..2 {
        request.topics[0].partitions[0].fetch_offset = offset;
        assert_eq!(fetched(&mut client, 11, &request), (NONE, size), "{offset}");
    }
    (request.max_bytes, request.min_bytes) = (600_000, i32::MAX);
    assert_eq!(fetched(&mut client, 11, &request), (NONE, size));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_fetch_that_waits_learns_that_its_topic_is_deleted() {
    let (broker, mut client) = started();
    let mut request = fetch_request("t", 0, 100);
    request.max_wait_ms = i32::MAX;
    client.send_request(11, &request);
    let names = vec![TopicName(StrBytes::from_static_str("t"))];
    let delete = DeleteTopicsRequest::default().with_topic_names(names);
    let deleted = broker.connect().ask(5, &delete);
    assert_eq!(deleted.responses[0].error_code, NONE);
    let response = client.response::<FetchRequest>(11);
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, UNKNOWN_TOPIC_OR_PARTITION);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_partition_that_is_asked_for_many_times_is_sent_within_the_limit() {
    let (broker, mut client) = started();
    let mut request = fetch_request("t", 0, 0).with_max_bytes(100_000);
    let partition = FetchPartition::default().with_partition_max_bytes(i32::MAX);
    request.topics[0].partitions = vec![partition; 10_000];
    let response = client.ask(11, &request);
    let partitions = &response.responses[0].partitions;
    let records = partitions.iter().flat_map(|one| &one.records);
    let bytes: usize = records.map(|records| records.len()).sum();
    assert_eq!((partitions.len(), bytes), (10_000, 100_000));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_reader_may_be_cut_off_in_the_midst_of_a_response() {
    let (broker, mut client) = started();
    for _ in 0..30 {
        assert_eq!(client.produce("t", 1, batch(1, 1_000_000)).0, NONE);
    }
    let mut request = fetch_request("t", 1, 0).with_max_bytes(i32::MAX);
    request.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    for number in 0..20 {
        let mut client = broker.connect();
        client.send_request(11, &request);
        client.read_some(number * 10_000);
    }
    broker.end_well(MEMORY_MAX);
}
