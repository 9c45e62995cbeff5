//! DescribeLogDirs. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeLogDirsRequest<'a> {
        topics: Option<Vec<DescribeLogDirsDescribableLogDirTopic<'a>>> => 1..;
    }
}

table! {
    pub struct DescribeLogDirsDescribableLogDirTopic<'a> {
        topic: &'a str => 1..;
        partitions: Vec<i32> => 1..;
    }
}
message!(DescribeLogDirsRequest<'a>, Some(35), 1..=5, 2);

table! {
    pub struct DescribeLogDirsResponse<'a> {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 3..;
        results: Vec<DescribeLogDirsResult<'a>> => 1..;
    }
}

table! {
    pub struct DescribeLogDirsResult<'a> {
        error_code: i16 => 1..;
        log_dir: &'a str => 1..;
        topics: Vec<DescribeLogDirsTopic<'a>> => 1..;
        total_bytes: i64 => 4.., or -1;
        usable_bytes: i64 => 4.., or -1;
        is_cordoned: bool => 5..;
    }
}

table! {
    pub struct DescribeLogDirsTopic<'a> {
        name: &'a str => 1..;
        partitions: Vec<DescribeLogDirsPartition> => 1..;
    }
}

table! {
    pub struct DescribeLogDirsPartition {
        partition_index: i32 => 1..;
        partition_size: i64 => 1..;
        offset_lag: i64 => 1..;
        is_future_key: bool => 1..;
    }
}
message!(DescribeLogDirsResponse<'a>, Some(35), 1..=5, 2);
