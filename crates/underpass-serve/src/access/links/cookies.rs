//! Cookies for signed folders: the URLs of the parts of a page have no signature.
//!
//! ```text
//!  GET /drop/acme/?signed=S ─► Set-Cookie: underpass-signed=S; Path=/drop/acme/
//!  GET /drop/acme/style.css    Cookie: underpass-signed=S
//! ```
//!
//! The value is the signature of the link (RFC 6265, section 4.1), verified with every request: the
//! cookie allows what the link allows, and the server keeps no state.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use underpass_http::path::{PathForm, SitePath};
use underpass_http::request::request_line::HttpTarget;
use underpass_http::scheme::Scheme;

use crate::access::links::{LinkScope, ShownLink, SignedParameter};
use crate::limits::{LINK_COOKIE_AGE_MAX, LINK_COOKIES_MAX};

const NAME: &str = "underpass-signed";

/// Returns the signatures of folders in the value of `Cookie`. Malformed cookies are ignored, as
/// by other servers.
pub(crate) fn shown(cookies: &[u8]) -> impl Iterator<Item = SignedParameter> {
    // The server joins repeated fields with commas; no value contains one.
    let pairs = cookies.split(|byte| b";,".contains(byte));
    let values = pairs.filter_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(NAME.as_bytes())?;
        value.strip_prefix(b"=")
    });
    let signed = values
        .take(LINK_COOKIES_MAX)
        .filter_map(SignedParameter::parse);
    signed.filter(SignedParameter::is_of_folder)
}

/// Returns the `Set-Cookie` field, preceded by a line break, for a request of `target` by a valid
/// link to a folder. Returns `None` if the spelling of the folder cannot be the path of a cookie.
pub(crate) fn field(
    signed: &SignedParameter,
    link: &ShownLink,
    target: &HttpTarget<'_>,
    scheme: Scheme,
    now: SystemTime,
) -> Option<String> {
    let (ShownLink::Valid(LinkScope::Folder(folder)), HttpTarget::Path { spelling, .. }) =
        (link, target)
    else {
        return None;
    };
    let path = prefix(spelling, folder)?;
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_secs(signed.expires()).saturating_sub(since);
    let age = left.min(LINK_COOKIE_AGE_MAX).as_secs();
    let secure = match scheme {
        Scheme::Https => "; Secure",
        Scheme::Http => "",
    };
    Some(format!(
        "\r\nSet-Cookie: {NAME}={signed}; Path={path}; Max-Age={age}; HttpOnly; \
         SameSite=Lax{secure}"
    ))
}

/// Returns the prefix of a requested path that names `folder`. Browsers compare the spelling of
/// paths (RFC 6265, section 5.1.4), and relative links of a page have the same prefix.
fn prefix<'s>(spelling: &'s [u8], folder: &[u8]) -> Option<&'s str> {
    let slashes = (0..spelling.len()).filter(|&at| spelling[at] == b'/');
    let mut prefixes = slashes.map(|at| &spelling[..=at]);
    let names_folder = |prefix: &&[u8]| {
        let path = SitePath::parse(prefix);
        path.is_ok_and(|path| path.form() == PathForm::Folder && path.bytes() == folder)
    };
    let prefix = std::str::from_utf8(prefixes.find(names_folder)?).ok()?;
    // A semicolon would end the attribute.
    let is_value = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    prefix.bytes().all(is_value).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_has_the_path_that_browsers_send_it_to() {
        for (spelling, folder, expected) in [
            ("/a/", "a", Some("/a/")),
            ("/a/b/c.html", "a/b", Some("/a/b/")),
            ("/%61/b", "a", Some("/%61/")),
            ("/%C3%BC/b", "\u{fc}", Some("/%C3%BC/")),
            ("//a/b", "a", Some("//a/")),
            ("/x", "", Some("/")),
            ("/a%2Fb/c", "a/b", Some("/a%2Fb/")),
            ("/a%2Fb/c", "a", None),
            ("/a;b/c", "a;b", None),
            ("/a%3Bb/c", "a;b", Some("/a%3Bb/")),
            ("/\u{fc}/b", "\u{fc}", None),
            ("/a", "a", None),
        ] {
            let found = prefix(spelling.as_bytes(), folder.as_bytes());
            assert_eq!(found, expected, "{spelling}");
        }
    }

    #[test]
    fn cookies_that_are_malformed_are_ignored_and_many_too() {
        let one = format!("1000.2.{}", "A".repeat(43));
        let count = |cookies: &str| shown(cookies.as_bytes()).count();
        let named = format!("{NAME}={one}");
        assert_eq!(count(&named), 1);
        assert_eq!(count(&format!("a=b; {named};c, {named}")), 2);
        for other in [
            "",
            ";;=",
            NAME,
            &format!("{NAME}="),
            &format!("{NAME}=\"{one}\""),
            &format!("{NAME}s={one}"),
            &format!("x{named}"),
            &format!("{NAME}={}", one.replace(".2.", ".file.")),
            &format!("{NAME}={}", &one[..40]),
        ] {
            assert_eq!(count(other), 0, "{other}");
        }
        assert_eq!(count(&format!("{named};").repeat(99)), LINK_COOKIES_MAX);
    }
}
