//! The HTTP file server of Underpass: GET and HEAD over HTTP/1.1, bodies moved by the kernel.
//!
//! ```text
//!  bytes ─► request/head ─┐                        pure: tables and properties test it
//!                         ├─► answer/decide ─► answer/writer ─► outbox
//!  path ─► site/resolve ──┘   (conditions, ranges)              (heads and file ranges)
//! ```
//!
//! `request` parses, `site` finds files beneath a root and holds its configuration ([`rules`]),
//! `answer` decides and writes, `body` produces listings, archives and compressed bodies while they
//! are sent, `connection` runs the exchanges, `access` controls access; `log`, `metrics` and
//! `monitor` record and report them.
//!
//! Sockets, workers and deadlines are in `underpass-net`, moving bytes is in `underpass`.

#![forbid(unsafe_code)]

/// Implements deserialisation from text by `parse`.
macro_rules! deserialize_by_parse {
    ($($name:ident),* $(,)?) => {$(
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<$name, String> {
                $name::parse(&text)
            }
        }
    )*};
}

mod access;
mod answer;
mod body;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
mod http;
mod https;
mod limits;
mod log;
mod metrics;
mod options;
mod request;
mod server;
mod site;

pub use access::check::{AccessDecision, AccessQuestion, decide_access};
pub use access::options::{AccessCache, AccessOptions, OneLogin};
pub use access::tools::{NewToken, link_warnings, new_token, password_line, signed_link};
pub use answer::explain::Explain;

pub use error::Error;
pub use http::coding::Coding;
pub use https::CertificatePin;
pub use limits::RequestLimits;
pub use log::{Access, LogFormat, LogOptions, LogReopen};
pub use options::listen::HttpListen;
pub use options::uploads::{FileMode, FolderPath, UploadOptions};
pub use options::{ServerOptions, SiteOptions};
pub use request::Scheme;
pub use request::forwarded::{ClientPlace, client};
pub use site::rules::TypeOptions;
pub use underpass_monitor::{StatusAddress, StatusOptions};

pub use connection::worker::Worker;
pub use metrics::worker_metrics::ServeSummary;
pub use options::settings::ConfigOverride;
pub use server::{FileServer, serve, serve_on, warnings};
pub use site::rules;

/// Checks `options`: returns everything that cannot be served. Opens the same files as [`serve`],
/// but binds no port and starts nothing.
///
/// # Errors
/// None: mistakes are returned as the result, an empty list if none were found.
pub fn check(options: &ServerOptions) -> Vec<Error> {
    let mut wrong = site::check::check(&options.sites);
    wrong.extend(server::address_conflicts(options));
    wrong.extend(https::check(options));
    wrong.extend(access::check::mistakes(options));
    wrong.extend(access::check::unreadable(options));
    wrong.extend(site::upload_check::mistakes(options));
    wrong
}
