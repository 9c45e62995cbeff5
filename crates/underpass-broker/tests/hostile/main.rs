//! Clients that mean harm, or do it: whatever they send, the broker answers others, does not panic,
//! takes a bounded amount of memory, and says what was wrong as Kafka does, or ends the connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod crowds;
mod fetches;
mod frames;
mod groups;
mod lost_files;
mod memory;
mod nulls;
mod produces;
mod requests;
#[path = "../support/mod.rs"]
mod support;
mod timestamps;
mod topics;
mod unsupported;

/// What a broker may take that has been sent nothing large. It runs without optimizations.
const MEMORY_MAX: usize = 128 << 20;

/// The broker of the other tests.
#[test]
fn broker_process() {
    support::broker::run_if_asked();
}
