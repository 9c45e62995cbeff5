//! DescribeGroups. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeGroupsRequest<'a> {
        groups: Vec<&'a str> => 0..;
        include_authorized_operations: bool => 3..;
    }
}
message!(DescribeGroupsRequest<'a>, Some(15), 0..=6, 5);

table! {
    pub struct DescribeGroupsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        groups: Vec<DescribeGroupsResponseDescribedGroup<'a>> => 0..;
    }
}

table! {
    pub struct DescribeGroupsResponseDescribedGroup<'a> {
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 6..;
        group_id: &'a str => 0..;
        group_state: &'a str => 0..;
        protocol_type: &'a str => 0..;
        protocol_data: &'a str => 0..;
        members: Vec<DescribeGroupsResponseDescribedGroupMember<'a>> => 0..;
        authorized_operations: i32 => 3.., or -2147483648;
    }
}

table! {
    pub struct DescribeGroupsResponseDescribedGroupMember<'a> {
        member_id: &'a str => 0..;
        group_instance_id: Option<&'a str> => 4..;
        client_id: &'a str => 0..;
        client_host: &'a str => 0..;
        member_metadata: &'a [u8] => 0..;
        member_assignment: &'a [u8] => 0..;
    }
}
message!(DescribeGroupsResponse<'a>, Some(15), 0..=6, 5);
