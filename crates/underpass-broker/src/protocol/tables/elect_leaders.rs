//! ElectLeaders. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct ElectLeadersRequest<'a> {
        election_type: i8 => 1..;
        topic_partitions: Option<Vec<ElectLeadersTopicPartitions<'a>>> => 0..;
        timeout_ms: i32 => 0.., or 60000;
    }
}

table! {
    pub struct ElectLeadersTopicPartitions<'a> {
        topic: &'a str => 0..;
        partitions: Vec<i32> => 0..;
    }
}
message!(ElectLeadersRequest<'a>, Some(43), 0..=2, 2);

table! {
    pub struct ElectLeadersResponse<'a> {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 1..;
        replica_election_results: Vec<ElectLeadersResponseReplicaElectionResult<'a>> => 0..;
    }
}

table! {
    pub struct ElectLeadersResponseReplicaElectionResult<'a> {
        topic: &'a str => 0..;
        partition_result: Vec<ElectLeadersResponsePartitionResult<'a>> => 0..;
    }
}

table! {
    pub struct ElectLeadersResponsePartitionResult<'a> {
        partition_id: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
    }
}
message!(ElectLeadersResponse<'a>, Some(43), 0..=2, 2);
