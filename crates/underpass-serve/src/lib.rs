//! The HTTP file server of Underpass: GET and HEAD over HTTP/1.1, bodies moved by the kernel.
//!
//! ```text
//!  bytes ─► a head (http) ─┐                       pure: tables and properties test it
//!                          ├─► answer/decide ─► answer/writer ─► outbox
//!  path ─► site/resolve ───┘   (conditions, ranges)              (heads and file ranges)
//! ```
//!
//! The folders, each of which imports only those below it:
//!
//! ```text
//!  server       starts, reloads and stops
//!  connection   runs the exchanges, and uploads
//!  answer       decides and writes; body: listings, archives and compressed bodies
//!  site         finds files beneath a root, by its compiled rules
//!  metrics      counts; https: certificates and redirects
//!  options      the configuration as a whole; log: the access log
//!  record       what log and metrics show of an exchange
//!  access       controls access; rules: the parts of a site's configuration
//! ```
//!
//! Messages are in `underpass-http`, sockets, workers and deadlines in `underpass-net`, moving
//! bytes in `underpass`.

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
mod https;
mod limits;
mod log;
mod metrics;
mod options;
mod record;
pub mod rules;
mod server;
mod site;

pub use access::grantee::Grantee;
pub use access::options::{AccessCache, AccessOptions, OneLogin};
pub use access::rules::{AccessMethod, AccessRule, TreePattern};
pub use access::tools::{NewToken, new_token, password_line, signed_link};
pub use record::explain::Explain;

pub use access::forwarded::{ClientPlace, client};
pub use error::Error;
pub use https::CertificatePin;
pub use limits::RequestLimits;
pub use log::{Access, LogFormat, LogOptions, LogReopen};
pub use options::listen::HttpListen;
pub use options::uploads::{FileMode, FolderPath, UploadOptions};
pub use options::{ServerOptions, SiteOptions};
pub use rules::TypeOptions;
pub use underpass_http::fields::coding::Coding;
pub use underpass_http::scheme::Scheme;
pub use underpass_monitor::{StatusAddress, StatusOptions};

pub use connection::worker::Worker;
pub use metrics::worker_metrics::ServeSummary;
pub use options::settings::ConfigOverride;
pub use server::{FileServer, serve, serve_on, warnings};
pub use site::access_check::{AccessDecision, AccessQuestion, decide_access, link_warnings};

/// Checks `options`: returns everything that cannot be served. Opens the same files as [`serve`],
/// but binds no port and starts nothing.
///
/// # Errors
/// None: mistakes are returned as the result, an empty list if none were found.
pub fn check(options: &ServerOptions) -> Vec<Error> {
    let mut wrong = site::check::check(&options.sites);
    wrong.extend(server::address_conflicts(options));
    wrong.extend(https::check(options));
    wrong.extend(site::access_check::mistakes(options));
    wrong.extend(site::access_check::unreadable(options));
    wrong.extend(site::upload_check::mistakes(options));
    wrong
}
