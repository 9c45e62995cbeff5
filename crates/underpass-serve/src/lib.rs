//! The HTTP file server of Underpass: GET and HEAD over HTTP/1.1, bodies moved by the kernel.
//!
//! ```text
//!  bytes ─► head ─► Request ─┐                        pure: tables and properties test it
//!                            ├─► answer ─► Answer ─► reply ─► outbox
//!  path ─► resolve ─► File ──┘   (conditions, ranges)         (heads and file ranges)
//! ```
//!
//! | folder | concern |
//! |---|---|
//! | `http` | what HTTP defines: statuses, dates, tags, codings, types |
//! | `request` | what a request says, and where it ends |
//! | `options` | what is asked of a server, and what is wrong with it |
//! | `site` | what a path leads to, what is known of a file; [`rules`]: its configuration |
//! | `body` | bodies that are made while they are sent: listings, archives, compressed files |
//! | `answer` | what an answer is and how it is written |
//! | `connection` | the order of it all |
//! | `metrics`, `log`, `monitor` | what is counted and written down |
//! | `fuzz` | what holds for any bytes, for tests and fuzzers |
//!
//! Sockets, workers and deadlines are `underpass-net`'s, moving bytes is `underpass`'s.

#![forbid(unsafe_code)]

mod answer;
mod body;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod http;
mod limits;
mod log;
mod metrics;
mod monitor;
mod options;
mod request;
mod server;
mod site;

pub use answer::explain::Explain;

pub use error::Error;
pub use http::coding::Coding;
pub use limits::RequestLimits;
pub use log::{Access, LogFormat, LogOptions, LogReopen};
pub use monitor::address::{StatusAddress, StatusOptions};
pub use options::{ServerOptions, SiteOptions};
pub use request::forwarded::client;
pub use site::rules::TypeOptions;

pub use connection::worker::Worker;
pub use metrics::worker_metrics::ServeSummary;
pub use options::settings::{ConfigOverride, OverrideSource};
pub use server::{FileServer, serve, serve_on};
pub use site::rules;

/// Checks `options`: returns everything that cannot be served. Opens what [`serve`] would open, but
/// binds no port and starts nothing.
///
/// # Errors
/// None: mistakes are the result, an empty list if there are none.
pub fn check(options: &ServerOptions) -> Vec<Error> {
    site::check::check(&options.sites)
}
