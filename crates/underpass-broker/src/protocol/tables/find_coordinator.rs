//! FindCoordinator. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct FindCoordinatorRequest<'a> {
        key: &'a str => 0..=3;
        key_type: i8 => 1..;
        coordinator_keys: Vec<&'a str> => 4..;
    }
}
message!(FindCoordinatorRequest<'a>, Some(10), 0..=6, 3);

table! {
    pub struct FindCoordinatorResponse<'a> {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..=3;
        error_message: Option<&'a str> => 1..=3;
        node_id: i32 => 0..=3;
        host: &'a str => 0..=3;
        port: i32 => 0..=3;
        coordinators: Vec<FindCoordinatorResponseCoordinator<'a>> => 4..;
    }
}

table! {
    pub struct FindCoordinatorResponseCoordinator<'a> {
        key: &'a str => 4..;
        node_id: i32 => 4..;
        host: &'a str => 4..;
        port: i32 => 4..;
        error_code: i16 => 4..;
        error_message: Option<&'a str> => 4..;
    }
}
message!(FindCoordinatorResponse<'a>, Some(10), 0..=6, 3);
