//! Access control.
//!
//! ```text
//!  Authorization ─► credentials ─► passwords (verifier: a thread), tokens ─┐
//!  ?signed=, Cookie ─► links ──────────────────────────────────────────────┼─► Asker
//!  client certificate, address ────────────────────────────────────────────┘     │
//!                                                        path, method ─► rules ◄─┘
//! ```
//!
//! `site` holds the files of every site (`store`) and checks the rules for each name that a request
//! resolves to (`permits`); `connection` identifies the requester.

pub(crate) mod audience;
pub(crate) mod credentials;
pub(crate) mod failures;
pub(crate) mod forwarded;
pub(crate) mod grantee;
pub(crate) mod links;
pub(crate) mod options;
pub(crate) mod passwords;
pub(crate) mod permits;
pub(crate) mod random;
pub(crate) mod rules;
pub(crate) mod store;
pub(crate) mod tokens;
pub(crate) mod tools;
pub(crate) mod verifier;

/// Formats part of a line for a message. Text as long as a hash may be a hash in the wrong place,
/// and is not shown.
fn shown(text: &str) -> String {
    match text.chars().count() {
        length if length > SHOWN_MAX => format!("of {length} characters"),
        _ => format!("{text:?}"),
    }
}

const SHOWN_MAX: usize = 40;

/// Returns the lines of a file that are neither empty nor comments, numbered from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(number, line)| (number + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}
