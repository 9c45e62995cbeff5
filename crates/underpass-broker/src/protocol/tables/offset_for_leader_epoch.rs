//! OffsetForLeaderEpoch. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct OffsetForLeaderEpochRequest<'a> {
        replica_id: i32 => 3.., or -2;
        topics: Vec<OffsetForLeaderEpochOffsetForLeaderTopic<'a>> => 2..;
    }
}

table! {
    pub struct OffsetForLeaderEpochOffsetForLeaderTopic<'a> {
        topic: &'a str => 2..;
        partitions: Vec<OffsetForLeaderEpochOffsetForLeaderPartition> => 2..;
    }
}

table! {
    pub struct OffsetForLeaderEpochOffsetForLeaderPartition {
        partition: i32 => 2..;
        current_leader_epoch: i32 => 2.., or -1;
        leader_epoch: i32 => 2..;
    }
}
message!(OffsetForLeaderEpochRequest<'a>, Some(23), 2..=4, 4);

table! {
    pub struct OffsetForLeaderEpochResponse<'a> {
        throttle_time_ms: i32 => 2..;
        topics: Vec<OffsetForLeaderEpochResponseOffsetForLeaderTopicResult<'a>> => 2..;
    }
}

table! {
    pub struct OffsetForLeaderEpochResponseOffsetForLeaderTopicResult<'a> {
        topic: &'a str => 2..;
        partitions: Vec<OffsetForLeaderEpochResponseEpochEndOffset> => 2..;
    }
}

table! {
    pub struct OffsetForLeaderEpochResponseEpochEndOffset {
        error_code: i16 => 2..;
        partition: i32 => 2..;
        leader_epoch: i32 => 2.., or -1;
        end_offset: i64 => 2.., or -1;
    }
}
message!(OffsetForLeaderEpochResponse<'a>, Some(23), 2..=4, 4);
