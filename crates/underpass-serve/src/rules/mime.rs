//! The media type of a file, by its name.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use crate::rules::field::FieldValue;

/// The `Content-Type` of files, by the extension of their names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TypeOptions {
    /// The type of files with an unknown extension: `application/octet-stream` by default, which
    /// clients save.
    pub default: Option<FieldValue>,
    /// The charset of text: `utf-8` by default; `none` leaves it to the browser, which guesses by
    /// the language of its user.
    pub charset: Option<FieldValue>,
    /// Types by extension, without its dot; they override the built-in ones. A type with parameters
    /// gets no charset.
    pub extensions: BTreeMap<String, FieldValue>,
}

/// A media type in the form of `Content-Type`.
#[derive(Debug)]
pub(crate) struct MediaType(String);

/// The types of a site.
#[derive(Debug)]
pub(crate) struct MediaTypes {
    default: String,
    charset: Option<String>,
    /// Types by extension in lower case.
    extensions: HashMap<String, String>,
}

/// A generic type: the client saves the file.
const UNKNOWN: &str = "application/octet-stream";

/// Extensions for which `mime_guess` has no type, or one that is not registered with IANA and that
/// players and browsers do not know. Sorted. The type of `rpm` is unregistered but in general use.
const OVERRIDES: &[(&str, &str)] = &[
    ("3mf", "model/3mf"),
    ("appimage", "application/vnd.appimage"),
    ("arrow", "application/vnd.apache.arrow.file"),
    ("cjs", "text/javascript"),
    ("deb", "application/vnd.debian.binary-package"),
    ("flatpak", "application/vnd.flatpak"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("obj", "model/obj"),
    ("otf", "font/otf"),
    ("p12", "application/pkcs12"),
    ("pfx", "application/pkcs12"),
    ("psd", "image/vnd.adobe.photoshop"),
    ("rar", "application/vnd.rar"),
    ("rpm", "application/x-rpm"),
    ("snap", "application/vnd.snap"),
    ("sql", "application/sql"),
    ("sqlite", "application/vnd.sqlite3"),
    ("sqlite3", "application/vnd.sqlite3"),
    ("step", "model/step"),
    ("stl", "model/stl"),
    ("stp", "model/step"),
    ("tgz", "application/gzip"),
    ("ts", "video/mp2t"),
    ("ttml", "application/ttml+xml"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcf", "text/vcard"),
    ("woff", "font/woff"),
    ("zst", "application/zstd"),
];

/// Returns the type of an extension in lower case.
fn registered(extension: &str) -> Option<&'static str> {
    let found = OVERRIDES.binary_search_by_key(&extension, |(extension, _)| extension);
    match found {
        Ok(at) => Some(OVERRIDES[at].1),
        Err(_) => mime_guess::from_ext(extension).first_raw(),
    }
}

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

    /// Returns the type by the extension of the last segment of `path`.
    pub(crate) fn of(&self, path: &[u8]) -> MediaType {
        let name = extension(path).and_then(|extension| {
            let extension = extension.to_ascii_lowercase();
            let ours = self.extensions.get(&extension).map(String::as_str);
            ours.or_else(|| registered(&extension))
        });
        let name = name.unwrap_or(&self.default);
        match &self.charset {
            Some(charset) if is_text(name) => MediaType(format!("{name}; charset={charset}")),
            _ => MediaType(name.to_owned()),
        }
    }
}

impl MediaType {
    /// Returns the type without parameters.
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

/// Returns the extension of the last segment; a leading dot does not start one.
fn extension(path: &[u8]) -> Option<&str> {
    let segment = path.rsplit(|&byte| byte == b'/').next()?;
    let dot = segment.iter().rposition(|&byte| byte == b'.')?;
    match dot {
        0 => None,
        _ => std::str::from_utf8(&segment[dot + 1..]).ok(),
    }
}

/// Whether the type needs a charset, as browsers would otherwise guess by their user's language.
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

