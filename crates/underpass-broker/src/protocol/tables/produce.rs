//! Produce. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct ProduceRequest<'a> {
        transactional_id: Option<&'a str> => 3..;
        acks: i16 => 3..;
        timeout_ms: i32 => 3..;
        topic_data: Vec<ProduceTopicProduceData<'a>> => 3..;
    }
}

table! {
    pub struct ProduceTopicProduceData<'a> {
        name: &'a str => 3..=12;
        topic_id: Uuid => 13..;
        partition_data: Vec<ProducePartitionProduceData<'a>> => 3..;
    }
}

table! {
    pub struct ProducePartitionProduceData<'a> {
        index: i32 => 3..;
        records: Records<'a> => 3..;
    }
}
message!(ProduceRequest<'a>, Some(0), 3..=13, 9);

table! {
    pub struct ProduceResponse<'a> {
        responses: Vec<ProduceResponseTopicProduceResponse<'a>> => 3..;
        throttle_time_ms: i32 => 3..;
        node_endpoints: Vec<ProduceResponseNodeEndpoint<'a>> => 10.., tag 0 or Default::default();
    }
}

table! {
    pub struct ProduceResponseTopicProduceResponse<'a> {
        name: &'a str => 3..=12;
        topic_id: Uuid => 13..;
        partition_responses: Vec<ProduceResponsePartitionProduceResponse<'a>> => 3..;
    }
}

table! {
    pub struct ProduceResponsePartitionProduceResponse<'a> {
        index: i32 => 3..;
        error_code: i16 => 3..;
        base_offset: i64 => 3..;
        log_append_time_ms: i64 => 3.., or -1;
        log_start_offset: i64 => 5.., or -1;
        record_errors: Vec<ProduceResponseBatchIndexAndErrorMessage<'a>> => 8..;
        error_message: Option<&'a str> => 8..;
        current_leader: ProduceResponseLeaderIdAndEpoch => 10.., tag 0 or Default::default();
    }
}

table! {
    pub struct ProduceResponseBatchIndexAndErrorMessage<'a> {
        batch_index: i32 => 8..;
        batch_index_error_message: Option<&'a str> => 8..;
    }
}

table! {
    pub struct ProduceResponseLeaderIdAndEpoch {
        leader_id: i32 => 10.., or -1;
        leader_epoch: i32 => 10.., or -1;
    }
}

table! {
    pub struct ProduceResponseNodeEndpoint<'a> {
        node_id: i32 => 10..;
        host: &'a str => 10..;
        port: i32 => 10..;
        rack: Option<&'a str> => 10..;
    }
}
message!(ProduceResponse<'a>, Some(0), 3..=13, 9);
