//! CreatePartitions. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct CreatePartitionsRequest<'a> {
        topics: Vec<CreatePartitionsTopic<'a>> => 0..;
        timeout_ms: i32 => 0..;
        validate_only: bool => 0..;
    }
}

table! {
    pub struct CreatePartitionsTopic<'a> {
        name: &'a str => 0..;
        count: i32 => 0..;
        assignments: Option<Vec<CreatePartitionsAssignment>> => 0..;
    }
}

table! {
    pub struct CreatePartitionsAssignment {
        broker_ids: Vec<i32> => 0..;
    }
}
message!(CreatePartitionsRequest<'a>, Some(37), 0..=3, 2);

table! {
    pub struct CreatePartitionsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        results: Vec<CreatePartitionsTopicResult<'a>> => 0..;
    }
}

table! {
    pub struct CreatePartitionsTopicResult<'a> {
        name: &'a str => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
    }
}
message!(CreatePartitionsResponse<'a>, Some(37), 0..=3, 2);
