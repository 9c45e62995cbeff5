//! `underpass broker` as a process: which calls records travel by, where it listens, what it does
//! when the disk or the power fails, and what an operator sees.
//!
//! ```text
//! fetches  listeners  faults  crashes  metrics  operation
//!    └─────────┴────────┴───┬───┴────────┴─────────┘
//!                      server, tls
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
mod crashes;
mod faults;
mod fetches;
mod listeners;
mod metrics;
mod operation;
mod server;
mod tls;

/// Clients of Kafka's protocol, and record batches.
#[path = "../../../underpass-broker/tests/support/mod.rs"]
mod support;
