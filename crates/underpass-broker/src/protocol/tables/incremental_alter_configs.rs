//! IncrementalAlterConfigs. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct IncrementalAlterConfigsRequest<'a> {
        resources: Vec<IncrementalAlterConfigsAlterConfigsResource<'a>> => 0..;
        validate_only: bool => 0..;
    }
}

table! {
    pub struct IncrementalAlterConfigsAlterConfigsResource<'a> {
        resource_type: i8 => 0..;
        resource_name: &'a str => 0..;
        configs: Vec<IncrementalAlterConfigsAlterableConfig<'a>> => 0..;
    }
}

table! {
    pub struct IncrementalAlterConfigsAlterableConfig<'a> {
        name: &'a str => 0..;
        config_operation: i8 => 0..;
        value: Option<&'a str> => 0..;
    }
}
message!(IncrementalAlterConfigsRequest<'a>, Some(44), 0..=1, 1);

table! {
    pub struct IncrementalAlterConfigsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        responses: Vec<IncrementalAlterConfigsResponseAlterConfigsResourceResponse<'a>> => 0..;
    }
}

table! {
    pub struct IncrementalAlterConfigsResponseAlterConfigsResourceResponse<'a> {
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        resource_type: i8 => 0..;
        resource_name: &'a str => 0..;
    }
}
message!(IncrementalAlterConfigsResponse<'a>, Some(44), 0..=1, 1);
