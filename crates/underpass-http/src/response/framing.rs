//! The framing of a response's body: RFC 9112, section 6.3. A response whose end two recipients
//! could find in different places is rejected.

use crate::error::MessageError;
use crate::response::head::ResponseHead;
use crate::token::decimal;
use crate::version::HttpVersion;

/// The framing of a response's body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResponseFraming {
    /// No body: the response to HEAD, an interim response, 204 and 304.
    None,
    /// A length, which may be 0.
    Length(u64),
    /// A chunked body.
    Chunked,
    /// The body ends with the connection. Nothing tells whether it is complete.
    UntilClose,
}

/// Whether the request has the method HEAD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResponseTo {
    /// It has: no response has a body.
    Head,
    /// It has another method. Requests with CONNECT are not written.
    Other,
}

impl ResponseFraming {
    /// Returns the framing of the body that follows `head`.
    ///
    /// # Errors
    /// [`MessageError::ContentLength`], [`MessageError::ConflictingLengths`] and
    /// [`MessageError::TransferCoding`].
    pub fn of(
        head: &ResponseHead<'_>,
        request: ResponseTo,
    ) -> Result<ResponseFraming, MessageError> {
        if request == ResponseTo::Head || head.is_interim() || [204, 304].contains(&head.status) {
            return Ok(ResponseFraming::None);
        }
        let mut codings = head.all("Transfer-Encoding").peekable();
        match (content_length(head)?, codings.peek()) {
            (Some(_), Some(_)) => Err(MessageError::ConflictingLengths),
            (Some(length), None) => Ok(ResponseFraming::Length(length)),
            (None, None) => Ok(ResponseFraming::UntilClose),
            (None, Some(_)) if head.version == HttpVersion::Http10 => {
                Err(MessageError::TransferCoding)
            }
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => {
                codings.next();
                match codings.next() {
                    None => Ok(ResponseFraming::Chunked),
                    Some(_) => Err(MessageError::TransferCoding),
                }
            }
            (None, Some(_)) => Err(MessageError::TransferCoding),
        }
    }
}

/// Returns the length that all lines and their members agree on.
fn content_length(head: &ResponseHead<'_>) -> Result<Option<u64>, MessageError> {
    let lines = head.all("Content-Length");
    let mut members = lines.flat_map(|line| line.split(|&byte| byte == b','));
    let Some(first) = members.next() else {
        return Ok(None);
    };
    let length = decimal(first.trim_ascii()).ok_or(MessageError::ContentLength)?;
    match members.all(|member| decimal(member.trim_ascii()) == Some(length)) {
        true => Ok(Some(length)),
        false => Err(MessageError::ContentLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::head::ResponseScanner;

    fn framed(text: &str, request: ResponseTo) -> Result<ResponseFraming, MessageError> {
        let text = format!("HTTP/{text}\r\n\r\n");
        let mut scan = ResponseScanner::new(text.len());
        scan.advance(text.as_bytes()).unwrap();
        ResponseFraming::of(&scan.parse(text.as_bytes()).unwrap(), request)
    }

    #[test]
    fn some_responses_have_no_body_whatever_their_fields_say() {
        for fields in [
            "",
            "\r\nContent-Length: 5",
            "\r\nTransfer-Encoding: chunked",
        ] {
            for status in [100, 103, 204, 304] {
                let text = format!("1.1 {status} x{fields}");
                assert_eq!(framed(&text, ResponseTo::Other), Ok(ResponseFraming::None));
            }
            let text = format!("1.1 200 OK{fields}");
            assert_eq!(framed(&text, ResponseTo::Head), Ok(ResponseFraming::None));
        }
    }

    #[test]
    fn the_rules_of_section_6_3() {
        use ResponseFraming::{Chunked, Length, UntilClose};
        for (fields, expected) in [
            ("", Ok(UntilClose)),
            ("Content-Length: 5", Ok(Length(5))),
            ("content-length:0", Ok(Length(0))),
            ("Content-Length: 18446744073709551615", Ok(Length(u64::MAX))),
            ("Content-Length: 5\r\nContent-Length: 5", Ok(Length(5))),
            ("Content-Length: 5, 05", Ok(Length(5))),
            ("Transfer-Encoding: Chunked", Ok(Chunked)),
            ("Content-Length: 5, 6", Err(MessageError::ContentLength)),
            (
                "Content-Length: 5\r\nContent-Length: 6",
                Err(MessageError::ContentLength),
            ),
            ("Content-Length:", Err(MessageError::ContentLength)),
            ("Content-Length: 5,", Err(MessageError::ContentLength)),
            ("Content-Length: +5", Err(MessageError::ContentLength)),
            ("Content-Length: -1", Err(MessageError::ContentLength)),
            ("Content-Length: 0x5", Err(MessageError::ContentLength)),
            ("Content-Length: 5 5", Err(MessageError::ContentLength)),
            (
                "Content-Length: 18446744073709551616",
                Err(MessageError::ContentLength),
            ),
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                Err(MessageError::ConflictingLengths),
            ),
            ("Transfer-Encoding:", Err(MessageError::TransferCoding)),
            ("Transfer-Encoding: gzip", Err(MessageError::TransferCoding)),
            (
                "Transfer-Encoding: identity",
                Err(MessageError::TransferCoding),
            ),
            (
                "Transfer-Encoding: gzip, chunked",
                Err(MessageError::TransferCoding),
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                Err(MessageError::TransferCoding),
            ),
        ] {
            let text = match fields {
                "" => "1.1 200 OK".to_owned(),
                _ => format!("1.1 200 OK\r\n{fields}"),
            };
            assert_eq!(framed(&text, ResponseTo::Other), expected, "{fields:?}");
        }
        let old = "1.0 200 OK\r\nTransfer-Encoding: chunked";
        assert_eq!(
            framed(old, ResponseTo::Other),
            Err(MessageError::TransferCoding)
        );
        assert_eq!(framed("1.0 200 OK", ResponseTo::Other), Ok(UntilClose));
    }
}
