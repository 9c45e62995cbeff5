//! OffsetFetch. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct OffsetFetchRequest<'a> {
        group_id: &'a str => 1..=7;
        topics: Option<Vec<OffsetFetchRequestTopic<'a>>> => 1..=7, null 2..=7;
        groups: Vec<OffsetFetchRequestGroup<'a>> => 8..;
        require_stable: bool => 7..;
    }
}

table! {
    pub struct OffsetFetchRequestTopic<'a> {
        name: &'a str => 1..=7;
        partition_indexes: Vec<i32> => 1..=7;
    }
}

table! {
    pub struct OffsetFetchRequestGroup<'a> {
        group_id: &'a str => 8..;
        member_id: Option<&'a str> => 9..;
        member_epoch: i32 => 9.., or -1;
        topics: Option<Vec<OffsetFetchRequestTopics<'a>>> => 8..;
    }
}

table! {
    pub struct OffsetFetchRequestTopics<'a> {
        name: &'a str => 8..=9;
        topic_id: Uuid => 10..;
        partition_indexes: Vec<i32> => 8..;
    }
}
message!(OffsetFetchRequest<'a>, Some(9), 1..=10, 6);

table! {
    pub struct OffsetFetchResponse<'a> {
        throttle_time_ms: i32 => 3..;
        topics: Vec<OffsetFetchResponseTopic<'a>> => 1..=7;
        error_code: i16 => 2..=7;
        groups: Vec<OffsetFetchResponseGroup<'a>> => 8..;
    }
}

table! {
    pub struct OffsetFetchResponseTopic<'a> {
        name: &'a str => 1..=7;
        partitions: Vec<OffsetFetchResponsePartition<'a>> => 1..=7;
    }
}

table! {
    pub struct OffsetFetchResponsePartition<'a> {
        partition_index: i32 => 1..=7;
        committed_offset: i64 => 1..=7;
        committed_leader_epoch: i32 => 5..=7, or -1;
        metadata: Option<&'a str> => 1..=7;
        error_code: i16 => 1..=7;
    }
}

table! {
    pub struct OffsetFetchResponseGroup<'a> {
        group_id: &'a str => 8..;
        topics: Vec<OffsetFetchResponseTopics<'a>> => 8..;
        error_code: i16 => 8..;
    }
}

table! {
    pub struct OffsetFetchResponseTopics<'a> {
        name: &'a str => 8..=9;
        topic_id: Uuid => 10..;
        partitions: Vec<OffsetFetchResponsePartitions<'a>> => 8..;
    }
}

table! {
    pub struct OffsetFetchResponsePartitions<'a> {
        partition_index: i32 => 8..;
        committed_offset: i64 => 8..;
        committed_leader_epoch: i32 => 8.., or -1;
        metadata: Option<&'a str> => 8..;
        error_code: i16 => 8..;
    }
}
message!(OffsetFetchResponse<'a>, Some(9), 1..=10, 6);
