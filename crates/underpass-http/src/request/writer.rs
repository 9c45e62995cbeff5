//! Writes the head of a request: RFC 9112, sections 2 and 3. Nothing that a caller passes can end a
//! line, add a field, or frame the body in another way.

use crate::body::framing::Framing;
use crate::error::MessageError;
use crate::fields::writer::{push_decimal, push_field};
use crate::request::request_line::check_authority;
use crate::token::{is_text, is_token};

/// The fields that the writer writes itself.
const RESERVED: [&str; 3] = ["Host", "Content-Length", "Transfer-Encoding"];

/// A request head in progress.
///
/// # Examples
/// ```
/// use underpass_http::body::framing::Framing;
/// use underpass_http::request::writer::RequestHeadWriter;
///
/// let mut head = RequestHeadWriter::new("PUT", "/a%20b", "[::1]:8080", Framing::Length(5))?;
/// head.field("Content-Type", b"text/plain")?;
/// let text = "PUT /a%20b HTTP/1.1\r\nHost: [::1]:8080\r\nContent-Length: 5\r\n\
///             Content-Type: text/plain\r\n\r\n";
/// assert_eq!(head.finish(), text.as_bytes());
/// # Ok::<(), underpass_http::error::MessageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RequestHeadWriter {
    bytes: Vec<u8>,
}

impl RequestHeadWriter {
    /// Begins a head with the request line, `Host`, and the fields that frame the body.
    ///
    /// `target` is a path with an optional query, percent-encoded, or `*`; `authority` is
    /// `host[:port]`. An empty body has `Content-Length: 0` if the method usually has a body (RFC
    /// 9110, section 8.6).
    ///
    /// # Errors
    /// [`MessageError::Method`], [`MessageError::Target`] and [`MessageError::Host`].
    pub fn new(
        method: &str,
        target: &str,
        authority: &str,
        framing: Framing,
    ) -> Result<RequestHeadWriter, MessageError> {
        if method.is_empty() || !method.bytes().all(is_token) {
            return Err(MessageError::Method);
        }
        let is_origin = target.starts_with('/') || target == "*";
        if !is_origin || !target.bytes().all(is_sent_in_target) {
            return Err(MessageError::Target);
        }
        check_authority(authority.as_bytes()).map_err(|_| MessageError::Host)?;
        let mut bytes = [method, " ", target, " HTTP/1.1"].concat().into_bytes();
        push_field(&mut bytes, "Host", authority);
        push_framing(&mut bytes, framing, method);
        Ok(RequestHeadWriter { bytes })
    }

    /// Appends a field.
    ///
    /// # Errors
    /// [`MessageError::FieldName`] for a malformed name and for `Host`, `Content-Length` and
    /// `Transfer-Encoding`, [`MessageError::FieldValue`]; then nothing is appended.
    pub fn field(&mut self, name: &str, value: &[u8]) -> Result<(), MessageError> {
        let is_reserved = RESERVED
            .iter()
            .any(|field| name.eq_ignore_ascii_case(field));
        if name.is_empty() || !name.bytes().all(is_token) || is_reserved {
            return Err(MessageError::FieldName);
        }
        if value != value.trim_ascii() || !value.iter().all(|&byte| is_text(byte)) {
            return Err(MessageError::FieldValue);
        }
        push_field(&mut self.bytes, name, value);
        Ok(())
    }

    /// Returns the head, with the empty line at its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"\r\n\r\n");
        self.bytes
    }
}

/// Whether the byte may be sent in a target: visible ASCII without the start of a fragment. Other
/// bytes have to be percent-encoded.
fn is_sent_in_target(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'#'
}

