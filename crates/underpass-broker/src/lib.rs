//! What a Kafka-compatible broker decides, so far: consumer groups.

#![forbid(unsafe_code)]

pub mod group;
