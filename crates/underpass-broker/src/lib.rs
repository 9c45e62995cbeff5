//! What a Kafka-compatible broker decides, so far: its protocol and consumer groups.

#![forbid(unsafe_code)]

pub mod group;
pub mod protocol;
