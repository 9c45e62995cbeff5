//! Null where Kafka's schemas do not allow it.

use crate::MEMORY_MAX;
use crate::support::broker::BrokerProcess;
use crate::support::client::{raw, raw_flexible};

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const METADATA: i16 = 3;
const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const FIND_COORDINATOR: i16 = 10;
const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const LEAVE_GROUP: i16 = 13;
const SYNC_GROUP: i16 = 14;
const DESCRIBE_GROUPS: i16 = 15;
const LIST_GROUPS: i16 = 16;
const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;
const DELETE_RECORDS: i16 = 21;
const OFFSET_FOR_LEADER_EPOCH: i16 = 23;
const DESCRIBE_CONFIGS: i16 = 32;
const ALTER_CONFIGS: i16 = 33;
const DESCRIBE_LOG_DIRS: i16 = 35;
const CREATE_PARTITIONS: i16 = 37;
const DELETE_GROUPS: i16 = 42;
const ELECT_LEADERS: i16 = 43;
const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
const LIST_PARTITION_REASSIGNMENTS: i16 = 46;
const OFFSET_DELETE: i16 = 47;
const DESCRIBE_TOPIC_PARTITIONS: i16 = 75;

/// The length of null, or the number −1.
const NULL: [u8; 4] = [0xff; 4];

/// A name, and the count of an array with one element.
const NAME: &[u8] = b"\0\x01t";
const ONE: &[u8] = b"\0\0\0\x01";

/// The parts of a body before a field that must not be null.
type Before = &'static [&'static [u8]];

