//! ApiVersions. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct ApiVersionsRequest<'a> {
        client_software_name: &'a str => 3..;
        client_software_version: &'a str => 3..;
    }
}
message!(ApiVersionsRequest<'a>, Some(18), 0..=4, 3);

table! {
    pub struct ApiVersionsResponse<'a> {
        error_code: i16 => 0..;
        api_keys: Vec<ApiVersionsResponseApiVersion> => 0..;
        throttle_time_ms: i32 => 1..;
        supported_features: Vec<ApiVersionsResponseSupportedFeatureKey<'a>> => 3..
           , tag 0 or Default::default();
        finalized_features_epoch: i64 => 3.., tag 1 or -1;
        finalized_features: Vec<ApiVersionsResponseFinalizedFeatureKey<'a>> => 3..
           , tag 2 or Default::default();
        zk_migration_ready: bool => 3.., tag 3 or Default::default();
    }
}

table! {
    pub struct ApiVersionsResponseApiVersion {
        api_key: i16 => 0..;
        min_version: i16 => 0..;
        max_version: i16 => 0..;
    }
}

table! {
    pub struct ApiVersionsResponseSupportedFeatureKey<'a> {
        name: &'a str => 3..;
        min_version: i16 => 3..;
        max_version: i16 => 3..;
    }
}

table! {
    pub struct ApiVersionsResponseFinalizedFeatureKey<'a> {
        name: &'a str => 3..;
        max_version_level: i16 => 3..;
        min_version_level: i16 => 3..;
    }
}
message!(ApiVersionsResponse<'a>, Some(18), 0..=4, 3);
