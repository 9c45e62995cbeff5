//! A server in operation: limits, deadlines, shutdown, reload, log, metrics, memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod connections;
mod log;
mod memory;
mod metrics;
mod reload;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;
