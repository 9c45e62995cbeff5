//! The media type that a client prefers: `Accept`, RFC 9110, section 12.5.1.

use crate::fields::coding::{Quality, parse_quality};

/// Whether the client prefers the media type `first` to `second`, each type and subtype: with a
/// higher quality, or the same and a more specific range (`application/json, */*`).
pub fn prefers(accept: Option<&[u8]>, first: (&str, &str), second: (&str, &str)) -> bool {
    let accept = accept.unwrap_or_default();
    weight(accept, first) > weight(accept, second)
}

/// Returns the quality of a media type, in thousandths, and the specificity of the most specific
/// range that matches it.
fn weight(accept: &[u8], (kind, subtype): (&str, &str)) -> (Quality, u8) {
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

    fn prefers_json(accept: Option<&[u8]>) -> bool {
        prefers(accept, ("application", "json"), ("text", "html"))
    }

    #[test]
    fn json_has_to_be_prefers_json() {
        for (accept, format) in [
            ("application/json", true),
            ("application/json, text/plain, */*", true),
            ("application/json, text/html;q=0.9", true),
            ("text/html, application/json;q=0.9", false),
            ("application/json, text/html", false),
            ("text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("APPLICATION/JSON;Q=0.5, text/*;q=0.4", true),
            ("application/*", true),
            ("application/json;q=0", false),
            ("application/json;q=x", false),
            ("application/json;q=1e-1", false),
            ("application/json;q=0.57, text/html;q=0.569", true),
            ("*/*;q=0.1, application/json;q=0.2", true),
            ("*/*", false),
            ("application/json;q=0.5, */*", false),
            ("application/json;q=0.5, image/png", true),
            ("application/xhtml+xml, */*;q=0.8", false),
            (",;/", false),
            ("", false),
        ] {
            assert_eq!(prefers_json(Some(accept.as_bytes())), format, "{accept}");
        }
        assert!(!prefers_json(None));
    }
}
