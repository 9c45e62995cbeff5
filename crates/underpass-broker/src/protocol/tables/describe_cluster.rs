//! DescribeCluster. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeClusterRequest {
        include_cluster_authorized_operations: bool => 0..;
        endpoint_type: i8 => 1.., or 1;
        include_fenced_brokers: bool => 2..;
    }
}
message!(DescribeClusterRequest, Some(60), 0..=2, 0);

table! {
    pub struct DescribeClusterResponse<'a> {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        endpoint_type: i8 => 1.., or 1;
        cluster_id: &'a str => 0..;
        controller_id: i32 => 0.., or -1;
        brokers: Vec<DescribeClusterBroker<'a>> => 0..;
        cluster_authorized_operations: i32 => 0.., or -2147483648;
    }
}

table! {
    pub struct DescribeClusterBroker<'a> {
        broker_id: i32 => 0..;
        host: &'a str => 0..;
        port: i32 => 0..;
        rack: Option<&'a str> => 0..;
        is_fenced: bool => 2..;
    }
}
message!(DescribeClusterResponse<'a>, Some(60), 0..=2, 0);
