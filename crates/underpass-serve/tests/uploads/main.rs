//! Uploads, seen by clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/nginx.rs"]
mod nginx;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;

mod attacks;
mod browser;
mod client;
mod conditions;
mod controls;
mod cuts;
mod form;
mod ietf;
mod limits;
mod page;
mod process;
mod put;
mod secure;
mod tree;
mod tus;
