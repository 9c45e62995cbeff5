//! Taking files in, seen by clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
mod support;

mod browser;
mod controls;
mod form;
mod page;
