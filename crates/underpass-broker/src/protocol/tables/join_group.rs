//! JoinGroup. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct JoinGroupRequest<'a> {
        group_id: &'a str => 0..;
        session_timeout_ms: i32 => 0..;
        rebalance_timeout_ms: i32 => 1.., or -1;
        member_id: &'a str => 0..;
        group_instance_id: Option<&'a str> => 5..;
        protocol_type: &'a str => 0..;
        protocols: Vec<JoinGroupRequestProtocol<'a>> => 0..;
        reason: Option<&'a str> => 8..;
    }
}

table! {
    pub struct JoinGroupRequestProtocol<'a> {
        name: &'a str => 0..;
        metadata: &'a [u8] => 0..;
    }
}
message!(JoinGroupRequest<'a>, Some(11), 0..=9, 6);

table! {
    pub struct JoinGroupResponse<'a> {
        throttle_time_ms: i32 => 2..;
        error_code: i16 => 0..;
        generation_id: i32 => 0.., or -1;
        protocol_type: Option<&'a str> => 7..;
        protocol_name: Option<&'a str> => 0.., null 7..;
        leader: &'a str => 0..;
        skip_assignment: bool => 9..;
        member_id: &'a str => 0..;
        members: Vec<JoinGroupResponseMember<'a>> => 0..;
    }
}

table! {
    pub struct JoinGroupResponseMember<'a> {
        member_id: &'a str => 0..;
        group_instance_id: Option<&'a str> => 5..;
        metadata: &'a [u8] => 0..;
    }
}
message!(JoinGroupResponse<'a>, Some(11), 0..=9, 6);
