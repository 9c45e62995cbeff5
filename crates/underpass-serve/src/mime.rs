//! What kind of file a name promises.

/// A media type as it stands in `Content-Type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MediaType {
    name: &'static str,
    charset: &'static str,
}

/// What says nothing: the client saves it.
const UNKNOWN: &str = "application/octet-stream";

impl MediaType {
    /// By the extension of the last segment of `path`.
    pub(crate) fn of(path: &[u8]) -> MediaType {
        let name = extension(path)
            .and_then(|extension| mime_guess::from_ext(extension).first_raw())
            .unwrap_or(UNKNOWN);
        let charset = match is_text(name) {
            true => "; charset=utf-8",
            false => "",
        };
        MediaType { name, charset }
    }

    /// Appends it to a head.
    pub(crate) fn push_to(self, head: &mut Vec<u8>) {
        head.extend_from_slice(self.name.as_bytes());
        head.extend_from_slice(self.charset.as_bytes());
    }
}

/// What follows the last dot of the last segment, unless that dot is its first character.
fn extension(path: &[u8]) -> Option<&str> {
    let segment = path.rsplit(|&byte| byte == b'/').next()?;
    let dot = segment.iter().rposition(|&byte| byte == b'.')?;
    match dot {
        0 => None,
        _ => std::str::from_utf8(&segment[dot + 1..]).ok(),
    }
}

/// Without a charset browsers guess, by the language of their user.
fn is_text(name: &str) -> bool {
    name.starts_with("text/") || name == "application/javascript"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str) -> String {
        let mut head = Vec::new();
        MediaType::of(path.as_bytes()).push_to(&mut head);
        String::from_utf8(head).unwrap()
    }

    #[test]
    fn by_extension_in_any_letter_case() {
        assert_eq!(named("a/b.html"), "text/html; charset=utf-8");
        assert_eq!(named("B.TXT"), "text/plain; charset=utf-8");
        assert_eq!(named("a.png"), "image/png");
        assert_eq!(named("a.json"), "application/json");
        assert_eq!(named("a.tar.gz"), "application/gzip");
    }

    #[test]
    fn unknown_otherwise() {
        for path in [
            "README",
            "a.b/c",
            ".html",
            "x.nosuchextension",
            "x.",
            "x.\u{fffd}",
        ] {
            assert_eq!(named(path), UNKNOWN, "{path}");
        }
    }
}
