//! SyncGroup. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct SyncGroupRequest<'a> {
        group_id: &'a str => 0..;
        generation_id: i32 => 0..;
        member_id: &'a str => 0..;
        group_instance_id: Option<&'a str> => 3..;
        protocol_type: Option<&'a str> => 5..;
        protocol_name: Option<&'a str> => 5..;
        assignments: Vec<SyncGroupRequestAssignment<'a>> => 0..;
    }
}

table! {
    pub struct SyncGroupRequestAssignment<'a> {
        member_id: &'a str => 0..;
        assignment: &'a [u8] => 0..;
    }
}
message!(SyncGroupRequest<'a>, Some(14), 0..=5, 4);

table! {
    pub struct SyncGroupResponse<'a> {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
        protocol_type: Option<&'a str> => 5..;
        protocol_name: Option<&'a str> => 5..;
        assignment: &'a [u8] => 0..;
    }
}
message!(SyncGroupResponse<'a>, Some(14), 0..=5, 4);
