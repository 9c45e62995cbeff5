//! AlterConfigs. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct AlterConfigsRequest<'a> {
        resources: Vec<AlterConfigsResource<'a>> => 0..;
        validate_only: bool => 0..;
    }
}

table! {
    pub struct AlterConfigsResource<'a> {
        resource_type: i8 => 0..;
        resource_name: &'a str => 0..;
        configs: Vec<AlterConfigsAlterableConfig<'a>> => 0..;
    }
}

table! {
    pub struct AlterConfigsAlterableConfig<'a> {
        name: &'a str => 0..;
        value: Option<&'a str> => 0..;
    }
}
message!(AlterConfigsRequest<'a>, Some(33), 0..=2, 2);

table! {
    pub struct AlterConfigsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        responses: Vec<AlterConfigsResourceResponse<'a>> => 0..;
    }
}

table! {
    pub struct AlterConfigsResourceResponse<'a> {
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        resource_type: i8 => 0..;
        resource_name: &'a str => 0..;
    }
}
message!(AlterConfigsResponse<'a>, Some(33), 0..=2, 2);
