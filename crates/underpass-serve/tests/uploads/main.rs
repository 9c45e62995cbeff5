//! Files that clients send, from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod put;
#[path = "../support/mod.rs"]
mod support;
mod tree;
