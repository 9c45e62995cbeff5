//! The head of a response: parsed by `httparse`, and checked against the request.

use super::request::ConnectionReuse;
use crate::error::{Error, Result};

/// More headers than any file server sends; more of them are an error.
const HEADERS_MAX: usize = 32;

/// The framing of the body after a complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseFacts {
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: u64,
}

/// Parses the start of a response. `None`: the head is not complete yet.
///
/// Anything but a 200 with a length is an error, and so is closing a connection that should stay
/// open.
pub(crate) fn parse_head(received: &[u8], reuse: ConnectionReuse) -> Result<Option<ResponseFacts>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let status = response
        .parse(received)
        .map_err(|e| wrong(format!("malformed head: {e}")))?;
    let httparse::Status::Complete(head_bytes) = status else {
        return Ok(None);
    };
    match response.code {
        Some(200) => {}
        code => return Err(wrong(format!("status {}", code.unwrap_or_default()))),
    }
    if response.version == Some(0) {
        return Err(wrong(
            "HTTP/1.0, which has no persistent connections".into(),
        ));
    }
    let body_bytes = body_length(response.headers, reuse)?;
    Ok(Some(ResponseFacts {
        head_bytes,
        body_bytes,
    }))
}

fn body_length(headers: &[httparse::Header<'_>], reuse: ConnectionReuse) -> Result<u64> {
    let mut length = None;
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let digits = std::str::from_utf8(header.value)
                .ok()
                .and_then(|v| v.trim().parse().ok());
            let value = digits.ok_or_else(|| wrong("Content-Length is not a number".into()))?;
            if length
                .replace(value)
                .is_some_and(|earlier: u64| earlier != value)
            {
                return Err(wrong("two different lengths".into()));
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(wrong(
                "a body with Transfer-Encoding instead of Content-Length".into(),
            ));
        } else if reuse == ConnectionReuse::KeepAlive
            && header.name.eq_ignore_ascii_case("connection")
            && header.value.eq_ignore_ascii_case(b"close")
        {
            return Err(wrong(
                "the server closes a connection that should stay open".into(),
            ));
        }
    }
    length.ok_or_else(|| wrong("no Content-Length".into()))
}

fn wrong(what: String) -> Error {
    Error::Answer(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_head_says_where_the_body_starts_and_how_long_it_is() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: keep-alive\r\n\r\nhello";
        let head = parse_head(answer, ConnectionReuse::KeepAlive)
            .unwrap()
            .unwrap();
        assert_eq!(
            head,
            ResponseFacts {
                head_bytes: answer.len() - 5,
                body_bytes: 5
            }
        );
    }

    #[test]
    fn a_head_split_anywhere_is_incomplete_until_its_end() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
        for cut in 0..head.len() {
            let parsed = parse_head(&head[..cut], ConnectionReuse::KeepAlive);
            assert_eq!(parsed.unwrap(), None, "cut at {cut}");
        }
        assert!(
            parse_head(head, ConnectionReuse::KeepAlive)
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn what_is_not_a_plain_200_is_an_error() {
        for head in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            let parsed = parse_head(head.as_bytes(), ConnectionReuse::KeepAlive);
            assert!(parsed.is_err(), "{head:?}");
        }
    }

    #[test]
    fn a_close_is_accepted_where_it_was_requested() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
        assert!(parse_head(head, ConnectionReuse::KeepAlive).is_err());
        assert!(
            parse_head(head, ConnectionReuse::PerRequest)
                .unwrap()
                .is_some()
        );
    }
}
