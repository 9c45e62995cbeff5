//! DescribeConfigs. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeConfigsRequest<'a> {
        resources: Vec<DescribeConfigsResource<'a>> => 1..;
        include_synonyms: bool => 1..;
        include_documentation: bool => 3..;
    }
}

table! {
    pub struct DescribeConfigsResource<'a> {
        resource_type: i8 => 1..;
        resource_name: &'a str => 1..;
        configuration_keys: Option<Vec<&'a str>> => 1..;
    }
}
message!(DescribeConfigsRequest<'a>, Some(32), 1..=4, 4);

table! {
    pub struct DescribeConfigsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        results: Vec<DescribeConfigsResult<'a>> => 1..;
    }
}

table! {
    pub struct DescribeConfigsResult<'a> {
        error_code: i16 => 1..;
        error_message: Option<&'a str> => 1..;
        resource_type: i8 => 1..;
        resource_name: &'a str => 1..;
        configs: Vec<DescribeConfigsResourceResult<'a>> => 1..;
    }
}

table! {
    pub struct DescribeConfigsResourceResult<'a> {
        name: &'a str => 1..;
        value: Option<&'a str> => 1..;
        read_only: bool => 1..;
        config_source: i8 => 1.., or -1;
        is_sensitive: bool => 1..;
        synonyms: Vec<DescribeConfigsSynonym<'a>> => 1..;
        config_type: i8 => 3..;
        documentation: Option<&'a str> => 3..;
    }
}

table! {
    pub struct DescribeConfigsSynonym<'a> {
        name: &'a str => 1..;
        value: Option<&'a str> => 1..;
        source: i8 => 1..;
    }
}
message!(DescribeConfigsResponse<'a>, Some(32), 1..=4, 4);
