//! `underpass broker` as a process: the calls that move records, listeners, failures of the disk
//! and of power, and everything an operator sees.
//!
//! ```text
//! fetches  handover  listeners  logins  faults  crashes  metrics  operation
//!    └─────────┴─────────┴────────┴───┬───┴───────┴────────┴─────────┘
//!                                server, tls
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
mod clients;
mod crashes;
mod faults;
mod fetches;
mod handover;
mod listeners;
mod logins;
mod metrics;
mod operation;
mod server;
mod tls;

/// Clients of Kafka's protocol, and record batches.
#[path = "../../../underpass-broker/tests/support/mod.rs"]
mod support;
