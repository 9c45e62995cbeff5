//! Other programs: nginx, whose responses are compared, and clients, decoders and browsers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod archive;
mod compressed;
mod differences;
mod generated;
mod https;
mod listing;
#[path = "../support/nginx.rs"]
mod nginx;
mod oracle;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;
