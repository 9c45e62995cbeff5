//! A record of __consumer_offsets. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct OffsetCommitKey<'a> {
        group: &'a str => 0..;
        topic: &'a str => 0..;
        partition: i32 => 0..;
    }
}
message!(OffsetCommitKey<'a>, Some(1), 0..=0, 32767);

table! {
    pub struct OffsetCommitValue<'a> {
        offset: i64 => 0..;
        leader_epoch: i32 => 3.., or -1;
        metadata: &'a str => 0..;
        commit_timestamp: i64 => 0..;
        expire_timestamp: i64 => 1..=1, or -1;
        topic_id: Uuid => 4.., tag 0 or Default::default();
    }
}
message!(OffsetCommitValue<'a>, Some(1), 0..=4, 4);
