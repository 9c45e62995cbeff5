//! Heartbeat. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct HeartbeatRequest<'a> {
        group_id: &'a str => 0..;
        generation_id: i32 => 0..;
        member_id: &'a str => 0..;
        group_instance_id: Option<&'a str> => 3..;
    }
}
message!(HeartbeatRequest<'a>, Some(12), 0..=4, 4);

table! {
    pub struct HeartbeatResponse {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
    }
}
message!(HeartbeatResponse, Some(12), 0..=4, 4);