/// Fields in the encoding with lengths of two and four bytes.
const FIXED: &[(i16, i16, Before)] = &[
    (PRODUCE, 3, &[&[0xff; 2], &[0; 6]]),
    (PRODUCE, 3, &[&[0xff; 2], &[0; 6], ONE]),
    (PRODUCE, 3, &[&[0xff; 2], &[0; 6], ONE, NAME]),
    (FETCH, 4, &[&[0; 17]]),
    (FETCH, 4, &[&[0; 17], ONE]),
    (FETCH, 4, &[&[0; 17], ONE, NAME]),
    (FETCH, 7, &[&[0; 29]]),
    (FETCH, 7, &[&[0; 29], ONE]),
    (FETCH, 7, &[&[0; 29], ONE, NAME]),
    (FETCH, 11, &[&[0; 33]]),
    (LIST_OFFSETS, 1, &[&[0; 4]]),
    (LIST_OFFSETS, 1, &[&[0; 4], ONE]),
    (LIST_OFFSETS, 1, &[&[0; 4], ONE, NAME]),
    (METADATA, 0, &[]),
    (METADATA, 0, &[ONE]),
    (METADATA, 8, &[ONE]),
    (OFFSET_COMMIT, 2, &[]),
    (OFFSET_COMMIT, 2, &[NAME, &[0; 4]]),
    (OFFSET_COMMIT, 2, &[NAME, &[0; 4], NAME, &[0; 8]]),
    (OFFSET_COMMIT, 2, &[NAME, &[0; 4], NAME, &[0; 8], ONE]),
    (OFFSET_COMMIT, 2, &[NAME, &[0; 4], NAME, &[0; 8], ONE, NAME]),
    (OFFSET_FETCH, 1, &[]),
    (OFFSET_FETCH, 1, &[NAME]),
    (OFFSET_FETCH, 1, &[NAME, ONE]),
    (OFFSET_FETCH, 1, &[NAME, ONE, NAME]),
    (FIND_COORDINATOR, 0, &[]),
    (JOIN_GROUP, 0, &[]),
    (JOIN_GROUP, 0, &[NAME, &[0; 4]]),
    (JOIN_GROUP, 0, &[NAME, &[0; 4], NAME]),
    (JOIN_GROUP, 0, &[NAME, &[0; 4], NAME, NAME]),
    (JOIN_GROUP, 0, &[NAME, &[0; 4], NAME, NAME, ONE]),
    (JOIN_GROUP, 0, &[NAME, &[0; 4], NAME, NAME, ONE, NAME]),
    (HEARTBEAT, 0, &[]),
    (HEARTBEAT, 0, &[NAME, &[0; 4]]),
    (LEAVE_GROUP, 0, &[]),
    (LEAVE_GROUP, 0, &[NAME]),
    (LEAVE_GROUP, 3, &[NAME]),
    (LEAVE_GROUP, 3, &[NAME, ONE]),
    (SYNC_GROUP, 0, &[]),
    (SYNC_GROUP, 0, &[NAME, &[0; 4]]),
    (SYNC_GROUP, 0, &[NAME, &[0; 4], NAME]),
    (SYNC_GROUP, 0, &[NAME, &[0; 4], NAME, ONE]),
    (SYNC_GROUP, 0, &[NAME, &[0; 4], NAME, ONE, NAME]),
    (CREATE_TOPICS, 2, &[]),
    (CREATE_TOPICS, 2, &[ONE]),
    (CREATE_TOPICS, 2, &[ONE, NAME, &[0; 6]]),
    (CREATE_TOPICS, 2, &[ONE, NAME, &[0; 6], ONE, &[0; 4]]),
    (CREATE_TOPICS, 2, &[ONE, NAME, &[0; 6], &[0; 4]]),
    (CREATE_TOPICS, 2, &[ONE, NAME, &[0; 6], &[0; 4], ONE]),
    (DELETE_TOPICS, 1, &[]),
    (DELETE_TOPICS, 1, &[ONE]),
    (OFFSET_FOR_LEADER_EPOCH, 2, &[]),
    (OFFSET_FOR_LEADER_EPOCH, 2, &[ONE]),
    (OFFSET_FOR_LEADER_EPOCH, 2, &[ONE, NAME]),
    (DESCRIBE_GROUPS, 0, &[]),
    (DESCRIBE_GROUPS, 0, &[ONE]),
    (DELETE_RECORDS, 0, &[]),
    (DELETE_RECORDS, 0, &[ONE]),
    (DELETE_RECORDS, 0, &[ONE, NAME]),
    (DESCRIBE_CONFIGS, 1, &[]),
    (DESCRIBE_CONFIGS, 1, &[ONE, &[2]]),
    (DESCRIBE_CONFIGS, 1, &[ONE, &[2], NAME, ONE]),
    (ALTER_CONFIGS, 0, &[]),
    (ALTER_CONFIGS, 0, &[ONE, &[2]]),
    (ALTER_CONFIGS, 0, &[ONE, &[2], NAME]),
    (ALTER_CONFIGS, 0, &[ONE, &[2], NAME, ONE]),
    (DESCRIBE_LOG_DIRS, 1, &[ONE]),
    (DESCRIBE_LOG_DIRS, 1, &[ONE, NAME]),
    (CREATE_PARTITIONS, 0, &[]),
    (CREATE_PARTITIONS, 0, &[ONE]),
    (CREATE_PARTITIONS, 0, &[ONE, NAME, &[0; 4], ONE]),
    (DELETE_GROUPS, 0, &[]),
    (DELETE_GROUPS, 0, &[ONE]),
    (ELECT_LEADERS, 0, &[ONE]),
    (ELECT_LEADERS, 0, &[ONE, NAME]),
    (ELECT_LEADERS, 1, &[&[0], ONE]),
    (INCREMENTAL_ALTER_CONFIGS, 0, &[]),
    (INCREMENTAL_ALTER_CONFIGS, 0, &[ONE, &[2]]),
    (INCREMENTAL_ALTER_CONFIGS, 0, &[ONE, &[2], NAME]),
    (INCREMENTAL_ALTER_CONFIGS, 0, &[ONE, &[2], NAME, ONE]),
    (OFFSET_DELETE, 0, &[]),
    (OFFSET_DELETE, 0, &[NAME]),
    (OFFSET_DELETE, 0, &[NAME, ONE]),
    (OFFSET_DELETE, 0, &[NAME, ONE, NAME]),
];

