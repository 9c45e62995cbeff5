//! Selects the files that are compressed while they are sent.

use serde::Deserialize;
use underpass_http::fields::coding::{Acceptable, Coding};

use crate::rules::mime::MediaType;

/// Media types: one, or all that match a star (`text/*`, `*+json`). Case is ignored.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct MediaPattern {
    before: String,
    /// The part after the star, if any.
    after: Option<String>,
}

/// The types compressed by default: text and similar ones.
const USUALLY: &[&str] = &[
    "text/*",
    "application/javascript",
    "application/json",
    "application/wasm",
    "application/xml",
    "*+json",
    "*+xml",
    "font/otf",
    "font/ttf",
];

/// Types that are compressed by nature, and never compressed again, whatever patterns match.
const NEVER: &[&str] = &[
    "application/gzip",
    "application/java-archive",
    "application/vnd.rar",
    "application/x-7z-compressed",
    "application/x-bzip*",
    "application/x-rar-compressed",
    "application/x-xz",
    "application/zip",
    "application/zstd",
    "audio/*",
    "font/woff*",
    "image/avif",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "video/*",
];

/// Responses smaller than a packet do not get faster.
const BYTES_MIN: u64 = 1024;

/// Whether a file may be compressed while it is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Compressible {
    Yes,
    No,
}

/// The compression rules of a site.
#[derive(Debug)]
pub(crate) struct CompressionRules {
    codings: Vec<Coding>,
    bytes_min: u64,
    types: Vec<MediaPattern>,
    never: Vec<MediaPattern>,
}

impl CompressionRules {
    pub(crate) fn new(
        codings: &[Coding],
        bytes_min: u64,
        types: &[MediaPattern],
    ) -> CompressionRules {
        CompressionRules {
            codings: codings.to_vec(),
            bytes_min,
            types: types.to_vec(),
            never: patterns(NEVER),
        }
    }

    /// Whether files of this type are compressed; `no-transform` in `control` forbids it.
    pub(crate) fn is_for(&self, media: &MediaType, control: Option<&str>) -> Compressible {
        let named = media.name().to_ascii_lowercase();
        let stands = |patterns: &[MediaPattern]| patterns.iter().any(|of| of.matches(&named));
        let forbidden = control.is_some_and(forbids_changes);
        match !self.codings.is_empty() && !forbidden && stands(&self.types) && !stands(&self.never)
        {
            true => Compressible::Yes,
            false => Compressible::No,
        }
    }

    /// Returns the coding for a file of this size and a client with these preferences. If the
    /// client rejects the plain file, small files are compressed too.
    pub(crate) fn choose(&self, size: u64, acceptable: &Acceptable) -> Option<Coding> {
        match size < self.bytes_min && acceptable.takes_identity() {
            true => None,
            false => acceptable.choices(&self.codings).next(),
        }
    }
}

/// Checks for `no-transform` (RFC 9111, section 5.2.2.6), even within quotes.
fn forbids_changes(control: &str) -> bool {
    let mut directives = control.split(',').map(str::trim);
    directives.any(|directive| directive.eq_ignore_ascii_case("no-transform"))
}

/// Returns the default of the option.
pub(crate) fn usual_types() -> Vec<MediaPattern> {
    patterns(USUALLY)
}

pub(crate) fn usual_bytes_min() -> u64 {
    BYTES_MIN
}

fn patterns(all: &[&str]) -> Vec<MediaPattern> {
    let parsed = all.iter().map(|text| MediaPattern::parse(text));
    parsed.filter_map(Result::ok).collect()
}

impl MediaPattern {
    /// Checks a pattern.
    ///
    /// # Errors
    /// A description, if the text is not a media type or has two stars.
    pub fn parse(text: &str) -> Result<MediaPattern, String> {
        let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || b"*/+-._".contains(&byte);
        let slashes = text.matches('/').count();
        let stars = text.matches('*').count();
        let ends = text.starts_with('/') || text.ends_with('/');
        if !text.bytes().all(is_ours) || slashes + stars == 0 || slashes > 1 || stars > 1 || ends {
            return Err(format!(
                "{text:?} is not a media type; expected for example \"text/html\", \"text/*\" or \
                 \"*+json\""
            ));
        }
        let text = text.to_ascii_lowercase();
        Ok(match text.split_once('*') {
            Some((before, after)) => MediaPattern {
                before: before.to_owned(),
                after: Some(after.to_owned()),
            },
            None => MediaPattern {
                before: text,
                after: None,
            },
        })
    }

