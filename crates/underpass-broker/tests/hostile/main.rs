//! Hostile and faulty clients: whatever they send, the broker serves others, does not panic, takes
//! a bounded amount of memory, and returns the same error as Kafka, or closes the connection.

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

/// The memory limit of an unoptimized broker without large requests, in bytes.
const MEMORY_MAX: usize = 128 << 20;

/// The broker of the other tests.
#[test]
fn broker_process() {
    support::broker::run_if_asked();
}
