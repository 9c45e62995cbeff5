//! The protocol version.

use crate::status::{HttpError, Status};

/// The protocol version. A higher minor version is treated as 1.1 (RFC 9110, section 2.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HttpVersion {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

impl HttpVersion {
    /// Parses `HTTP/x.y`.
    ///
    /// # Errors
    /// 400 for anything else, 505 for another major version.
    pub fn parse(version: &[u8]) -> Result<HttpVersion, HttpError> {
        let [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] = version else {
            return Err(HttpError::bad("the version is not HTTP/x.y"));
        };
        match (major, minor) {
            (b'1', b'0') => Ok(HttpVersion::Http10),
            (b'1', b'1'..=b'9') => Ok(HttpVersion::Http11),
            (b'0'..=b'9', b'0'..=b'9') => Err(HttpError::new(
                Status::VersionNotSupported,
                "only HTTP/1.0 and HTTP/1.1 are supported",
            )),
            _ => Err(HttpError::bad("the version is not HTTP/x.y")),
        }
    }
}
