//! DeleteRecords. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DeleteRecordsRequest<'a> {
        topics: Vec<DeleteRecordsTopic<'a>> => 0..;
        timeout_ms: i32 => 0..;
    }
}

table! {
    pub struct DeleteRecordsTopic<'a> {
        name: &'a str => 0..;
        partitions: Vec<DeleteRecordsPartition> => 0..;
    }
}

table! {
    pub struct DeleteRecordsPartition {
        partition_index: i32 => 0..;
        offset: i64 => 0..;
    }
}
message!(DeleteRecordsRequest<'a>, Some(21), 0..=2, 2);

table! {
    pub struct DeleteRecordsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        topics: Vec<DeleteRecordsTopicResult<'a>> => 0..;
    }
}

table! {
    pub struct DeleteRecordsTopicResult<'a> {
        name: &'a str => 0..;
        partitions: Vec<DeleteRecordsPartitionResult> => 0..;
    }
}

table! {
    pub struct DeleteRecordsPartitionResult {
        partition_index: i32 => 0..;
        low_watermark: i64 => 0..;
        error_code: i16 => 0..;
    }
}
message!(DeleteRecordsResponse<'a>, Some(21), 0..=2, 2);
