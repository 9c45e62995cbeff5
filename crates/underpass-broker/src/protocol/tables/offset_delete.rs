//! OffsetDelete. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct OffsetDeleteRequest<'a> {
        group_id: &'a str => 0..;
        topics: Vec<OffsetDeleteRequestTopic<'a>> => 0..;
    }
}

table! {
    pub struct OffsetDeleteRequestTopic<'a> {
        name: &'a str => 0..;
        partitions: Vec<OffsetDeleteRequestPartition> => 0..;
    }
}

table! {
    pub struct OffsetDeleteRequestPartition {
        partition_index: i32 => 0..;
    }
}
message!(OffsetDeleteRequest<'a>, Some(47), 0..=0, 32767);

table! {
    pub struct OffsetDeleteResponse<'a> {
        error_code: i16 => 0..;
        throttle_time_ms: i32 => 0..;
        topics: Vec<OffsetDeleteResponseTopic<'a>> => 0..;
    }
}

table! {
    pub struct OffsetDeleteResponseTopic<'a> {
        name: &'a str => 0..;
        partitions: Vec<OffsetDeleteResponsePartition> => 0..;
    }
}

table! {
    pub struct OffsetDeleteResponsePartition {
        partition_index: i32 => 0..;
        error_code: i16 => 0..;
    }
}
message!(OffsetDeleteResponse<'a>, Some(47), 0..=0, 32767);
