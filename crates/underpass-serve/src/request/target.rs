//! What a request is for: the target of the request line (RFC 9112, section 3.2) and the host, from
//! the target or the `Host` field (RFC 3986, section 3.2.2). The site is chosen by the name of the
//! host alone, without its port and in any case.

use crate::http::status::{HttpError, Status};
use crate::request::fields::Field;
use crate::request::path::SitePath;
use crate::request::request_line::{HttpVersion, Method};

/// A request target.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum HttpTarget<'b> {
    /// Something of the site.
    Path {
        path: SitePath,
        /// What follows the first `?`, as it came.
        query: Option<&'b [u8]>,
    },
    /// The server itself: `OPTIONS *`.
    Server,
    /// Another server: what `CONNECT` names.
    Authority,
}

impl<'b> HttpTarget<'b> {
    /// Reads a target of the form that goes with `method`, and the authority that it names.
    pub(crate) fn parse(
        target: &'b [u8],
        method: Method,
    ) -> Result<(Option<&'b [u8]>, HttpTarget<'b>), HttpError> {
        match (method, target) {
            (Method::Connect, _) => Ok((None, HttpTarget::Authority)),
            (Method::Options, b"*") => Ok((None, HttpTarget::Server)),
            (_, [b'/', ..]) => Ok((None, origin(target)?)),
            _ => absolute(target),
        }
    }
}

fn origin(target: &[u8]) -> Result<HttpTarget<'_>, HttpError> {
    let (path, query) = match target.iter().position(|&byte| byte == b'?') {
        Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
        None => (target, None),
    };
    Ok(HttpTarget::Path {
        path: SitePath::parse(path)?,
        query,
    })
}

/// `http://authority/path`. Its authority beats the `Host` field.
fn absolute(target: &[u8]) -> Result<(Option<&[u8]>, HttpTarget<'_>), HttpError> {
    let rest = match split_scheme(target) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"http") => rest,
        Some((scheme, _)) if scheme.eq_ignore_ascii_case(b"https") => {
            return Err(HttpError::new(
                Status::MisdirectedRequest,
                "https is not supported on this port",
            ));
        }
        _ => return Err(HttpError::bad("the target is neither a path nor a URL")),
    };
    let end = rest.iter().position(|byte| b"/?".contains(byte));
    let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
    check_authority(authority)?;
    let target = match path {
        [b'/', ..] => origin(path)?,
        _ => HttpTarget::Path {
            path: SitePath::parse(b"/")?,
            query: path.split_first().map(|(_, query)| query),
        },
    };
    Ok((Some(authority), target))
}

fn split_scheme(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = target.iter().position(|&byte| byte == b':')?;
    let rest = target[colon..].strip_prefix(b"://")?;
    Some((&target[..colon], rest))
}

/// Demands exactly one `Host` of HTTP/1.1, at most one of HTTP/1.0, and a well-formed one.
pub(crate) fn check_host<'b>(
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

    fn get(target: &str) -> Result<String, Status> {
        match HttpTarget::parse(target.as_bytes(), Method::Get) {
            Ok((_, HttpTarget::Path { path, query })) => Ok(format!(
                "{path:?}{}",
                query.map_or(String::new(), |query| format!("?{}", query.escape_ascii()))
            )),
            Ok(other) => Ok(format!("{other:?}")),
            Err(error) => Err(error.status),
        }
    }

    #[test]
    fn the_four_forms() {
        assert_eq!(get("/a?b?c"), Ok("a?b?c".into()));
        assert_eq!(get("http://h/a?b"), Ok("a?b".into()));
        assert_eq!(get("HTTP://h:80"), Ok("/".into()));
        assert_eq!(get("http://h?b"), Ok("/?b".into()));
        assert_eq!(get("https://h/"), Err(Status::MisdirectedRequest));
        for wrong in [
            "*",
            "a",
            "h:80",
            "ftp://h/",
            "http:///a",
            "http://u@h/",
            "http:/a",
        ] {
            assert_eq!(get(wrong), Err(Status::BadRequest), "{wrong}");
        }
        let server = HttpTarget::parse(b"*", Method::Options);
        assert_eq!(server, Ok((None, HttpTarget::Server)));
        let other = HttpTarget::parse(b"h:80", Method::Connect);
        assert_eq!(other, Ok((None, HttpTarget::Authority)));
    }

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
