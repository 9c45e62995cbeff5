//! ListPartitionReassignments. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct ListPartitionReassignmentsRequest<'a> {
        timeout_ms: i32 => 0.., or 60000;
        topics: Option<Vec<ListPartitionReassignmentsTopics<'a>>> => 0..;
    }
}

table! {
    pub struct ListPartitionReassignmentsTopics<'a> {
        name: &'a str => 0..;
        partition_indexes: Vec<i32> => 0..;
    }
}
message!(ListPartitionReassignmentsRequest<'a>, Some(46), 0..=0, 0);

table! {
    pub struct ListPartitionReassignmentsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        topics: Vec<ListPartitionReassignmentsResponseOngoingTopicReassignment<'a>> => 0..;
    }
}

table! {
    pub struct ListPartitionReassignmentsResponseOngoingTopicReassignment<'a> {
        name: &'a str => 0..;
        partitions: Vec<ListPartitionReassignmentsResponseOngoingPartitionReassignment> => 0..;
    }
}

table! {
    pub struct ListPartitionReassignmentsResponseOngoingPartitionReassignment {
        partition_index: i32 => 0..;
        replicas: Vec<i32> => 0..;
        adding_replicas: Vec<i32> => 0..;
        removing_replicas: Vec<i32> => 0..;
    }
}
message!(ListPartitionReassignmentsResponse<'a>, Some(46), 0..=0, 0);
