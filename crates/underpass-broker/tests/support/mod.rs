//! Support for tests with a broker: a broker in a separate process, and clients.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod batch;
pub(crate) mod broker;
pub(crate) mod client;
pub(crate) mod login;
