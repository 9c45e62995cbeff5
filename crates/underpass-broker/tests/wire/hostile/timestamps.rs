//! Timestamps in the headers of batches that differ from those of their records. Retention and
//! lookups by time depend on them.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use kafka_protocol::messages::ListOffsetsRequest;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use underpass_log::batch::BatchHeader;

use super::started;
use crate::MEMORY_MAX;
use crate::support::batch::{
    ATTRIBUTES, BASE_TIMESTAMP, COUNT, LAST_OFFSET_DELTA, LENGTH, MAGIC, MAX_TIMESTAMP, RECORDS,
    batch, put, seal,
};
use crate::support::client::{Client, topic_name};

const NONE: i16 = 0;
const INVALID_TIMESTAMP: i16 = 32;
const INVALID_RECORD: i16 = 87;

/// 2023.
const OLD: i64 = 1_672_531_200_000;

const CODECS: [i16; 5] = [0, 1, 2, 3, 4];

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_millis() as i64
}

fn varint(number: i64, out: &mut Vec<u8>) {
    let mut left = ((number << 1) ^ (number >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Encodes records with these timestamp deltas and values of `value_bytes` bytes.
fn records(deltas: &[i64], value_bytes: usize) -> Vec<u8> {
    let mut records = Vec::new();
    for (offset, delta) in (0..).zip(deltas) {
        let mut record = vec![0];
        varint(*delta, &mut record);
        varint(offset, &mut record);
        varint(-1, &mut record);
        varint(value_bytes as i64, &mut record);
        record.resize(record.len() + value_bytes, b'v');
        varint(0, &mut record);
        varint(record.len() as i64, &mut records);
        records.extend(record);
    }
    records
}

fn compressed(codec: i16, records: &[u8]) -> Vec<u8> {
    match codec {
        1 => {
            let level = flate2::Compression::default();
            let mut to = flate2::write::GzEncoder::new(Vec::new(), level);
            to.write_all(records).expect("memory");
            to.finish().expect("memory")
        }
        2 => snap::raw::Encoder::new()
            .compress_vec(records)
            .expect("a block"),
        3 => {
            let mut to = lz4_flex::frame::FrameEncoder::new(Vec::new());
            to.write_all(records).expect("memory");
            to.finish().expect("a frame")
        }
        4 => zstd::encode_all(records, 3).expect("memory"),
        _ => records.to_vec(),
    }
}

/// A batch of records whose header claims the timestamp of its first record for all of them.
fn forged(codec: i16, count: i32, records: &[u8]) -> Vec<u8> {
    let mut forged = batch(1, 0);
    forged.truncate(RECORDS);
    forged.extend(compressed(codec, records));
    let length = (forged.len() - MAGIC + 4) as i32;
    put(&mut forged, LENGTH, &length.to_be_bytes());
    put(&mut forged, ATTRIBUTES, &codec.to_be_bytes());
    put(&mut forged, LAST_OFFSET_DELTA, &(count - 1).to_be_bytes());
    put(&mut forged, COUNT, &count.to_be_bytes());
    put(&mut forged, BASE_TIMESTAMP, &OLD.to_be_bytes());
    put(&mut forged, MAX_TIMESTAMP, &OLD.to_be_bytes());
    seal(&mut forged);
    forged
}

/// Returns the offset and timestamp of the first record since a time.
fn found(client: &mut Client, partition: i32, timestamp: i64) -> (i64, i64) {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_current_leader_epoch(-1)
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    let response = client.ask(5, &request);
    let partition = &response.topics[0].partitions[0];
    assert_eq!(partition.error_code, NONE);
    (partition.offset, partition.timestamp)
}

#[test]
fn the_largest_timestamp_of_a_batch_is_that_of_its_records_in_every_codec() {
    let (broker, mut client) = started();
    let now = now();
    for (number, codec) in (0..).zip(CODECS) {
        // Small batches, and batches that a worker does not decompress itself.
        for (nth, value_bytes) in [10, 300_000].into_iter().enumerate() {
            let records = records(&[0, now + number - OLD, 5], value_bytes);
            let base = 6 * number + 3 * nth as i64;
            let produced = client.produce("t", 0, forged(codec, 3, &records));
            assert_eq!(produced, (NONE, base), "{codec} {value_bytes}");
            let fetched = client.fetch("t", 0, base);
            let stored = fetched.responses[0].partitions[0].records.as_ref();
            let header = BatchHeader::parse(stored.expect("records"));
            let header = header.expect("a batch");
            let times = (header.base_timestamp, header.max_timestamp);
            assert_eq!(times, (OLD, now + number), "{codec} {value_bytes}");
            let mut sealed = stored.expect("records")[..header.size].to_vec();
            seal(&mut sealed);
            assert_eq!(
                Some(&sealed[..]),
                stored.map(|stored| &stored[..header.size])
            );
        }
        assert_eq!(
            found(&mut client, 0, now + number),
            (6 * number + 1, now + number)
        );
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn compressed_records_are_checked_as_others_are() {
    let (broker, mut client) = started();
    for codec in CODECS {
        let records = records(&[0, 1, 2], 10);
        let good = forged(codec, 3, &records);
        for (what, bad) in [
            ("one record less", forged(codec, 2, &records)),
            ("one record more", forged(codec, 4, &records)),
            ("cut off", forged(codec, 3, &records[..records.len() - 1])),
            ("no records", forged(codec, 3, &[0xff; 40])),
        ] {
            let produced = client.produce("t", 0, bad);
            assert_eq!(produced, (INVALID_RECORD, -1), "{codec}: {what}");
        }
        let mut torn = good.clone();
        torn.truncate(torn.len() - 8);
        let length = (torn.len() - MAGIC + 4) as i32;
        put(&mut torn, LENGTH, &length.to_be_bytes());
        seal(&mut torn);
        assert_eq!(client.produce("t", 0, torn).0, INVALID_RECORD, "{codec}");
        let future = self::records(&[0, now() + 3_700_000 - OLD], 10);
        let produced = client.produce("t", 0, forged(codec, 2, &future)).0;
        assert_eq!(produced, INVALID_TIMESTAMP, "{codec}");
    }
    assert_eq!(
        client.fetch("t", 0, 0).responses[0].partitions[0].high_watermark,
        0
    );
    broker.end_well(MEMORY_MAX);
}

/// A kilobyte that decompresses to more than a gibibyte.
#[test]
fn a_batch_that_decompresses_to_very_much_is_refused_in_bounded_memory() {
    let (broker, mut client) = started();
    let mut to = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    let mut head = Vec::new();
    // One record of 2^30 bytes.
    varint(1 << 30, &mut head);
    head.push(0);
    to.write_all(&head).expect("memory");
    for _ in 0..1030 {
        to.write_all(&[0; 1 << 20]).expect("memory");
    }
    let compressed = to.finish().expect("memory");
    let mut bomb = forged(0, 1, &compressed);
    put(&mut bomb, ATTRIBUTES, &4i16.to_be_bytes());
    seal(&mut bomb);
    assert!(bomb.len() < 200_000, "{}", bomb.len());
    assert_eq!(client.produce("t", 0, bomb).0, INVALID_RECORD);
    broker.end_well(MEMORY_MAX);
}

/// The first batch takes longer to decompress than the others.
#[test]
fn batches_of_a_connection_are_appended_in_its_order_whatever_their_codec() {
    let (broker, mut client) = started();
    for round in 0..10 {
        let large = records(&[0; 20], 200_000);
        let requests = [
            forged(1, 20, &large),
            batch(1, 10),
            forged(4, 20, &large),
            batch(1, 10),
        ];
        for bytes in requests {
            let request = crate::support::client::produce_request(1, &[("t", 0, Some(bytes))]);
            client.send_request(9, &request);
        }
        for offset in [0, 20, 21, 41] {
            let response = client.response::<kafka_protocol::messages::ProduceRequest>(9);
            let partition = &response.responses[0].partition_responses[0];
            let appended = (partition.error_code, partition.base_offset);
            assert_eq!(appended, (NONE, 42 * round + offset));
        }
    }
    broker.end_well(MEMORY_MAX);
}
