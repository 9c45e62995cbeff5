//! The host that a request is for: the `Host` field and the authority of an absolute target, RFC
//! 9112, section 3.2, and RFC 3986, section 3.2.2.
//!
//! Which site answers is decided by the name alone, without its port and in any case.

use crate::http::status::HttpError;
use crate::request::fields::Field;
use crate::request::request_line::HttpVersion;

/// Demands exactly one `Host` of HTTP/1.1, at most one of HTTP/1.0, and a well-formed one.
pub(crate) fn check<'b>(
    host: &Field<'b>,
    version: HttpVersion,
) -> Result<Option<&'b [u8]>, HttpError> {
    match (host, version) {
        (Field::Absent, HttpVersion::Http10) => Ok(None),
        (Field::Absent, HttpVersion::Http11) => Err(HttpError::bad("the Host field is missing")),
        (Field::Several(_), _) => Err(HttpError::bad("there is more than one Host field")),
        (Field::One(authority), _) => check_authority(authority).map(|()| Some(*authority)),
    }
}

/// `host [ ":" port ]`, without user information.
pub(crate) fn check_authority(authority: &[u8]) -> Result<(), HttpError> {
    let (host, port) = split_port(authority);
    match is_host(host) && port.iter().all(u8::is_ascii_digit) {
        true => Ok(()),
        false => Err(HttpError::bad("the host is malformed")),
    }
}

/// The name, and what follows its colon.
pub(crate) fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    match authority.iter().rposition(|&byte| byte == b':') {
        Some(colon) if !authority[colon..].contains(&b']') => {
            (&authority[..colon], &authority[colon + 1..])
        }
        _ => (authority, &[]),
    }
}

fn is_host(host: &[u8]) -> bool {
    match host {
        [b'[', address @ .., b']'] => {
            !address.is_empty()
                && address
                    .iter()
                    .all(|&byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
        }
        _ => !host.is_empty() && host.iter().all(|&byte| is_name(byte)),
    }
}

/// A registered name: unreserved characters, sub-delimiters, and what is percent-encoded.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_ports() {
        for right in [
            "a",
            "a.example",
            "a:80",
            "a:",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(check_authority(right.as_bytes()).is_ok(), "{right}");
        }
        for wrong in [
            "", ":80", "a/b", "a b", "u@a", "a:8x", "a:b:80", "[::1", "[]", "[::1]x", "::1",
        ] {
            assert!(check_authority(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
