//! DeleteTopics. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DeleteTopicsRequest<'a> {
        topics: Vec<DeleteTopicsDeleteTopicState<'a>> => 6..;
        topic_names: Vec<&'a str> => 1..=5;
        timeout_ms: i32 => 1..;
    }
}

table! {
    pub struct DeleteTopicsDeleteTopicState<'a> {
        name: Option<&'a str> => 6..;
        topic_id: Uuid => 6..;
    }
}
message!(DeleteTopicsRequest<'a>, Some(20), 1..=6, 4);

table! {
    pub struct DeleteTopicsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        responses: Vec<DeleteTopicsResponseDeletableTopicResult<'a>> => 1..;
    }
}

table! {
    pub struct DeleteTopicsResponseDeletableTopicResult<'a> {
        name: Option<&'a str> => 1.., null 6..;
        topic_id: Uuid => 6..;
        error_code: i16 => 1..;
        error_message: Option<&'a str> => 5..;
    }
}
message!(DeleteTopicsResponse<'a>, Some(20), 1..=6, 4);
