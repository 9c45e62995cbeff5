//! Where a request's body ends: RFC 9112, section 6, without any of the tolerance that lets two
//! servers in a row see different requests in the same bytes.

use crate::http::status::{HttpError, Status};
use crate::request::fields::Field;
use crate::request::request_line::{HttpVersion, is_token};

/// How a request's body is framed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// As many bytes; at least one.
    Length(u64),
    Chunked,
}

/// Judges the two fields that frame a body.
pub(crate) fn framing(
    content_length: &Field<'_>,
    transfer_encoding: &Field<'_>,
    version: HttpVersion,
) -> Result<Framing, HttpError> {
    match (content_length, transfer_encoding) {
        (Field::Absent, Field::Absent) => Ok(Framing::Empty),
        (Field::One(value), Field::Absent) => length(value),
        (Field::Several(_), Field::Absent) => Err(HttpError::bad(
            "there is more than one Content-Length field",
        )),
        (Field::Absent, _) if version == HttpVersion::Http10 => {
            Err(HttpError::bad("HTTP/1.0 has no Transfer-Encoding"))
        }
        (Field::Absent, Field::One(codings)) => chunked(codings),
        (Field::Absent, Field::Several(_)) => Err(HttpError::bad(
            "there is more than one Transfer-Encoding field",
        )),
        _ => Err(HttpError::bad(
            "Content-Length and Transfer-Encoding exclude each other",
        )),
    }
}

/// Digits and nothing else, within what fits.
fn length(value: &[u8]) -> Result<Framing, HttpError> {
    const WRONG: HttpError = HttpError::bad("Content-Length is not a number");
    if value.is_empty() {
        return Err(WRONG);
    }
    let mut length = 0u64;
    for byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(WRONG);
        }
        length = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(digit.into()))
            .ok_or(WRONG)?;
    }
    match length {
        0 => Ok(Framing::Empty),
        _ => Ok(Framing::Length(length)),
    }
}

/// The last coding must be `chunked`, exactly once; no other is implemented.
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
        framing(&Field::One(value), &Field::Absent, HttpVersion::Http11)
            .map_err(|error| error.status)
    }

    fn codings(value: &[u8]) -> Result<Framing, Status> {
        framing(&Field::Absent, &Field::One(value), HttpVersion::Http11)
            .map_err(|error| error.status)
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
        let one = Field::One(b"5");
        let chunked = Field::One(b"chunked");
        let two = Field::Several(b"chunked, chunked".to_vec());
        assert!(framing(&one, &chunked, HttpVersion::Http11).is_err());
        assert!(framing(&two, &Field::Absent, HttpVersion::Http11).is_err());
        assert!(framing(&Field::Absent, &two, HttpVersion::Http11).is_err());
        assert!(framing(&Field::Absent, &chunked, HttpVersion::Http10).is_err());
    }
}
