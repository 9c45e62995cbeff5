//! CreateTopics. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct CreateTopicsRequest<'a> {
        topics: Vec<CreateTopicsCreatableTopic<'a>> => 2..;
        timeout_ms: i32 => 2.., or 60000;
        validate_only: bool => 2..;
    }
}

table! {
    pub struct CreateTopicsCreatableTopic<'a> {
        name: &'a str => 2..;
        num_partitions: i32 => 2..;
        replication_factor: i16 => 2..;
        assignments: Vec<CreateTopicsCreatableReplicaAssignment> => 2..;
        configs: Vec<CreateTopicsCreatableTopicConfig<'a>> => 2..;
    }
}

table! {
    pub struct CreateTopicsCreatableReplicaAssignment {
        partition_index: i32 => 2..;
        broker_ids: Vec<i32> => 2..;
    }
}

table! {
    pub struct CreateTopicsCreatableTopicConfig<'a> {
        name: &'a str => 2..;
        value: Option<&'a str> => 2..;
    }
}
message!(CreateTopicsRequest<'a>, Some(19), 2..=7, 5);

table! {
    pub struct CreateTopicsResponse<'a> {
        throttle_time_ms: i32 => 2..;
        topics: Vec<CreateTopicsResponseCreatableTopicResult<'a>> => 2..;
    }
}

table! {
    pub struct CreateTopicsResponseCreatableTopicResult<'a> {
        name: &'a str => 2..;
        topic_id: Uuid => 7..;
        error_code: i16 => 2..;
        error_message: Option<&'a str> => 2..;
        topic_config_error_code: i16 => 5.., tag 0 or Default::default();
        num_partitions: i32 => 5.., or -1;
        replication_factor: i16 => 5.., or -1;
        configs: Option<Vec<CreateTopicsResponseCreatableTopicConfigs<'a>>> => 5..;
    }
}

table! {
    pub struct CreateTopicsResponseCreatableTopicConfigs<'a> {
        name: &'a str => 5..;
        value: Option<&'a str> => 5..;
        read_only: bool => 5..;
        config_source: i8 => 5.., or -1;
        is_sensitive: bool => 5..;
    }
}
message!(CreateTopicsResponse<'a>, Some(19), 2..=7, 5);
