//! Invalid batches, and batches out of order.

use std::time::{SystemTime, UNIX_EPOCH};

use kafka_protocol::messages::ProduceRequest;

use super::started;
use crate::MEMORY_MAX;
use crate::support::batch::{
    ATTRIBUTES, BASE_OFFSET, BASE_TIMESTAMP, COUNT, CRC, LAST_OFFSET_DELTA, LENGTH, MAGIC,
    PRODUCER_EPOCH, PRODUCER_ID, RECORDS, batch, batch_of, changed, old_message, put, seal,
};
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, produce_request};

const NONE: i16 = 0;
const CORRUPT_MESSAGE: i16 = 2;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const MESSAGE_TOO_LARGE: i16 = 10;
const INVALID_REQUIRED_ACKS: i16 = 21;
const INVALID_TIMESTAMP: i16 = 32;
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const INVALID_PRODUCER_EPOCH: i16 = 47;
const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
const INVALID_RECORD: i16 = 87;

/// Checks that no rejected batch is in the log.
#[track_caller]
fn assert_empty(client: &mut Client) {
    let fetched = client.fetch("t", 0, 0);
    let partition = &fetched.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (NONE, 0));
}

#[test]
fn batches_that_contradict_themselves_are_refused_with_the_errors_of_kafka() {
    let (broker, mut client) = started();
    let two = [batch(1, 10), batch(1, 10)].concat();
    let cut = batch(3, 10);
    let cut = cut[..cut.len() - 1].to_vec();
    for (what, bytes, expected) in [
        ("checksum", changed(CRC, &[1, 2, 3, 4]), CORRUPT_MESSAGE),
        ("magic 0", changed(MAGIC, &[0]), INVALID_RECORD),
        ("magic 1", changed(MAGIC, &[1]), INVALID_RECORD),
        ("magic 3", changed(MAGIC, &[3]), CORRUPT_MESSAGE),
        ("magic -1", changed(MAGIC, &[0xff]), CORRUPT_MESSAGE),
        ("a message of format 0", old_message(0), INVALID_RECORD),
        ("a message of format 1", old_message(1), INVALID_RECORD),
        (
            "longer",
            changed(LENGTH, &500i32.to_be_bytes()),
            INVALID_RECORD,
        ),
        (
            "shorter",
            changed(LENGTH, &60i32.to_be_bytes()),
            INVALID_RECORD,
        ),
        (
            "no length",
            changed(LENGTH, &0i32.to_be_bytes()),
            CORRUPT_MESSAGE,
        ),
        ("length -1", changed(LENGTH, &[0xff; 4]), CORRUPT_MESSAGE),
        (
            "length 2^31-1",
            changed(LENGTH, &i32::MAX.to_be_bytes()),
            INVALID_RECORD,
        ),
        ("cut off", cut, INVALID_RECORD),
        ("two batches", two, INVALID_RECORD),
        ("nothing", Vec::new(), INVALID_RECORD),
        ("one byte", vec![0], INVALID_RECORD),
        (
            "base offset -1",
            changed(BASE_OFFSET, &[0xff; 8]),
            INVALID_RECORD,
        ),
        (
            "a smaller count",
            changed(COUNT, &2i32.to_be_bytes()),
            INVALID_RECORD,
        ),
        (
            "a larger count",
            changed(COUNT, &i32::MAX.to_be_bytes()),
            INVALID_RECORD,
        ),
        (
            "count 0",
            changed(COUNT, &0i32.to_be_bytes()),
            INVALID_RECORD,
        ),
        ("count -1", changed(COUNT, &[0xff; 4]), INVALID_RECORD),
        (
            "delta -1",
            changed(LAST_OFFSET_DELTA, &[0xff; 4]),
            INVALID_RECORD,
        ),
        (
            "delta 2^31-1",
            changed(LAST_OFFSET_DELTA, &i32::MAX.to_be_bytes()),
            INVALID_RECORD,
        ),
        ("control", changed(ATTRIBUTES, &[0, 1 << 5]), INVALID_RECORD),
        (
            "an id without a sequence",
            changed(PRODUCER_ID, &[0; 8]),
            INVALID_RECORD,
        ),
    ] {
        let (code, offset) = client.produce("t", 0, bytes);
        assert_eq!((code, offset), (expected, -1), "{what}");
    }
    let response = client.ask(9, &produce_request(-1, &[("t", 0, None)]));
    let code = response.responses[0].partition_responses[0].error_code;
    assert_eq!(code, INVALID_RECORD, "null");
    assert_empty(&mut client);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn what_is_too_large_or_goes_nowhere_is_refused() {
    let (broker, mut client) = started();
    let large = batch(1, 1 << 20);
    assert_eq!(
        client.produce("t", 0, large.clone()),
        (MESSAGE_TOO_LARGE, -1)
    );
    let huge = batch(1, 50 << 20);
    assert_eq!(client.produce("t", 0, huge), (MESSAGE_TOO_LARGE, -1));
    for partition in [-1, 4, i32::MAX, i32::MIN] {
        let refused = client.produce("t", partition, batch(1, 1));
        assert_eq!(refused, (UNKNOWN_TOPIC_OR_PARTITION, -1), "{partition}");
    }
    for acks in [2, -2, i16::MAX, i16::MIN] {
        let request = produce_request(acks, &[("t", 0, Some(batch(1, 1)))]);
        let response = client.ask(9, &request);
        let code = response.responses[0].partition_responses[0].error_code;
        assert_eq!(code, INVALID_REQUIRED_ACKS, "{acks}");
    }
    // zstd in a version that does not support it.
    let zstd = changed(ATTRIBUTES, &[0, 4]);
    let response = client.ask(6, &produce_request(-1, &[("t", 0, Some(zstd))]));
    let code = response.responses[0].partition_responses[0].error_code;
    assert_eq!(code, UNSUPPORTED_COMPRESSION_TYPE);
    assert_empty(&mut client);
    broker.end_well(512 << 20);
}

#[test]
fn a_client_that_wants_no_answer_learns_of_an_error_by_the_end_of_the_connection() {
    let (broker, mut client) = started();
    let bad = changed(CRC, &[0; 4]);
    client.send_request(9, &produce_request(0, &[("t", 0, Some(bad))]));
    client.expect_end();
    broker.hear("partition 0, is refused: the checksum of the batch is wrong");
    assert_empty(&mut broker.connect());
    broker.end_well(MEMORY_MAX);
}

#[test]
fn good_and_bad_batches_of_a_request_have_their_own_answers() {
    let (broker, mut client) = started();
    let bad = changed(CRC, &[0; 4]);
    let request = produce_request(
        -1,
        &[
            ("t", 0, Some(batch(1, 1))),
            ("t", 0, Some(bad)),
            ("nowhere", 0, Some(batch(1, 1))),
            ("t", 0, Some(batch(2, 1))),
        ],
    );
    let response: <ProduceRequest as kafka_protocol::protocol::Request>::Response =
        client.ask(9, &request);
    let answers = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses);
    let answers: Vec<_> = answers
        .map(|one| (one.error_code, one.base_offset))
        .collect();
    let unknown = UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(
        answers,
        [(NONE, 0), (CORRUPT_MESSAGE, -1), (unknown, -1), (NONE, 1)]
    );
    broker.end_well(MEMORY_MAX);
}