    /// Expects the types of nginx if they are registered; else those of IANA's registry, or those
    /// in general use. `iso`, `img`, `dmg`, `exe` and the like are saved.
    #[test]
    fn extensions_have_the_types_of_the_registry() {
        assert!(OVERRIDES.is_sorted());
        let expected = [
            ("html", "text/html"),
            ("htm", "text/html"),
            ("css", "text/css"),
            ("js", "text/javascript"),
            ("mjs", "text/javascript"),
            ("cjs", "text/javascript"),
            ("json", "application/json"),
            ("jsonld", "application/ld+json"),
            ("geojson", "application/geo+json"),
            ("webmanifest", "application/manifest+json"),
            ("map", "text/plain"),
            ("xml", "text/xml"),
            ("xsl", "text/xml"),
            ("xhtml", "application/xhtml+xml"),
            ("atom", "application/atom+xml"),
            ("rss", "application/rss+xml"),
            ("txt", "text/plain"),
            ("log", "text/plain"),
            ("csv", "text/csv"),
            ("tsv", "text/tab-separated-values"),
            ("md", "text/markdown"),
            ("ics", "text/calendar"),
            ("vcf", "text/vcard"),
            ("rtf", "application/rtf"),
            ("tex", "application/x-tex"),
            ("pdf", "application/pdf"),
            ("ps", "application/postscript"),
            ("eps", "application/postscript"),
            ("ai", "application/postscript"),
            ("epub", "application/epub+zip"),
            ("mobi", "application/x-mobipocket-ebook"),
            ("doc", "application/msword"),
            ("xls", "application/vnd.ms-excel"),
            ("ppt", "application/vnd.ms-powerpoint"),
            (
                "docx",
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            ),
            (
                "xlsx",
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            ),
            (
                "pptx",
                "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            ),
            ("odt", "application/vnd.oasis.opendocument.text"),
            ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
            ("odp", "application/vnd.oasis.opendocument.presentation"),
            ("odg", "application/vnd.oasis.opendocument.graphics"),
            ("gif", "image/gif"),
            ("jpg", "image/jpeg"),
            ("jpeg", "image/jpeg"),
            ("png", "image/png"),
            ("apng", "image/apng"),
            ("webp", "image/webp"),
            ("avif", "image/avif"),
            ("heic", "image/heic"),
            ("heif", "image/heif"),
            ("jxl", "image/jxl"),
            ("svg", "image/svg+xml"),
            ("svgz", "image/svg+xml"),
            ("bmp", "image/bmp"),
            ("ico", "image/x-icon"),
            ("tif", "image/tiff"),
            ("tiff", "image/tiff"),
            ("psd", "image/vnd.adobe.photoshop"),
            ("wbmp", "image/vnd.wap.wbmp"),
            ("mp3", "audio/mpeg"),
            ("m4a", "audio/mp4"),
            ("aac", "audio/aac"),
            ("oga", "audio/ogg"),
            ("ogg", "audio/ogg"),
            ("opus", "audio/ogg"),
            ("flac", "audio/flac"),
            ("wav", "audio/wav"),
            ("mid", "audio/midi"),
            ("midi", "audio/midi"),
            ("kar", "audio/midi"),
            ("weba", "audio/webm"),
            ("aiff", "audio/aiff"),
            ("mp4", "video/mp4"),
            ("m4v", "video/mp4"),
            ("m4s", "video/iso.segment"),
            ("webm", "video/webm"),
            ("ogv", "video/ogg"),
            ("mov", "video/quicktime"),
            ("mpg", "video/mpeg"),
            ("mpeg", "video/mpeg"),
            ("avi", "video/x-msvideo"),
            ("wmv", "video/x-ms-wmv"),
            ("asf", "video/x-ms-asf"),
            ("flv", "video/x-flv"),
            ("3gp", "video/3gpp"),
            ("3g2", "video/3gpp2"),
            ("mkv", "video/x-matroska"),
            ("ts", "video/mp2t"),
            ("m3u8", "application/vnd.apple.mpegurl"),
            ("mpd", "application/dash+xml"),
            ("vtt", "text/vtt"),
            ("ttml", "application/ttml+xml"),
            ("ttf", "font/ttf"),
            ("otf", "font/otf"),
            ("woff", "font/woff"),
            ("woff2", "font/woff2"),
            ("eot", "application/vnd.ms-fontobject"),
            ("wasm", "application/wasm"),
            ("gltf", "model/gltf+json"),
            ("glb", "model/gltf-binary"),
            ("obj", "model/obj"),
            ("stl", "model/stl"),
            ("3mf", "model/3mf"),
            ("step", "model/step"),
            ("stp", "model/step"),
            ("usdz", "model/vnd.usdz+zip"),
            ("zip", "application/zip"),
            ("gz", "application/gzip"),
            ("tgz", "application/gzip"),
            ("tar", "application/x-tar"),
            ("bz2", "application/x-bzip2"),
            ("xz", "application/x-xz"),
            ("zst", "application/zstd"),
            ("7z", "application/x-7z-compressed"),
            ("rar", "application/vnd.rar"),
            ("jar", "application/java-archive"),
            ("war", "application/java-archive"),
            ("ear", "application/java-archive"),
            ("deb", "application/vnd.debian.binary-package"),
            ("rpm", "application/x-rpm"),
            ("apk", "application/vnd.android.package-archive"),
            ("snap", "application/vnd.snap"),
            ("flatpak", "application/vnd.flatpak"),
            ("appimage", "application/vnd.appimage"),
            ("iso", "application/octet-stream"),
            ("img", "application/octet-stream"),
            ("dmg", "application/octet-stream"),
            ("bin", "application/octet-stream"),
            ("exe", "application/octet-stream"),
            ("msi", "application/octet-stream"),
            ("torrent", "application/x-bittorrent"),
            ("parquet", "application/vnd.apache.parquet"),
            ("arrow", "application/vnd.apache.arrow.file"),
            ("sqlite", "application/vnd.sqlite3"),
            ("sqlite3", "application/vnd.sqlite3"),
            ("sql", "application/sql"),
            ("kml", "application/vnd.google-earth.kml+xml"),
            ("kmz", "application/vnd.google-earth.kmz"),
            ("gpx", "application/gpx+xml"),
            ("swf", "application/x-shockwave-flash"),
            ("xpi", "application/x-xpinstall"),
            ("crt", "application/x-x509-ca-cert"),
            ("pem", "application/x-x509-ca-cert"),
            ("der", "application/x-x509-ca-cert"),
            ("p12", "application/pkcs12"),
            ("pfx", "application/pkcs12"),
            ("jad", "text/vnd.sun.j2me.app-descriptor"),
            ("htc", "text/x-component"),
            ("mml", "text/mathml"),
            ("hqx", "application/mac-binhex40"),
            ("sit", "application/x-stuffit"),
            ("tcl", "application/x-tcl"),
            ("tk", "application/x-tcl"),
            ("pl", "application/x-perl"),
            ("pm", "application/x-perl"),
            ("sh", "application/x-sh"),
            ("py", "text/plain"),
            ("c", "text/plain"),
            ("h", "text/plain"),
            ("yaml", "text/x-yaml"),
            ("yml", "text/x-yaml"),
            ("toml", "text/x-toml"),
            ("rs", "text/x-rust"),
        ];
        let wrong = expected.iter().filter(|(extension, media)| {
            let found = registered(extension).unwrap_or(UNKNOWN);
            found != *media
        });
        let wrong = wrong.map(|(extension, _)| (*extension, registered(extension)));
        assert_eq!(Vec::from_iter(wrong), []);
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
