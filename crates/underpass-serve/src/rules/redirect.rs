//! Redirects, which send the client to another URL, and rewrites, which it does not notice.
//!
//! ```text
//!  from = "/old"     that path alone
//!  from = "/old/*"   everything beneath /old/; a `*` that ends `to` stands for what is beneath
//! ```
//!
//! The text matched by the star is normalised and percent-encoded again, and always follows a
//! slash: no request can choose the host of a redirect.

use std::borrow::Cow;

use serde::Deserialize;
use underpass_http::path::{PathForm, SitePath, encode_path};
use underpass_http::status::Status;

use super::url_path::parse_path;

/// A redirect of requests for `from` to `to`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RedirectText")]
pub struct Redirect {
    from: RulePath,
    to: RedirectTarget,
    status: Status,
}

/// A rewrite: requests for `from` return the target of `to`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RewriteText")]
pub struct Rewrite {
    from: RulePath,
    to: RulePath,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedirectText {
    from: String,
    to: String,
    status: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RewriteText {
    from: String,
    to: String,
}

/// A path, or everything beneath it if it ends with a star.
#[derive(Clone, Debug)]
struct RulePath {
    path: SitePath,
    star: TrailingStar,
}

/// The target of a redirect: a path or a URL, up to the star.
#[derive(Clone, Debug)]
struct RedirectTarget {
    text: String,
    star: TrailingStar,
}

/// Whether the rest of the path beneath `from` is appended to `to`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TrailingStar {
    There,
    Missing,
}

/// The part of a path matched by the star.
struct MatchedRest<'p> {
    beneath: &'p [u8],
    form: PathForm,
}

/// A redirect that applies to a request.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct MatchedRedirect {
    pub(crate) status: Status,
    pub(crate) location: Vec<u8>,
}

/// The result of a rewrite.
#[derive(Debug)]
pub(crate) struct RewrittenPath {
    /// The path to resolve.
    pub(crate) path: SitePath,
    pub(crate) asked: RequestedPath,
}

/// The original path of a rewrite.
#[derive(Debug)]
pub(crate) enum RequestedPath {
    /// No rewrite: the path to resolve is the requested one.
    Same,
    /// A path rewritten together with everything beneath it: relative links in a page work.
    Tree(SitePath),
    /// A single path. Relative links in a page of another folder would not work.
    Alone,
}

impl Redirect {
    /// Creates a redirect with a status of 301, 302, 307 or 308.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn new(from: &str, to: &str, status: u16) -> Result<Redirect, String> {
        let status = match status {
            301 => Status::MovedPermanently,
            302 => Status::Found,
            307 => Status::TemporaryRedirect,
            308 => Status::PermanentRedirect,
            _ => {
                return Err(format!(
                    "{status} is not a redirect status; expected 301, 302, 307 or 308"
                ));
            }
        };
        let (from, to) = (RulePath::parse(from)?, RedirectTarget::parse(to)?);
        from.check_star(to.star)?;
        let redirect = Redirect { from, to, status };
        match redirect.leads_to_itself() {
            true => Err(format!("{:?} is redirected to itself", redirect.to.text)),
            false => Ok(redirect),
        }
    }

    /// Returns the redirect for a request of `path`, if it matches.
    pub(crate) fn meet(&self, path: &SitePath, query: Option<&[u8]>) -> Option<MatchedRedirect> {
        let rest = self.from.rest(path)?;
        let mut location = self.to.text.clone().into_bytes();
        if self.to.star == TrailingStar::There {
            encode_path(rest.beneath, &mut location);
            if rest.form == PathForm::Folder && !rest.beneath.is_empty() {
                location.push(b'/');
            }
        }
        if let Some(query) = query.filter(|_| !self.to.text.contains(['?', '#'])) {
            let query = match self.to.text.starts_with('/') {
                true => Cow::Borrowed(query),
                // A signature is only for this site.
                false => unsigned(query),
            };
            if !query.is_empty() {
                location.push(b'?');
                location.extend_from_slice(&query);
            }
        }
        Some(MatchedRedirect {
            status: self.status,
            location,
        })
    }

    fn leads_to_itself(&self) -> bool {
        let sample = match self.to.star {
            TrailingStar::There => format!("{}x", self.to.text),
            TrailingStar::Missing => self.to.text.clone(),
        };
        let path = sample.split(['?', '#']).next().unwrap_or_default();
        SitePath::parse(path.as_bytes())
            .is_ok_and(|path| sample.starts_with('/') && self.from.rest(&path).is_some())
    }
}

