//! `underpass serve` as a process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod config;
mod hostile;
mod life;
mod listen;
mod monitoring;
mod process;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod traced;
mod user;
