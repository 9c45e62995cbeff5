//! DeleteGroups. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DeleteGroupsRequest<'a> {
        groups_names: Vec<&'a str> => 0..;
    }
}
message!(DeleteGroupsRequest<'a>, Some(42), 0..=2, 2);

table! {
    pub struct DeleteGroupsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        results: Vec<DeleteGroupsResponseDeletableGroupResult<'a>> => 0..;
    }
}

table! {
    pub struct DeleteGroupsResponseDeletableGroupResult<'a> {
        group_id: &'a str => 0..;
        error_code: i16 => 0..;
    }
}
message!(DeleteGroupsResponse<'a>, Some(42), 0..=2, 2);
