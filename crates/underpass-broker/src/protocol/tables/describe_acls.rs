//! DescribeAcls. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeAclsRequest<'a> {
        resource_type_filter: i8 => 1..;
        resource_name_filter: Option<&'a str> => 1..;
        pattern_type_filter: i8 => 1.., or 3;
        principal_filter: Option<&'a str> => 1..;
        host_filter: Option<&'a str> => 1..;
        operation: i8 => 1..;
        permission_type: i8 => 1..;
    }
}
message!(DescribeAclsRequest<'a>, Some(29), 1..=3, 2);

table! {
    pub struct DescribeAclsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 1..;
        error_message: Option<&'a str> => 1..;
        resources: Vec<DescribeAclsResource<'a>> => 1..;
    }
}

table! {
    pub struct DescribeAclsResource<'a> {
        resource_type: i8 => 1..;
        resource_name: &'a str => 1..;
        pattern_type: i8 => 1.., or 3;
        acls: Vec<DescribeAclsResponseAclDescription<'a>> => 1..;
    }
}

table! {
    pub struct DescribeAclsResponseAclDescription<'a> {
        principal: &'a str => 1..;
        host: &'a str => 1..;
        operation: i8 => 1..;
        permission_type: i8 => 1..;
    }
}
message!(DescribeAclsResponse<'a>, Some(29), 1..=3, 2);