#[test]
fn producers_go_on_with_the_next_sequence_number_in_the_latest_epoch() {
    let (broker, mut client) = started();
    let out_of_order = (OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
    let mut produce = |id, epoch, sequence| client.produce("t", 0, batch_of(id, epoch, sequence));
    // An ID that was never handed out is accepted with any sequence number, as by Kafka.
    assert_eq!(produce(1 << 40, 3, 1000), (NONE, 0));
    assert_eq!(produce(1 << 40, 3, 1002), out_of_order);
    assert_eq!(produce(1 << 40, 3, 5), out_of_order);
    assert_eq!(produce(1 << 40, 3, 1000), (NONE, 0), "the same once more");
    assert_eq!(produce(1 << 40, 3, 1001), (NONE, 1));
    assert_eq!(produce(1 << 40, 2, 1002), (INVALID_PRODUCER_EPOCH, -1));
    assert_eq!(produce(1 << 40, 4, 1), out_of_order);
    assert_eq!(produce(1 << 40, 4, 0), (NONE, 2));
    assert_eq!(produce(i64::MAX, i16::MAX, i32::MAX), (NONE, 3));
    assert_eq!(produce(i64::MAX, i16::MAX, 0), (NONE, 4), "it begins again");
    assert_eq!(produce(i64::MAX, i16::MAX, i32::MAX), (NONE, 3));
    let no_epoch = changed(PRODUCER_EPOCH, &[0x80, 0]);
    assert_eq!(
        client.produce("t", 0, no_epoch).0,
        NONE,
        "without an id it has no meaning"
    );
    assert_eq!(client.produce("t", 0, batch_of(5, -1, 0)).0, INVALID_RECORD);
    assert_eq!(
        client.produce("t", 0, batch_of(5, 0, i32::MIN)).0,
        INVALID_RECORD
    );
    broker.end_well(MEMORY_MAX);
}

/// A client has up to five requests in flight, and repeats all of them when the connection ends.
#[test]
fn the_last_five_batches_of_a_producer_are_known_after_another_start() {
    for is_killed in [false, true] {
        let (broker, mut client) = started();
        for sequence in 0..8 {
            let produced = client.produce("t", 0, batch_of(7, 0, sequence));
            assert_eq!(produced, (NONE, i64::from(sequence)));
        }
        let folder = match is_killed {
            true => broker.kill(),
            false => broker.stop(),
        };
        let broker = BrokerProcess::start_in(folder);
        let mut client = broker.connect();
        for sequence in 3..9 {
            let produced = client.produce("t", 0, batch_of(7, 0, sequence));
            assert_eq!(produced, (NONE, i64::from(sequence)), "killed: {is_killed}");
        }
        broker.end_well(MEMORY_MAX);
    }
}

#[test]
fn records_that_no_consumer_could_read_are_refused() {
    let (broker, mut client) = started();
    let one = batch(1, 30);
    for (at, bytes) in [
        (RECORDS, &[0xff; 30][..]),
        // A length of −1.
        (RECORDS, &[1]),
        (COUNT, &i32::MAX.to_be_bytes()),
        (COUNT, &2i32.to_be_bytes()),
    ] {
        let mut wrong = one.clone();
        put(&mut wrong, at, bytes);
        if at == COUNT {
            let count = i32::from_be_bytes(bytes.try_into().unwrap_or_default());
            put(&mut wrong, LAST_OFFSET_DELTA, &(count - 1).to_be_bytes());
        }
        seal(&mut wrong);
        assert_eq!(client.produce("t", 0, wrong).0, INVALID_RECORD, "{at}");
    }
    assert_empty(&mut client);
    broker.end_well(MEMORY_MAX);
}

/// For example microseconds instead of milliseconds. Retention would never delete these records.
#[test]
fn records_of_the_future_are_refused() {
    let (broker, mut client) = started();
    let of = |timestamp: i64| {
        let mut batch = batch(1, 10);
        put(&mut batch, BASE_TIMESTAMP, &timestamp.to_be_bytes());
        seal(&mut batch);
        batch
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let now = i64::try_from(now.as_millis()).expect("a time");
    for timestamp in [now + 3_700_000, now * 1000, i64::MAX] {
        assert_eq!(client.produce("t", 0, of(timestamp)).0, INVALID_TIMESTAMP);
    }
    assert_empty(&mut client);
    for (offset, timestamp) in (0..).zip([now + 3_000_000, now, 0, -1]) {
        assert_eq!(client.produce("t", 0, of(timestamp)), (NONE, offset));
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn what_was_refused_is_not_there_after_another_start() {
    let (broker, mut client) = started();
    assert_eq!(client.produce("t", 0, batch(3, 100)), (NONE, 0));
    client.produce("t", 0, changed(CRC, &[0; 4]));
    assert_eq!(client.produce("t", 0, batch(2, 100)), (NONE, 3));
    let folder = broker.stop();
    let broker = BrokerProcess::start_in(folder);
    let fetched = broker.connect().fetch("t", 0, 0);
    assert_eq!(fetched.responses[0].partitions[0].high_watermark, 5);
    broker.end_well(MEMORY_MAX);
}
