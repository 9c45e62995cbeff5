//! The framing of bodies: RFC 9112, section 6.

use crate::status::{HttpError, Status};
use crate::token::{decimal, is_token};
use crate::version::HttpVersion;

/// The framing of a request body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// No body.
    Empty,
    /// A length of at least one byte.
    Length(u64),
    /// A chunked body.
    Chunked,
}

/// Evaluates the two fields that frame a body.
pub fn framing(
    content_length: Option<&[u8]>,
    transfer_encoding: Option<&[u8]>,
    version: HttpVersion,
) -> Result<Framing, HttpError> {
    match (content_length, transfer_encoding) {
        (None, None) => Ok(Framing::Empty),
        (Some(value), None) => length(value),
        (None, Some(_)) if version == HttpVersion::Http10 => {
            Err(HttpError::bad("HTTP/1.0 has no Transfer-Encoding"))
        }
        (None, Some(codings)) => chunked(codings),
        (Some(_), Some(_)) => Err(HttpError::bad(
            "Content-Length and Transfer-Encoding exclude each other",
        )),
    }
}

/// Parses a length: digits only, without overflow.
fn length(value: &[u8]) -> Result<Framing, HttpError> {
    let length = decimal(value).ok_or(HttpError::bad("Content-Length is not a number"))?;
    match length {
        0 => Ok(Framing::Empty),
        _ => Ok(Framing::Length(length)),
    }
}

/// Requires `chunked` as the only coding; no other is implemented.
fn chunked(codings: &[u8]) -> Result<Framing, HttpError> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(codings) {
        return Ok(Framing::Chunked);
    }
    let mut before: Vec<&[u8]> = codings
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .collect();
    match before.pop() {
        Some(last) if is_chunked(last) => {}
        _ => return Err(HttpError::bad("the last transfer coding is not chunked")),
    }
    let is_plain = |coding: &&[u8]| {
        !coding.is_empty() && !is_chunked(coding) && coding.iter().all(|&byte| is_token(byte))
    };
    match before.iter().all(is_plain) {
        true => Err(HttpError::new(
            Status::NotImplemented,
            "the only supported transfer coding is chunked",
        )),
        false => Err(HttpError::bad("Transfer-Encoding is malformed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(value: &[u8]) -> Result<Framing, Status> {
        framing(Some(value), None, HttpVersion::Http11).map_err(|error| error.status)
    }

    fn codings(value: &[u8]) -> Result<Framing, Status> {
        framing(None, Some(value), HttpVersion::Http11).map_err(|error| error.status)
    }

    #[test]
    fn a_length_is_digits() {
        assert_eq!(lengths(b"005"), Ok(Framing::Length(5)));
        assert_eq!(lengths(b"0"), Ok(Framing::Empty));
        assert_eq!(
            lengths(b"18446744073709551615"),
            Ok(Framing::Length(u64::MAX))
        );
        for wrong in [
            &b"+5"[..],
            b"-5",
            b"0x5",
            b"5a",
            b"5 5",
            b"5, 5",
            b"18446744073709551616",
            b"",
        ] {
            assert_eq!(lengths(wrong), Err(Status::BadRequest), "{wrong:?}");
        }
    }

    #[test]
    fn the_only_coding_is_chunked() {
        for right in [&b"chunked"[..], b"Chunked", b"CHUNKED"] {
            assert_eq!(codings(right), Ok(Framing::Chunked));
        }
        for wrong in [
            &b"identity"[..],
            b"x",
            b"chunked, identity",
            b"chunked, chunked",
            b"chunked,",
            b",chunked",
            b"chunked;a=b",
            b"gzip;q=1, chunked",
            b"",
        ] {
            assert_eq!(codings(wrong), Err(Status::BadRequest), "{wrong:?}");
        }
        assert_eq!(codings(b"gzip, chunked"), Err(Status::NotImplemented));
    }

    #[test]
    fn what_two_servers_could_read_differently_is_refused() {
        let (one, chunked) = (Some(&b"5"[..]), Some(&b"chunked"[..]));
        assert!(framing(one, chunked, HttpVersion::Http11).is_err());
        assert!(framing(None, chunked, HttpVersion::Http10).is_err());
    }
}
