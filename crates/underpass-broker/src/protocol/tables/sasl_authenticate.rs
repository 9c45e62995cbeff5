//! SaslAuthenticate. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct SaslAuthenticateRequest<'a> {
        auth_bytes: &'a [u8] => 0..;
    }
}
message!(SaslAuthenticateRequest<'a>, Some(36), 0..=2, 2);

table! {
    pub struct SaslAuthenticateResponse<'a> {
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        auth_bytes: &'a [u8] => 0..;
        session_lifetime_ms: i64 => 1..;
    }
}
message!(SaslAuthenticateResponse<'a>, Some(36), 0..=2, 2);
