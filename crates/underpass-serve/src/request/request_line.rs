//! The request line: method, target, version, one space between them and nothing else.

use std::ops::Range;

use crate::http::status::{HttpError, Status};

/// A request line in three parts. The target is not parsed yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RequestLine {
    pub(crate) method: Method,
    /// Where the target is within the line.
    pub(crate) target: Range<usize>,
    pub(crate) version: HttpVersion,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Method {
    Get,
    Head,
    Options,
    /// A known method that this server does not allow.
    Disabled,
    /// A known method whose target is no path, not allowed either.
    Connect,
    /// A token that names no method known here.
    Unknown,
}

/// The protocol of a request. A higher minor version is answered like 1.1 (RFC 9110, section 2.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HttpVersion {
    Http10,
    Http11,
}

impl RequestLine {
    /// Parses the line, given without its line end.
    pub(crate) fn parse(line: &[u8]) -> Result<RequestLine, HttpError> {
        let mut parts = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(HttpError::bad(
                "the request line is not METHOD TARGET VERSION",
            ));
        };
        if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) {
            return Err(HttpError::bad("the method is not a token"));
        }
        if target.is_empty() || !target.iter().all(|&byte| is_target(byte)) {
            return Err(HttpError::bad("the target contains an invalid character"));
        }
        let start = method.len() + 1;
        Ok(RequestLine {
            method: Method::parse(method),
            target: start..start + target.len(),
            version: HttpVersion::parse(version)?,
        })
    }

    /// Bytes of the line without its line end: the version is `HTTP/x.y`.
    pub(crate) fn length(&self) -> usize {
        self.target.end + " HTTP/1.1".len()
    }
}

impl Method {
    fn parse(token: &[u8]) -> Method {
        match token {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"POST" | b"PUT" | b"DELETE" | b"PATCH" | b"TRACE" => Method::Disabled,
            b"CONNECT" => Method::Connect,
            _ => Method::Unknown,
        }
    }
}

impl HttpVersion {
    fn parse(version: &[u8]) -> Result<HttpVersion, HttpError> {
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

/// RFC 9110, section 5.6.2.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Visible characters and everything beyond ASCII; a fragment never reaches a server.
fn is_target(byte: u8) -> bool {
    (byte > b' ' && byte != 0x7f) && byte != b'#'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_parts_and_one_space_between_them() {
        let text = b"GET /a?b HTTP/1.1";
        let line = RequestLine::parse(text).unwrap();
        assert_eq!(line.method, Method::Get);
        assert_eq!(&text[line.target], b"/a?b");
        assert_eq!(line.version, HttpVersion::Http11);
        for wrong in [
            "GET  /a HTTP/1.1",
            "GET /a  HTTP/1.1",
            "GET /a HTTP/1.1 ",
            " GET /a HTTP/1.1",
            "GET\t/a HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET /a",
            "GET /a#b HTTP/1.1",
            "GET /a\x7f HTTP/1.1",
            "G(T /a HTTP/1.1",
            "",
        ] {
            let error = RequestLine::parse(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.status, Status::BadRequest, "{wrong:?}");
        }
    }

    #[test]
    fn versions_are_one_digit_each() {
        let status = |version: &str| {
            let line = format!("GET / {version}");
            RequestLine::parse(line.as_bytes())
                .map(|line| line.version)
                .map_err(|error| error.status)
        };
        assert_eq!(status("HTTP/1.0"), Ok(HttpVersion::Http10));
        assert_eq!(status("HTTP/1.2"), Ok(HttpVersion::Http11));
        assert_eq!(status("HTTP/2.0"), Err(Status::VersionNotSupported));
        for wrong in [
            "HTTP/1.10",
            "http/1.1",
            "HTTP/01.1",
            "HTTP/1.1x",
            "HTTP/1",
            "HTTP/1.",
        ] {
            assert_eq!(status(wrong), Err(Status::BadRequest), "{wrong}");
        }
    }
}