impl Rewrite {
    /// Creates a rewrite; `to` is a path of the same site.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn new(from: &str, to: &str) -> Result<Rewrite, String> {
        let (from, to) = (RulePath::parse(from)?, RulePath::parse(to)?);
        from.check_star(to.star)?;
        Ok(Rewrite { from, to })
    }

    /// Returns the replacement of `path`, if it matches.
    pub(crate) fn meet(&self, path: &SitePath) -> Option<RewrittenPath> {
        let rest = self.from.rest(path)?;
        Some(match self.to.star {
            TrailingStar::There => RewrittenPath {
                path: self.to.path.join(rest.beneath, rest.form),
                asked: RequestedPath::Tree(path.clone()),
            },
            TrailingStar::Missing => RewrittenPath {
                path: self.to.path.clone(),
                asked: match self.to.path == *path {
                    true => RequestedPath::Same,
                    false => RequestedPath::Alone,
                },
            },
        })
    }
}

impl RulePath {
    fn parse(text: &str) -> Result<RulePath, String> {
        let (path, star) = split_star(text)?;
        let path = parse_path(path)?;
        Ok(RulePath { path, star })
    }

    fn check_star(&self, to: TrailingStar) -> Result<(), String> {
        match (self.star, to) {
            (TrailingStar::Missing, TrailingStar::There) => {
                Err("`to` ends with a star, but `from` does not".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the part of `path` beneath this one, if it matches.
    fn rest<'p>(&self, path: &'p SitePath) -> Option<MatchedRest<'p>> {
        let form = path.form();
        let beneath = match (self.star, self.path.bytes()) {
            (TrailingStar::Missing, _) if self.path == *path => b"",
            (TrailingStar::Missing, _) => return None,
            (TrailingStar::There, b"") => path.bytes(),
            (TrailingStar::There, folder) => match path.bytes().strip_prefix(folder)? {
                b"" if form == PathForm::Folder => b"",
                [b'/', beneath @ ..] => beneath,
                _ => return None,
            },
        };
        Some(MatchedRest { beneath, form })
    }
}

impl RedirectTarget {
    fn parse(to: &str) -> Result<RedirectTarget, String> {
        let (text, star) = split_star(to)?;
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if !text.bytes().all(visible) {
            return Err(format!(
                "{to:?} contains characters that are invalid in a URL; percent-encode them"
            ));
        }
        let rest = ["https://", "http://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme));
        let right = match rest {
            // The slash ends the host, so that the rest of a request cannot become part of it.
            Some(rest) => {
                !rest.starts_with('/') && (star == TrailingStar::Missing || rest.contains('/'))
            }
            None => text.starts_with('/') && !text.starts_with("//"),
        };
        match right {
            true => Ok(RedirectTarget {
                text: text.to_owned(),
                star,
            }),
            false => Err(format!(
                "{to:?} is neither a path of this site nor a URL; expected /x or https://host/x"
            )),
        }
    }
}

/// Splits off a star at the end, which must follow a slash.
fn split_star(text: &str) -> Result<(&str, TrailingStar), String> {
    match text.strip_suffix('*') {
        Some(before) if before.ends_with('/') && !before.contains('*') => {
            Ok((before, TrailingStar::There))
        }
        None if !text.contains('*') => Ok((text, TrailingStar::Missing)),
        _ => Err(format!(
            "{text:?}: a star is allowed only at the end, after a slash"
        )),
    }
}

impl TryFrom<RedirectText> for Redirect {
    type Error = String;

    fn try_from(text: RedirectText) -> Result<Redirect, String> {
        Redirect::new(&text.from, &text.to, text.status.unwrap_or(301))
    }
}

impl TryFrom<RewriteText> for Rewrite {
    type Error = String;

    fn try_from(text: RewriteText) -> Result<Rewrite, String> {
        Rewrite::new(&text.from, &text.to)
    }
}

/// Removes signatures from a query.
fn unsigned(query: &[u8]) -> Cow<'_, [u8]> {
    let pairs = query.split(|&byte| byte == b'&');
    let is_signature = |pair: &&[u8]| pair.starts_with(b"signed=");
    if !pairs.clone().any(|pair| is_signature(&pair)) {
        return Cow::Borrowed(query);
    }
    let others: Vec<_> = pairs.filter(|pair| !is_signature(pair)).collect();
    Cow::Owned(others.join(&b'&'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_taken_out() {
        for (query, expected) in [
            ("a=b&signed=1.file.x&c", "a=b&c"),
            ("signed=1.file.x", ""),
            ("a=signed=", "a=signed="),
            ("signed=1&signed=2&x", "x"),
        ] {
            assert_eq!(*unsigned(query.as_bytes()), *expected.as_bytes(), "{query}");
        }
    }

    fn met(from: &str, to: &str, path: &str, query: Option<&str>) -> String {
        let redirect = Redirect::new(from, to, 301).unwrap();
        let path = SitePath::parse(path.as_bytes()).unwrap();
        match redirect.meet(&path, query.map(str::as_bytes)) {
            Some(met) => String::from_utf8(met.location).unwrap(),
            None => "-".into(),
        }
    }

    #[test]
    fn redirects_keep_what_is_beneath_and_the_query() {
        for (from, to, path, query, location) in [
            ("/old", "/new", "/old", None, "/new"),
            ("/old", "/new", "/old", Some("a=b"), "/new?a=b"),
            ("/old", "/new?c", "/old", Some("a=b"), "/new?c"),
            ("/old", "/new", "/old/", None, "-"),
            ("/old/", "/new/", "/old/", None, "/new/"),
            ("/old", "/new", "/older", None, "-"),
            ("/old/*", "/new/*", "/old/a/b", None, "/new/a/b"),
            ("/old/*", "/new/*", "/old/a/", None, "/new/a/"),
            ("/old/*", "/new/*", "/old/", None, "/new/"),
            ("/old/*", "/new/*", "/old", None, "-"),
            ("/old/*", "/gone.html", "/old/a", None, "/gone.html"),
            (
                "/*",
                "https://example.org/*",
                "/a%20b",
                None,
                "https://example.org/a%20b",
            ),
            (
                "/*",
                "https://example.org/*",
                "/",
                None,
                "https://example.org/",
            ),
        ] {
            assert_eq!(met(from, to, path, query), location, "{from} {to} {path}");
        }
    }

    #[test]
    fn no_request_chooses_the_host() {
        for path in [
            "/old//evil.example",
            "/old/%2f%2fevil.example",
            "/old/./..//old//evil.example",
        ] {
            assert_eq!(met("/old/*", "/*", path, None), "/evil.example", "{path}");
        }
        assert_eq!(met("/old/*", "/*", "/old/%5cevil", None), "/%5Cevil");
        assert_eq!(met("/old/*", "/*", "/old/a%0d%0ab", None), "/a%0D%0Ab");
        assert_eq!(
            met("/*", "https://a.example/*", "/@evil", None),
            "https://a.example/@evil"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (from, to, status) in [
            ("old", "/new", 301),
            ("/old", "new", 301),
            ("/old", "//evil.example", 301),
            ("/old", "/\\evil.example", 301),
            ("/old", "ftp://example.org/", 301),
            ("/old", "https:///x", 301),
            ("/old", "/new\r\nX: y", 301),
            ("/old", "/new/*", 301),
            ("/old*", "/new", 301),
            ("/old/*/x", "/new", 301),
            ("/old/*", "https://example.org*", 301),
            ("/old/*", "https://*", 301),
            ("/old", "/old", 301),
            ("/old", "/old?x", 301),
            ("/old/*", "/old/new/*", 301),
            ("/old/*", "/old/x", 301),
            ("/../old", "/new", 301),
            ("/old?x", "/new", 301),
            ("/old", "/new", 200),
        ] {
            assert!(
                Redirect::new(from, to, status).is_err(),
                "{from} {to} {status}"
            );
        }
        assert!(Redirect::new("/old/*", "/old", 302).is_ok());
        assert!(Redirect::new("/old", "https://example.org", 302).is_ok());
    }

    #[test]
    fn rewrites_stay_beneath_the_root() {
        let met = |from: &str, to: &str, path: &str| {
            let path = SitePath::parse(path.as_bytes()).unwrap();
            let met = Rewrite::new(from, to).unwrap().meet(&path);
            met.map_or("-".into(), |met| format!("{:?}", met.path))
        };
        assert_eq!(met("/v2/*", "/*", "/v2/a/b"), "a/b");
        assert_eq!(met("/v2/*", "/*", "/v2/"), "/");
        assert_eq!(met("/v2/*", "/v3/*", "/v2/a/"), "v3/a/");
        assert_eq!(met("/a", "/b.html", "/a"), "b.html");
        assert_eq!(met("/a", "/b.html", "/a/"), "-");
        assert!(Rewrite::new("/a", "/../b").is_err());
        assert!(Rewrite::new("/a", "https://example.org/").is_err());
    }
}
