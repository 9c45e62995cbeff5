//! DeleteAcls. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DeleteAclsRequest<'a> {
        filters: Vec<DeleteAclsFilter<'a>> => 1..;
    }
}

table! {
    pub struct DeleteAclsFilter<'a> {
        resource_type_filter: i8 => 1..;
        resource_name_filter: Option<&'a str> => 1..;
        pattern_type_filter: i8 => 1.., or 3;
        principal_filter: Option<&'a str> => 1..;
        host_filter: Option<&'a str> => 1..;
        operation: i8 => 1..;
        permission_type: i8 => 1..;
    }
}
message!(DeleteAclsRequest<'a>, Some(31), 1..=3, 2);

table! {
    pub struct DeleteAclsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        filter_results: Vec<DeleteAclsFilterResult<'a>> => 1..;
    }
}

table! {
    pub struct DeleteAclsFilterResult<'a> {
        error_code: i16 => 1..;
        error_message: Option<&'a str> => 1..;
        matching_acls: Vec<DeleteAclsMatchingAcl<'a>> => 1..;
    }
}

table! {
    pub struct DeleteAclsMatchingAcl<'a> {
        error_code: i16 => 1..;
        error_message: Option<&'a str> => 1..;
        resource_type: i8 => 1..;
        resource_name: &'a str => 1..;
        pattern_type: i8 => 1.., or 3;
        principal: &'a str => 1..;
        host: &'a str => 1..;
        operation: i8 => 1..;
        permission_type: i8 => 1..;
    }
}
message!(DeleteAclsResponse<'a>, Some(31), 1..=3, 2);
