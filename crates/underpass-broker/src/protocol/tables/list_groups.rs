//! ListGroups. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct ListGroupsRequest<'a> {
        states_filter: Vec<&'a str> => 4..;
        types_filter: Vec<&'a str> => 5..;
    }
}
message!(ListGroupsRequest<'a>, Some(16), 0..=5, 3);

table! {
    pub struct ListGroupsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
        groups: Vec<ListGroupsResponseListedGroup<'a>> => 0..;
    }
}

table! {
    pub struct ListGroupsResponseListedGroup<'a> {
        group_id: &'a str => 0..;
        protocol_type: &'a str => 0..;
        group_state: &'a str => 4..;
        group_type: &'a str => 5..;
    }
}
message!(ListGroupsResponse<'a>, Some(16), 0..=5, 3);
