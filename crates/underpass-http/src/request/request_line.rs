//! The request line (RFC 9112, section 3): method, target, version, separated by single spaces; and
//! the host of a target or of the `Host` field (RFC 3986, section 3.2.2). The site is chosen by the
//! host name alone, ignoring port and case.

use std::net::Ipv6Addr;
use std::ops::Range;

use crate::path::{SitePath, is_escape};
use crate::scheme::Scheme;
use crate::status::{HttpError, Status};
use crate::token::is_token;
use crate::version::HttpVersion;

/// A request line, split in three parts. The target is not parsed yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestLine {
    /// The method.
    pub method: Method,
    /// The range of the target within the line.
    pub target: Range<usize>,
    /// The version of the protocol.
    pub version: HttpVersion,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// OPTIONS
    Options,
    /// One that changes what is served, where that is allowed.
    Write(WriteMethod),
    /// TRACE, which no server here allows.
    Disabled,
    /// CONNECT, whose target has no path. Not allowed either.
    Connect,
    /// A token that is not a known method.
    Unknown,
}

/// A method that changes what is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteMethod {
    /// PUT
    Put,
    /// POST
    Post,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
    /// MKCOL, as COPY and MOVE a method of WebDAV (RFC 4918, sections 9.3, 9.8 and 9.9).
    Mkcol,
    /// COPY
    Copy,
    /// MOVE
    Move,
}

impl RequestLine {
    /// Parses a line without its line end.
    pub fn parse(line: &[u8]) -> Result<RequestLine, HttpError> {
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

    /// Returns the length of the line without its line end: the version is `HTTP/x.y`.
    pub fn length(&self) -> usize {
        self.target.end + " HTTP/1.1".len()
    }
}

impl Method {
    fn parse(token: &[u8]) -> Method {
        match token {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"PUT" => Method::Write(WriteMethod::Put),
            b"POST" => Method::Write(WriteMethod::Post),
            b"PATCH" => Method::Write(WriteMethod::Patch),
            b"DELETE" => Method::Write(WriteMethod::Delete),
            b"MKCOL" => Method::Write(WriteMethod::Mkcol),
            b"COPY" => Method::Write(WriteMethod::Copy),
            b"MOVE" => Method::Write(WriteMethod::Move),
            b"TRACE" => Method::Disabled,
            b"CONNECT" => Method::Connect,
            _ => Method::Unknown,
        }
    }
}

/// Whether a target may contain the byte: visible and non-ASCII characters. Clients do not send
/// fragments, and a space ends the target.
fn is_target(byte: u8) -> bool {
    !byte.is_ascii_control() && byte != b'#'
}

/// A request target.
#[derive(Debug, Eq, PartialEq)]
pub enum HttpTarget<'b> {
    /// A path of the site.
    Path {
        /// The path, decoded and normalised.
        path: SitePath,
        /// The path before parsing.
        spelling: &'b [u8],
        /// The unparsed part after the first `?`.
        query: Option<&'b [u8]>,
    },
    /// The server itself: `OPTIONS *`.
    Server,
    /// Another server, named in `CONNECT`.
    Authority,
}

impl<'b> HttpTarget<'b> {
    /// Parses a target in the form required by `method`, and its authority. An absolute URL must
    /// have the scheme of the connection.
    pub fn parse(
        target: &'b [u8],
        method: Method,
        scheme: Scheme,
    ) -> Result<(Option<&'b [u8]>, HttpTarget<'b>), HttpError> {
        match (method, target) {
            (Method::Connect, _) => Ok((None, HttpTarget::Authority)),
            (Method::Options, b"*") => Ok((None, HttpTarget::Server)),
            (_, [b'/', ..]) => Ok((None, origin(target)?)),
            _ => absolute(target, scheme),
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
        spelling: path,
        query,
    })
}

/// Parses an absolute URL. Its authority overrides the `Host` field.
fn absolute(target: &[u8], spoken: Scheme) -> Result<(Option<&[u8]>, HttpTarget<'_>), HttpError> {
    let is = |named: &[u8], scheme: Scheme| named.eq_ignore_ascii_case(scheme.name().as_bytes());
    let rest = match split_scheme(target) {
        Some((named, rest)) if is(named, spoken) => rest,
        Some((named, _)) if is(named, Scheme::Https) => {
            return Err(misdirected("https is not supported on this port"));
        }
        Some((named, _)) if is(named, Scheme::Http) => {
            return Err(misdirected("this port supports https only"));
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
            spelling: b"/",
            query: path.split_first().map(|(_, query)| query),
        },
    };
    Ok((Some(authority), target))
}

/// Creates a 421: RFC 9110, section 7.4.
fn misdirected(why: &'static str) -> HttpError {
    HttpError::new(Status::MisdirectedRequest, why)
}

fn split_scheme(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = target.iter().position(|&byte| byte == b':')?;
    let rest = target[colon..].strip_prefix(b"://")?;
    Some((&target[..colon], rest))
}

