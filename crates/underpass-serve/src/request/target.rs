//! What a request line points at: RFC 9112, section 3.2.

use crate::http::status::{HttpError, Status};
use crate::request::host::check_authority;
use crate::request::path::SitePath;
use crate::request::request_line::Method;

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
}
