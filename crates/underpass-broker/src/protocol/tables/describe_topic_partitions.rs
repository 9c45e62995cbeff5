//! DescribeTopicPartitions. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeTopicPartitionsRequest<'a> {
        topics: Vec<DescribeTopicPartitionsTopicRequest<'a>> => 0..;
        response_partition_limit: i32 => 0.., or 2000;
        cursor: Option<DescribeTopicPartitionsCursor<'a>> => 0..;
    }
}

table! {
    pub struct DescribeTopicPartitionsTopicRequest<'a> {
        name: &'a str => 0..;
    }
}

table! {
    pub struct DescribeTopicPartitionsCursor<'a> {
        topic_name: &'a str => 0..;
        partition_index: i32 => 0..;
    }
}
message!(DescribeTopicPartitionsRequest<'a>, Some(75), 0..=0, 0);

table! {
    pub struct DescribeTopicPartitionsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        topics: Vec<DescribeTopicPartitionsResponseTopic<'a>> => 0..;
        next_cursor: Option<DescribeTopicPartitionsResponseCursor<'a>> => 0..;
    }
}

table! {
    pub struct DescribeTopicPartitionsResponseTopic<'a> {
        error_code: i16 => 0..;
        name: Option<&'a str> => 0..;
        topic_id: Uuid => 0..;
        is_internal: bool => 0..;
        partitions: Vec<DescribeTopicPartitionsResponsePartition> => 0..;
        topic_authorized_operations: i32 => 0.., or -2147483648;
    }
}

table! {
    pub struct DescribeTopicPartitionsResponsePartition {
        error_code: i16 => 0..;
        partition_index: i32 => 0..;
        leader_id: i32 => 0..;
        leader_epoch: i32 => 0.., or -1;
        replica_nodes: Vec<i32> => 0..;
        isr_nodes: Vec<i32> => 0..;
        eligible_leader_replicas: Option<Vec<i32>> => 0..;
        last_known_elr: Option<Vec<i32>> => 0..;
        offline_replicas: Vec<i32> => 0..;
    }
}

table! {
    pub struct DescribeTopicPartitionsResponseCursor<'a> {
        topic_name: &'a str => 0..;
        partition_index: i32 => 0..;
    }
}
message!(DescribeTopicPartitionsResponse<'a>, Some(75), 0..=0, 0);
