//! What kind of file a name promises.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use crate::site::rules::field::FieldValue;

/// What `Content-Type` says, by the extension of a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TypeOptions {
    /// What files get whose extension is not known: `application/octet-stream`, which clients
    /// save, where it is left out.
    pub default: Option<FieldValue>,
    /// The charset of text: `utf-8` by default; `none` leaves it to the browser, which
    /// guesses by the language of its user.
    pub charset: Option<FieldValue>,
    /// Types by extension, without its dot, before the built-in ones. A type with
    /// parameters gets no charset.
    pub extensions: BTreeMap<String, FieldValue>,
}

/// A media type as it stands in `Content-Type`.
#[derive(Debug)]
pub(crate) struct MediaType(String);

/// The types of a site.
#[derive(Debug)]
pub(crate) struct MediaTypes {
    default: String,
    charset: Option<String>,
    /// By extension in lower case.
    extensions: HashMap<String, String>,
}

/// What says nothing: the client saves it.
const UNKNOWN: &str = "application/octet-stream";

impl MediaTypes {
    pub(crate) fn new(options: &TypeOptions) -> MediaTypes {
        let text = |value: &FieldValue| value.as_str().to_owned();
        let charset = options.charset.as_ref().map_or("utf-8".to_owned(), text);
        let extensions = options.extensions.iter().map(|(extension, media)| {
            let extension = extension.trim_start_matches('.').to_ascii_lowercase();
            (extension, text(media))
        });
        MediaTypes {
            default: options.default.as_ref().map_or(UNKNOWN.to_owned(), text),
            charset: (charset != "none").then_some(charset),
            extensions: extensions.collect(),
        }
    }

    /// By the extension of the last segment of `path`.
    pub(crate) fn of(&self, path: &[u8]) -> MediaType {
        let name = extension(path).and_then(|extension| {
            let ours = self.extensions.get(&extension.to_ascii_lowercase());
            ours.map(String::as_str)
                .or_else(|| mime_guess::from_ext(extension).first_raw())
        });
        let name = name.unwrap_or(&self.default);
        match &self.charset {
            Some(charset) if is_text(name) => MediaType(format!("{name}; charset={charset}")),
            _ => MediaType(name.to_owned()),
        }
    }
}

impl MediaType {
    /// Without parameters.
    pub(crate) fn name(&self) -> &str {
        let name = self.0.split(';').next();
        name.unwrap_or_default().trim()
    }
}

impl AsRef<[u8]> for MediaType {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
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
    !name.contains(';') && (name.starts_with("text/") || name == "application/javascript")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_by(options: &str, path: &str) -> String {
        let types = MediaTypes::new(&toml::from_str(options).unwrap());
        types.of(path.as_bytes()).0
    }

    fn named(path: &str) -> String {
        named_by("", path)
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

    #[test]
    fn a_site_has_types_of_its_own() {
        let options = "default = 'text/plain'\ncharset = 'iso-8859-1'\n\
                       [extensions]\nLog = 'text/plain'\n'.x' = 'a/b'\n\
                       html = 'text/html; charset=x'";
        assert_eq!(named_by(options, "a.LOG"), "text/plain; charset=iso-8859-1");
        assert_eq!(named_by(options, "a.x"), "a/b");
        assert_eq!(named_by(options, "a.html"), "text/html; charset=x");
        assert_eq!(
            named_by(options, "README"),
            "text/plain; charset=iso-8859-1"
        );
        assert_eq!(named_by("charset = 'none'", "a.txt"), "text/plain");
    }
}
