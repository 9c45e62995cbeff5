//! ListOffsets. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct ListOffsetsRequest<'a> {
        replica_id: i32 => 1..;
        isolation_level: i8 => 2..;
        topics: Vec<ListOffsetsTopic<'a>> => 1..;
        timeout_ms: i32 => 10..;
    }
}

table! {
    pub struct ListOffsetsTopic<'a> {
        name: &'a str => 1..;
        partitions: Vec<ListOffsetsPartition> => 1..;
    }
}

table! {
    pub struct ListOffsetsPartition {
        partition_index: i32 => 1..;
        current_leader_epoch: i32 => 4.., or -1;
        timestamp: i64 => 1..;
    }
}
message!(ListOffsetsRequest<'a>, Some(2), 1..=11, 6);

table! {
    pub struct ListOffsetsResponse<'a> {
        throttle_time_ms: i32 => 2..;
        topics: Vec<ListOffsetsTopicResponse<'a>> => 1..;
    }
}

table! {
    pub struct ListOffsetsTopicResponse<'a> {
        name: &'a str => 1..;
        partitions: Vec<ListOffsetsPartitionResponse> => 1..;
    }
}

table! {
    pub struct ListOffsetsPartitionResponse {
        partition_index: i32 => 1..;
        error_code: i16 => 1..;
        timestamp: i64 => 1.., or -1;
        offset: i64 => 1.., or -1;
        leader_epoch: i32 => 4.., or -1;
    }
}
message!(ListOffsetsResponse<'a>, Some(2), 1..=11, 6);
