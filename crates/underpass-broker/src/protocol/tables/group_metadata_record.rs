//! A record of __consumer_offsets. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct GroupMetadataKey<'a> {
        group: &'a str => 0..;
    }
}
message!(GroupMetadataKey<'a>, Some(2), 0..=0, 32767);

table! {
    pub struct GroupMetadataValue<'a> {
        protocol_type: &'a str => 0..;
        generation: i32 => 0..;
        protocol: Option<&'a str> => 0..;
        leader: Option<&'a str> => 0..;
        current_state_timestamp: i64 => 2.., or -1;
        members: Vec<GroupMetadataMemberMetadata<'a>> => 0..;
    }
}

table! {
    pub struct GroupMetadataMemberMetadata<'a> {
        member_id: &'a str => 0..;
        group_instance_id: Option<&'a str> => 3..;
        client_id: &'a str => 0..;
        client_host: &'a str => 0..;
        rebalance_timeout: i32 => 1.., or -1;
        session_timeout: i32 => 0..;
        subscription: &'a [u8] => 0..;
        assignment: &'a [u8] => 0..;
    }
}
message!(GroupMetadataValue<'a>, Some(2), 0..=4, 4);