    /// Whether the pattern matches a type in lower case.
    fn matches(&self, media: &str) -> bool {
        match &self.after {
            None => media == self.before,
            Some(after) => {
                let rest = media.strip_prefix(&self.before);
                rest.is_some_and(|rest| rest.ends_with(after.as_str()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::mime::{MediaTypes, TypeOptions};

    fn of(site: &crate::SiteOptions) -> CompressionRules {
        CompressionRules::new(
            &site.compress,
            site.compress_bytes_min,
            &site.compress_types,
        )
    }

    fn is_for(options: &str, name: &str, control: Option<&str>) -> bool {
        let text = format!("[[site]]\n{options}");
        let options = crate::ServerOptions::parse(&text).unwrap();
        let compress = of(&options.sites[0]);
        let media = MediaTypes::new(&TypeOptions::default()).of(name.as_bytes());
        compress.is_for(&media, control) == Compressible::Yes
    }

    #[test]
    fn what_is_like_text_is_compressed_and_nothing_that_is_already() {
        let on = "compress = ['gzip']";
        for name in [
            "a.html",
            "a.CSS",
            "a.js",
            "a.json",
            "a.svg",
            "a.wasm",
            "a.xml",
            "a.webmanifest",
        ] {
            assert!(is_for(on, name, None), "{name}");
            assert!(!is_for("", name, None), "{name}");
        }
        let all = "compress = ['gzip']\ncompress-types = ['*']";
        for name in ["a.png", "a.zip", "a.mp4", "a.woff2", "a.jpg", "a.gz"] {
            assert!(!is_for(on, name, None), "{name}");
            assert!(!is_for(all, name, None), "{name}");
        }
        assert!(is_for(all, "unknown", None) && !is_for(on, "unknown", None));
    }

    #[test]
    fn who_says_that_nothing_is_to_be_changed_is_heard() {
        let on = "compress = ['gzip']";
        assert!(!is_for(on, "a.txt", Some("no-transform")));
        assert!(!is_for(
            on,
            "a.txt",
            Some("public, No-Transform ,max-age=1")
        ));
        assert!(is_for(on, "a.txt", Some("no-cache, x-no-transform")));
    }

    #[test]
    fn patterns_have_one_star_at_the_most() {
        for wrong in [
            "", "text", "a/b/c", "*/*", "text/", "/html", "a b/c", "a/b;c",
        ] {
            assert!(MediaPattern::parse(wrong).is_err(), "{wrong:?}");
        }
        let matches = |pattern, media| MediaPattern::parse(pattern).unwrap().matches(media);
        assert!(matches("TEXT/*", "text/html") && !matches("text/*", "atext/html"));
        assert!(matches("*+xml", "image/svg+xml") && !matches("*+xml", "image/xml"));
        assert!(!matches("a/b*b", "a/b"), "both ends are looked for apart");
        assert!(matches("*", "a/b"));
        let all = USUALLY.len() + NEVER.len();
        assert_eq!(patterns(USUALLY).len() + patterns(NEVER).len(), all);
    }

    #[test]
    fn the_size_counts_unless_the_plain_file_is_refused() {
        let text = "[[site]]\ncompress = ['zstd', 'gzip']\ncompress-bytes-min = 10";
        let compress = of(&crate::ServerOptions::parse(text).unwrap().sites[0]);
        let chosen = |size, accepted: &[u8]| {
            let acceptable = Acceptable::parse(Some(accepted));
            compress.choose(size, &acceptable)
        };
        assert_eq!(chosen(10, b"gzip, zstd, br"), Some(Coding::Zstd));
        assert_eq!(chosen(10, b"gzip, zstd;q=0.5"), Some(Coding::Gzip));
        assert_eq!(chosen(9, b"gzip"), None);
        assert_eq!(chosen(9, b"gzip, identity;q=0"), Some(Coding::Gzip));
        assert_eq!(chosen(10, b"br"), None);
        let usual = "[[site]]\ncompress = ['gzip']";
        let compress = of(&crate::ServerOptions::parse(usual).unwrap().sites[0]);
        let gzip = Acceptable::parse(Some(b"gzip"));
        assert_eq!(compress.choose(1024, &gzip), Some(Coding::Gzip));
        assert_eq!(compress.choose(1023, &gzip), None);
    }
}