/// Fields in the flexible encoding, where null is 0 and lengths are one larger.
const FLEXIBLE: &[(i16, i16, Before)] = &[
    (PRODUCE, 9, &[b"\0", &[0; 6], b"\x02"]),
    (FETCH, 12, &[&[0; 25], b"\x02"]),
    (FETCH, 12, &[&[0; 25], b"\x01"]),
    (FETCH, 12, &[&[0; 25], b"\x01\x01"]),
    (FETCH, 13, &[&[0; 25], b"\x02", &[7; 16]]),
    (METADATA, 9, &[b"\x02"]),
    (OFFSET_COMMIT, 8, &[b"\x02g", &[0; 4]]),
    (OFFSET_FETCH, 6, &[b"\x02g\x02"]),
    (OFFSET_FETCH, 8, &[]),
    (OFFSET_FETCH, 8, &[b"\x02"]),
    (OFFSET_FETCH, 8, &[b"\x02\x02g\x02"]),
    (OFFSET_FETCH, 8, &[b"\x02\x02g\x02\x02t"]),
    (FIND_COORDINATOR, 4, &[b"\0"]),
    (FIND_COORDINATOR, 4, &[b"\0\x02"]),
    (JOIN_GROUP, 6, &[b"\x02g", &[0; 8]]),
    (HEARTBEAT, 4, &[]),
    (LEAVE_GROUP, 4, &[b"\x02g\x02"]),
    (SYNC_GROUP, 5, &[b"\x02g", &[0; 4], b"\x02m\0\0\0\x02\x02m"]),
    (CREATE_TOPICS, 5, &[b"\x02\x02t", &[0; 6], b"\x01\x02"]),
    (DELETE_TOPICS, 6, &[]),
    (OFFSET_FOR_LEADER_EPOCH, 4, &[&[0; 4], b"\x02\x02t"]),
    (DESCRIBE_GROUPS, 5, &[b"\x02"]),
    (LIST_GROUPS, 4, &[]),
    (LIST_GROUPS, 4, &[b"\x02"]),
    (LIST_GROUPS, 5, &[b"\x01"]),
    (LIST_GROUPS, 5, &[b"\x01\x02"]),
    (DELETE_RECORDS, 2, &[b"\x02\x02t"]),
    (DESCRIBE_CONFIGS, 4, &[b"\x02\x02"]),
    (ALTER_CONFIGS, 2, &[b"\x02\x02\x02t\x02"]),
    (DESCRIBE_LOG_DIRS, 2, &[b"\x02\x02t"]),
    (CREATE_PARTITIONS, 2, &[b"\x02\x02t", &[0; 4], b"\x02"]),
    (DELETE_GROUPS, 2, &[b"\x02"]),
    (ELECT_LEADERS, 2, &[b"\0\x02\x02t"]),
    (INCREMENTAL_ALTER_CONFIGS, 1, &[b"\x02\x02\x02t\x02"]),
    (LIST_PARTITION_REASSIGNMENTS, 0, &[&[0; 4], b"\x02"]),
    (LIST_PARTITION_REASSIGNMENTS, 0, &[&[0; 4], b"\x02\x02t"]),
    (DESCRIBE_TOPIC_PARTITIONS, 0, &[]),
    (DESCRIBE_TOPIC_PARTITIONS, 0, &[b"\x02"]),
    (DESCRIBE_TOPIC_PARTITIONS, 0, &[b"\x01", &[0; 4], b"\x01"]),
];

#[test]
fn null_where_kafka_allows_none_ends_the_connection_with_a_line_in_the_log() {
    let broker = BrokerProcess::start();
    let fixed = FIXED.iter().map(|(key, version, before)| {
        let body = [&before.concat()[..], &NULL].concat();
        (key, version, raw(*key, *version, &body))
    });
    let flexible = FLEXIBLE.iter().map(|(key, version, before)| {
        let body = [&before.concat()[..], &[0; 40]].concat();
        (key, version, raw_flexible(*key, *version, &body))
    });
    for (key, version, frame) in fixed.chain(flexible) {
        let mut client = broker.connect();
        client.send(&frame);
        client.expect_end();
        let line = broker.hear("cannot be read");
        let is_null = line.contains("null that must not be");
        assert!(is_null, "request {key} {version} {frame:?}: {line}");
    }
    broker.end_well(MEMORY_MAX);
}