fn push_framing(head: &mut Vec<u8>, framing: Framing, method: &str) {
    let length = match framing {
        Framing::Chunked => return push_field(head, "Transfer-Encoding", "chunked"),
        Framing::Length(length) => length,
        Framing::Empty if ["PUT", "POST", "PATCH"].contains(&method) => 0,
        Framing::Empty => return,
    };
    head.extend_from_slice(b"\r\nContent-Length: ");
    push_decimal(head, length);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::HeadLimits;
    use crate::request::head::{HeadProgress, HeadScanner};
    use crate::scheme::Scheme;

    fn begun(method: &str, target: &str, authority: &str) -> Result<String, MessageError> {
        let head = RequestHeadWriter::new(method, target, authority, Framing::Empty)?;
        Ok(String::from_utf8(head.finish()).unwrap())
    }

    #[test]
    fn a_head_has_a_line_a_host_and_a_framing() {
        for (method, framing, expected) in [
            ("GET", Framing::Empty, ""),
            ("DELETE", Framing::Empty, ""),
            ("PUT", Framing::Empty, "Content-Length: 0\r\n"),
            ("POST", Framing::Empty, "Content-Length: 0\r\n"),
            ("PATCH", Framing::Empty, "Content-Length: 0\r\n"),
            (
                "PUT",
                Framing::Length(u64::MAX),
                "Content-Length: 18446744073709551615\r\n",
            ),
            ("GET", Framing::Chunked, "Transfer-Encoding: chunked\r\n"),
        ] {
            let head = RequestHeadWriter::new(method, "/", "a", framing).unwrap();
            let expected = format!("{method} / HTTP/1.1\r\nHost: a\r\n{expected}\r\n");
            assert_eq!(head.finish(), expected.as_bytes());
        }
        assert!(begun("OPTIONS", "*", "a:1").is_ok());
        assert!(begun("M-SEARCH", "/a?b=c&d/e:f", "[::1]:80").is_ok());
    }

    #[test]
    fn what_would_split_the_head_is_rejected() {
        for method in ["", "GET ", "GET /x", "G\r\nA", "G\0", "G:", "é"] {
            assert_eq!(
                begun(method, "/", "a"),
                Err(MessageError::Method),
                "{method:?}"
            );
        }
        for target in [
            "",
            "a",
            "http://a/",
            "**",
            "/a b",
            "/a\r\nHost: b",
            "/a\n",
            "/a\t",
            "/a\0",
            "/a#b",
            "/é",
            "/\u{7f}",
        ] {
            assert_eq!(
                begun("GET", target, "a"),
                Err(MessageError::Target),
                "{target:?}"
            );
        }
        for host in [
            "",
            "a b",
            "a\r\nX: y",
            "u@a",
            "a/b",
            "a:x",
            "a:65536",
            "é",
            "::1",
        ] {
            assert_eq!(begun("GET", "/", host), Err(MessageError::Host), "{host:?}");
        }
    }

    #[test]
    fn a_field_is_one_line_and_none_that_frames() {
        let mut head = RequestHeadWriter::new("GET", "/", "a", Framing::Empty).unwrap();
        for name in [
            "",
            "A ",
            "A:",
            "A\r\nB",
            "é",
            "host",
            "Content-length",
            "TRANSFER-ENCODING",
        ] {
            assert_eq!(
                head.field(name, b"x"),
                Err(MessageError::FieldName),
                "{name:?}"
            );
        }
        for value in [
            &b"a\r\nB: c"[..],
            b"a\n",
            b"\ra",
            b"a\0b",
            b"a\x7f",
            b" a",
            b"a\t",
        ] {
            assert_eq!(
                head.field("A", value),
                Err(MessageError::FieldValue),
                "{value:?}"
            );
        }
        for value in [&b""[..], b"a\t b", b"\xff"] {
            assert_eq!(head.field("X", value), Ok(()));
        }
        let written = b"GET / HTTP/1.1\r\nHost: a\r\nX: \r\nX: a\t b\r\nX: \xff\r\n\r\n";
        assert_eq!(head.finish(), written);
    }

    proptest! {
        #[test]
        fn a_server_reads_what_is_written_and_no_more(
            method in "[A-Z \r\n]{1,4}",
            target in "/[a/?%\r\n #]{0,6}",
            name in "[a:\r\n ]{1,3}",
            value in "[a:\r\n \t]{0,5}",
        ) {
            let Ok(mut head) = RequestHeadWriter::new(&method, &target, "h", Framing::Empty) else {
                return Ok(());
            };
            let added = usize::from(head.field(&name, value.as_bytes()).is_ok());
            let bytes = head.finish();
            let mut scan = HeadScanner::within(HeadLimits::default(), Scheme::Http);
            prop_assert_eq!(scan.advance(&bytes), Ok(HeadProgress::Complete));
            prop_assert_eq!(scan.length(), bytes.len());
            let lines = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
            prop_assert_eq!(lines, 3 + added);
        }
    }
}
