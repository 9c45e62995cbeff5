//! Metadata. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct MetadataRequest<'a> {
        topics: Option<Vec<MetadataRequestTopic<'a>>> => 0.., null 1..;
        allow_auto_topic_creation: bool => 4.., or true;
        include_cluster_authorized_operations: bool => 8..=10;
        include_topic_authorized_operations: bool => 8..;
    }
}

table! {
    pub struct MetadataRequestTopic<'a> {
        topic_id: Uuid => 10..;
        name: Option<&'a str> => 0.., null 10..;
    }
}
message!(MetadataRequest<'a>, Some(3), 0..=13, 9);

table! {
    pub struct MetadataResponse<'a> {
        throttle_time_ms: i32 => 3..;
        brokers: Vec<MetadataResponseBroker<'a>> => 0..;
        cluster_id: Option<&'a str> => 2..;
        controller_id: i32 => 1.., or -1;
        topics: Vec<MetadataResponseTopic<'a>> => 0..;
        cluster_authorized_operations: i32 => 8..=10, or -2147483648;
        error_code: i16 => 13..;
    }
}

table! {
    pub struct MetadataResponseBroker<'a> {
        node_id: i32 => 0..;
        host: &'a str => 0..;
        port: i32 => 0..;
        rack: Option<&'a str> => 1..;
    }
}

table! {
    pub struct MetadataResponseTopic<'a> {
        error_code: i16 => 0..;
        name: Option<&'a str> => 0.., null 12..;
        topic_id: Uuid => 10..;
        is_internal: bool => 1..;
        partitions: Vec<MetadataResponsePartition> => 0..;
        topic_authorized_operations: i32 => 8.., or -2147483648;
    }
}

table! {
    pub struct MetadataResponsePartition {
        error_code: i16 => 0..;
        partition_index: i32 => 0..;
        leader_id: i32 => 0..;
        leader_epoch: i32 => 7.., or -1;
        replica_nodes: Vec<i32> => 0..;
        isr_nodes: Vec<i32> => 0..;
        offline_replicas: Vec<i32> => 5..;
    }
}
message!(MetadataResponse<'a>, Some(3), 0..=13, 9);
