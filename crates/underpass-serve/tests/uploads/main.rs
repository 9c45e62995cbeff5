//! Uploads, seen by clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
mod support;

mod attacks;
mod client;
mod cuts;
mod ietf;
mod process;
mod tus;
