//! Whether a connection is kept after a message.

use crate::version::HttpVersion;

/// Whether the connection is kept after a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Persistence {
    /// Another request may follow.
    KeepAlive,
    /// The connection is closed after the response.
    Close,
}

/// Decides whether the connection persists: RFC 9112, section 9.3.
pub(crate) fn persistence(connection: Option<&[u8]>, version: HttpVersion) -> Persistence {
    let asks_for = |option: &str| {
        let mut options = connection.unwrap_or_default().split(|&byte| byte == b',');
        options.any(|named| named.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
    };
    match version {
        _ if asks_for("close") => Persistence::Close,
        HttpVersion::Http11 => Persistence::KeepAlive,
        HttpVersion::Http10 if asks_for("keep-alive") => Persistence::KeepAlive,
        HttpVersion::Http10 => Persistence::Close,
    }
}
