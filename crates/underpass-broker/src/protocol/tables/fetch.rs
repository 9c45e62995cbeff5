//! Fetch. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct FetchRequest<'a> {
        cluster_id: Option<&'a str> => 12.., tag 0 or Default::default();
        replica_id: i32 => 4..=14, or -1;
        replica_state: FetchReplicaState => 15.., tag 1 or Default::default();
        max_wait_ms: i32 => 4..;
        min_bytes: i32 => 4..;
        max_bytes: i32 => 4.., or 0x7fffffff;
        isolation_level: i8 => 4..;
        session_id: i32 => 7..;
        session_epoch: i32 => 7.., or -1;
        topics: Vec<FetchTopic<'a>> => 4..;
        forgotten_topics_data: Vec<FetchForgottenTopic<'a>> => 7..;
        rack_id: &'a str => 11..;
    }
}

table! {
    pub struct FetchReplicaState {
        replica_id: i32 => 15.., or -1;
        replica_epoch: i64 => 15.., or -1;
    }
}

table! {
    pub struct FetchTopic<'a> {
        topic: &'a str => 4..=12;
        topic_id: Uuid => 13..;
        partitions: Vec<FetchPartition> => 4..;
    }
}

table! {
    pub struct FetchPartition {
        partition: i32 => 4..;
        current_leader_epoch: i32 => 9.., or -1;
        fetch_offset: i64 => 4..;
        last_fetched_epoch: i32 => 12.., or -1;
        log_start_offset: i64 => 5.., or -1;
        partition_max_bytes: i32 => 4..;
        replica_directory_id: Uuid => 17.., tag 0 or Default::default();
        high_watermark: i64 => 18.., tag 1 or 9223372036854775807;
    }
}

table! {
    pub struct FetchForgottenTopic<'a> {
        topic: &'a str => 7..=12;
        topic_id: Uuid => 13..;
        partitions: Vec<i32> => 7..;
    }
}
message!(FetchRequest<'a>, Some(1), 4..=18, 12);

table! {
    pub struct FetchResponse<'a> {
        throttle_time_ms: i32 => 4..;
        error_code: i16 => 7..;
        session_id: i32 => 7..;
        responses: Vec<FetchableTopicResponse<'a>> => 4..;
        node_endpoints: Vec<FetchResponseNodeEndpoint<'a>> => 16.., tag 0 or Default::default();
    }
}

table! {
    pub struct FetchableTopicResponse<'a> {
        topic: &'a str => 4..=12;
        topic_id: Uuid => 13..;
        partitions: Vec<FetchResponsePartitionData<'a>> => 4..;
    }
}

table! {
    pub struct FetchResponsePartitionData<'a> {
        partition_index: i32 => 4..;
        error_code: i16 => 4..;
        high_watermark: i64 => 4..;
        last_stable_offset: i64 => 4.., or -1;
        log_start_offset: i64 => 5.., or -1;
        diverging_epoch: FetchResponseEpochEndOffset => 12.., tag 0 or Default::default();
        current_leader: FetchResponseLeaderIdAndEpoch => 12.., tag 1 or Default::default();
        snapshot_id: FetchResponseSnapshotId => 12.., tag 2 or Default::default();
        aborted_transactions: Option<Vec<FetchResponseAbortedTransaction>> => 4..;
        preferred_read_replica: i32 => 11.., or -1;
        records: Records<'a> => 4..;
    }
}

table! {
    pub struct FetchResponseEpochEndOffset {
        epoch: i32 => 12.., or -1;
        end_offset: i64 => 12.., or -1;
    }
}

table! {
    pub struct FetchResponseLeaderIdAndEpoch {
        leader_id: i32 => 12.., or -1;
        leader_epoch: i32 => 12.., or -1;
    }
}

table! {
    pub struct FetchResponseSnapshotId {
        end_offset: i64 => 4.., or -1;
        epoch: i32 => 4.., or -1;
    }
}

table! {
    pub struct FetchResponseAbortedTransaction {
        producer_id: i64 => 4..;
        first_offset: i64 => 4..;
    }
}

table! {
    pub struct FetchResponseNodeEndpoint<'a> {
        node_id: i32 => 16..;
        host: &'a str => 16..;
        port: i32 => 16..;
        rack: Option<&'a str> => 16..;
    }
}
message!(FetchResponse<'a>, Some(1), 4..=18, 12);
