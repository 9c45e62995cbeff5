//! LeaveGroup. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct LeaveGroupRequest<'a> {
        group_id: &'a str => 0..;
        member_id: &'a str => 0..=2;
        members: Vec<LeaveGroupMemberIdentity<'a>> => 3..;
    }
}

table! {
    pub struct LeaveGroupMemberIdentity<'a> {
        member_id: &'a str => 3..;
        group_instance_id: Option<&'a str> => 3..;
        reason: Option<&'a str> => 5..;
    }
}
message!(LeaveGroupRequest<'a>, Some(13), 0..=5, 4);

table! {
    pub struct LeaveGroupResponse<'a> {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
        members: Vec<LeaveGroupResponseMemberResponse<'a>> => 3..;
    }
}

table! {
    pub struct LeaveGroupResponseMemberResponse<'a> {
        member_id: &'a str => 3..;
        group_instance_id: Option<&'a str> => 3..;
        error_code: i16 => 3..;
    }
}
message!(LeaveGroupResponse<'a>, Some(13), 0..=5, 4);
