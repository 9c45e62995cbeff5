//! What tests that talk to a broker share: a broker in a process of its own, and clients.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod batch;
pub(crate) mod broker;
pub(crate) mod client;
