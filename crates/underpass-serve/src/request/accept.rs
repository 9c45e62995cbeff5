//! The format that a client prefers: `Accept`, RFC 9110, section 12.5.1.

use crate::http::coding::{Quality, parse_quality};
use crate::request::query::ListingFormat;

/// Returns HTML, unless the client prefers JSON: with a higher quality, or the same and a more
/// specific range (`application/json, */*`).
pub(crate) fn preferred(accept: Option<&[u8]>) -> ListingFormat {
    let accept = accept.unwrap_or_default();
    let weight = |kind, subtype| weight(accept, kind, subtype);
    match weight("application", "json") > weight("text", "html") {
        true => ListingFormat::Json,
        false => ListingFormat::Html,
    }
}

/// Returns the quality of a media type, in thousandths, and the specificity of the most specific
/// range that matches it.
fn weight(accept: &[u8], kind: &str, subtype: &str) -> (Quality, u8) {
    let mut best = (0, 0);
    for range in accept.split(|&byte| byte == b',') {
        let mut parts = range.split(|&byte| byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let mut halves = name.splitn(2, |&byte| byte == b'/');
        let (Some(first), Some(second)) = (halves.next(), halves.next()) else {
            continue;
        };
        let is = |half: &[u8], name: &str| half.eq_ignore_ascii_case(name.as_bytes());
        let closeness = match (is(first, kind), is(second, subtype)) {
            (true, true) => 3,
            (true, false) if second == b"*" => 2,
            (false, _) if name == b"*/*" => 1,
            _ => continue,
        };
        let quality = parts.find_map(quality).unwrap_or(1000);
        best = best.max((closeness, quality));
    }
    match best {
        // A rejected type is as unspecific as one that is not listed.
        (_, 0) => (0, 0),
        (closeness, quality) => (quality, closeness),
    }
}

/// Parses `q=0.5` into thousandths. A malformed value counts as 0.
fn quality(parameter: &[u8]) -> Option<Quality> {
    match parameter.trim_ascii() {
        [b'q' | b'Q', b'=', value @ ..] => Some(parse_quality(value).unwrap_or(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_to_be_preferred() {
        for (accept, format) in [
            ("application/json", ListingFormat::Json),
            ("application/json, text/plain, */*", ListingFormat::Json),
            ("application/json, text/html;q=0.9", ListingFormat::Json),
            ("text/html, application/json;q=0.9", ListingFormat::Html),
            ("application/json, text/html", ListingFormat::Html),
            (
                "text/html,application/xhtml+xml,*/*;q=0.8",
                ListingFormat::Html,
            ),
            ("APPLICATION/JSON;Q=0.5, text/*;q=0.4", ListingFormat::Json),
            ("application/*", ListingFormat::Json),
            ("application/json;q=0", ListingFormat::Html),
            ("application/json;q=x", ListingFormat::Html),
            ("application/json;q=1e-1", ListingFormat::Html),
            (
                "application/json;q=0.57, text/html;q=0.569",
                ListingFormat::Json,
            ),
            ("*/*;q=0.1, application/json;q=0.2", ListingFormat::Json),
            ("*/*", ListingFormat::Html),
            ("application/json;q=0.5, */*", ListingFormat::Html),
            ("application/json;q=0.5, image/png", ListingFormat::Json),
            ("application/xhtml+xml, */*;q=0.8", ListingFormat::Html),
            (",;/", ListingFormat::Html),
            ("", ListingFormat::Html),
        ] {
            assert_eq!(preferred(Some(accept.as_bytes())), format, "{accept}");
        }
        assert_eq!(preferred(None), ListingFormat::Html);
    }
}
