//! OffsetCommit. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct OffsetCommitRequest<'a> {
        group_id: &'a str => 2..;
        generation_id_or_member_epoch: i32 => 2.., or -1;
        member_id: &'a str => 2..;
        group_instance_id: Option<&'a str> => 7..;
        retention_time_ms: i64 => 2..=4, or -1;
        topics: Vec<OffsetCommitRequestTopic<'a>> => 2..;
    }
}

table! {
    pub struct OffsetCommitRequestTopic<'a> {
        name: &'a str => 2..=9;
        topic_id: Uuid => 10..;
        partitions: Vec<OffsetCommitRequestPartition<'a>> => 2..;
    }
}

table! {
    pub struct OffsetCommitRequestPartition<'a> {
        partition_index: i32 => 2..;
        committed_offset: i64 => 2..;
        committed_leader_epoch: i32 => 6.., or -1;
        committed_metadata: Option<&'a str> => 2..;
    }
}
message!(OffsetCommitRequest<'a>, Some(8), 2..=10, 8);

table! {
    pub struct OffsetCommitResponse<'a> {
        throttle_time_ms: i32 => 3..;
        topics: Vec<OffsetCommitResponseTopic<'a>> => 2..;
    }
}

table! {
    pub struct OffsetCommitResponseTopic<'a> {
        name: &'a str => 2..=9;
        topic_id: Uuid => 10..;
        partitions: Vec<OffsetCommitResponsePartition> => 2..;
    }
}

table! {
    pub struct OffsetCommitResponsePartition {
        partition_index: i32 => 2..;
        error_code: i16 => 2..;
    }
}
message!(OffsetCommitResponse<'a>, Some(8), 2..=10, 8);
