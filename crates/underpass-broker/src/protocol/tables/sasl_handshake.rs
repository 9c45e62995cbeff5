//! SaslHandshake. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct SaslHandshakeRequest<'a> {
        mechanism: &'a str => 0..;
    }
}
message!(SaslHandshakeRequest<'a>, Some(17), 0..=1, 32767);

table! {
    pub struct SaslHandshakeResponse<'a> {
        error_code: i16 => 0..;
        mechanisms: Vec<&'a str> => 0..;
    }
}
message!(SaslHandshakeResponse<'a>, Some(17), 0..=1, 32767);