/// Checks `host [ ":" port ]`, without user information.
pub fn check_authority(authority: &[u8]) -> Result<(), HttpError> {
    let (host, port) = split_port(authority);
    match is_host(host) && is_port(port) {
        true => Ok(()),
        false => Err(HttpError::bad("the host is malformed")),
    }
}

/// Whether the text is empty or a port number.
fn is_port(port: &[u8]) -> bool {
    let add = |number: u32, digit: &u8| match digit {
        b'0'..=b'9' => Some(number * 10 + u32::from(digit - b'0')).filter(|&port| port <= 65_535),
        _ => None,
    };
    port.iter().try_fold(0, add).is_some()
}

/// Splits off the port after the colon.
pub fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    match authority.iter().rposition(|&byte| byte == b':') {
        Some(colon) if !authority[colon..].contains(&b']') => {
            (&authority[..colon], &authority[colon + 1..])
        }
        _ => (authority, &[]),
    }
}

/// Whether the text is a host (RFC 3986, section 3.2.2): an address in brackets, or a registered
/// name, which includes IPv4 addresses.
fn is_host(host: &[u8]) -> bool {
    match host {
        [b'[', b'v' | b'V', future @ .., b']'] => {
            let dot = future.iter().position(|&byte| byte == b'.');
            dot.is_some_and(|dot| {
                let (version, address) = (&future[..dot], &future[dot + 1..]);
                !version.is_empty()
                    && !address.is_empty()
                    && version.iter().all(u8::is_ascii_hexdigit)
                    && address.iter().all(|&byte| is_name(byte) || byte == b':')
            })
        }
        [b'[', address @ .., b']'] => {
            let address = std::str::from_utf8(address);
            address.is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok())
        }
        [] => false,
        _ => host.iter().enumerate().all(|(at, &byte)| match byte {
            b'%' => is_escape(host, at),
            _ => is_name(byte),
        }),
    }
}

/// Whether the byte is an unreserved character or a sub-delimiter.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
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
    fn methods_are_tokens_in_capitals() {
        for (token, method) in [
            ("GET", Method::Get),
            ("HEAD", Method::Head),
            ("OPTIONS", Method::Options),
            ("POST", Method::Write(WriteMethod::Post)),
            ("PUT", Method::Write(WriteMethod::Put)),
            ("DELETE", Method::Write(WriteMethod::Delete)),
            ("PATCH", Method::Write(WriteMethod::Patch)),
            ("MKCOL", Method::Write(WriteMethod::Mkcol)),
            ("COPY", Method::Write(WriteMethod::Copy)),
            ("MOVE", Method::Write(WriteMethod::Move)),
            ("TRACE", Method::Disabled),
            ("CONNECT", Method::Connect),
            ("head", Method::Unknown),
        ] {
            let line = format!("{token} / HTTP/1.1");
            let parsed = RequestLine::parse(line.as_bytes());
            assert_eq!(parsed.unwrap().method, method, "{token}");
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

    fn get(target: &str) -> Result<String, Status> {
        match HttpTarget::parse(target.as_bytes(), Method::Get, Scheme::Http) {
            Ok((_, HttpTarget::Path { path, query, .. })) => Ok(format!(
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
        let server = HttpTarget::parse(b"*", Method::Options, Scheme::Http);
        assert_eq!(server, Ok((None, HttpTarget::Server)));
        let secured = |target: &'static str| {
            let parsed = HttpTarget::parse(target.as_bytes(), Method::Get, Scheme::Https);
            parsed
                .map(|(authority, _)| authority)
                .map_err(|error| error.status)
        };
        assert_eq!(secured("https://h:1/a"), Ok(Some(&b"h:1"[..])));
        assert_eq!(secured("http://h/a"), Err(Status::MisdirectedRequest));
        assert_eq!(secured("ftp://h/"), Err(Status::BadRequest));
        let other = HttpTarget::parse(b"h:80", Method::Connect, Scheme::Http);
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
            "a:65535",
            "a:00080",
            "a%2Db%c3%bc",
            "999.1.1.1",
            "[::1]",
            "[::1]:80",
            "[::ffff:192.0.2.1]",
            "[1:2:3:4:5:6:7:8]:1",
            "[v1.a]",
            "[V1F.a:b!]:80",
        ] {
            assert!(check_authority(right.as_bytes()).is_ok(), "{right}");
        }
        for wrong in [
            "",
            ":80",
            "a/b",
            "a b",
            "u@a",
            "a:8x",
            "a:+8",
            "a:b:80",
            "[::1",
            "[]",
            "[::1]x",
            "::1",
            "a:65536",
            "a:99999",
            "a:18446744073709551617",
            "a%zz",
            "a%2",
            "a%",
            "a:%38",
            "[ab..cd]",
            "[1:2]",
            "[1::2::3]",
            "[1:2:3:4:5:6:7:8:9]",
            "[127.0.0.1]",
            "[::1%25lo]",
            "[v1.]",
            "[v.a]",
            "[vg.a]",
            "[v1a]",
            "[v1.%41]",
            "[v1.a]x",
            "a\u{e9}",
        ] {
            assert!(check_authority(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
