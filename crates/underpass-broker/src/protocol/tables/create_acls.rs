//! CreateAcls. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct CreateAclsRequest<'a> {
        creations: Vec<CreateAclsAclCreation<'a>> => 1..;
    }
}

table! {
    pub struct CreateAclsAclCreation<'a> {
        resource_type: i8 => 1..;
        resource_name: &'a str => 1..;
        resource_pattern_type: i8 => 1.., or 3;
        principal: &'a str => 1..;
        host: &'a str => 1..;
        operation: i8 => 1..;
        permission_type: i8 => 1..;
    }
}
message!(CreateAclsRequest<'a>, Some(30), 1..=3, 2);

table! {
    pub struct CreateAclsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        results: Vec<CreateAclsResponseAclCreationResult<'a>> => 1..;
    }
}

table! {
    pub struct CreateAclsResponseAclCreationResult<'a> {
        error_code: i16 => 1..;
        error_message: Option<&'a str> => 1..;
    }
}
message!(CreateAclsResponse<'a>, Some(30), 1..=3, 2);
