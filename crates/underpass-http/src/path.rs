//! A path beneath the root: decoded once, normalised, and unable to name anything above the root.
//!
//! ```text
//!  /a//b/%2e%2e/c%2fd/  ─decode─►  segments a, b, .., c, d  ─normalise─►  a/c/d  (folder)
//! ```
//!
//! Every decision about a request (hiding, opening files) is based on this form only.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use crate::status::HttpError;

/// Extra capacity for names and suffixes appended to a path: an index, `.html`, `.zst`.
const ROOM: usize = 16;

/// The characters to encode in a path segment (RFC 3986, section 3.3), `\`, which browsers treat as
/// a slash, and `;`, which would end the path of a cookie.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b';')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The characters to encode in a segment or a value in a link, whether in HTML, in a header field,
/// or after `?name=`.
const LINKED: &AsciiSet = &ENCODED.add(b'/').add(b'&').add(b'+').add(b'=').add(b'\'');

/// A normalised path: segments joined by single slashes, none of them empty, `.` or `..`; no NUL.
#[derive(Clone, Eq, PartialEq)]
pub struct SitePath {
    bytes: Vec<u8>,
    form: PathForm,
}

/// The form of a path's end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathForm {
    /// A name.
    File,
    /// A slash, or dots that lead to a folder.
    Folder,
}

impl SitePath {
    /// Decodes and normalises the path of a target, which starts with a slash.
    ///
    /// Rejects malformed escapes, NUL, and paths that lead above the root. (RFC 3986 would stay at
    /// the root, but no legitimate client sends such paths.)
    pub fn parse(raw: &[u8]) -> Result<SitePath, HttpError> {
        let decoded = decode(raw)?;
        let mut bytes = Vec::with_capacity(raw.len() + ROOM);
        let mut form = PathForm::Folder;
        for segment in decoded.split(|&byte| byte == b'/') {
            form = match segment {
                b"" | b"." | b".." => PathForm::Folder,
                _ => PathForm::File,
            };
            match segment {
                b"" | b"." => {}
                b".." if bytes.is_empty() => {
                    return Err(HttpError::bad("the path leads above the root"));
                }
                b".." => {
                    let parent = bytes.iter().rposition(|&byte| byte == b'/');
                    bytes.truncate(parent.unwrap_or(0));
                }
                name => {
                    if !bytes.is_empty() {
                        bytes.push(b'/');
                    }
                    bytes.extend_from_slice(name);
                }
            }
        }
        Ok(SitePath { bytes, form })
    }

    /// Returns the path of a file; `path` must be normalised.
    pub fn of_file(path: &str) -> SitePath {
        SitePath {
            bytes: path.as_bytes().to_vec(),
            form: PathForm::File,
        }
    }

    /// Returns the path relative to the root; empty for the root itself.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the form of the end.
    pub fn form(&self) -> PathForm {
        self.form
    }

    /// Returns a unique key: the path, with a trailing slash for a folder.
    pub fn key(&self) -> Cow<'_, [u8]> {
        match self.form {
            PathForm::File => Cow::Borrowed(&self.bytes),
            PathForm::Folder => Cow::Owned([&self.bytes[..], b"/"].concat()),
        }
    }

    /// Returns the path of a name beneath this folder; `beneath` must be normalised.
    pub fn join(&self, beneath: &[u8], form: PathForm) -> SitePath {
        let mut bytes = Vec::with_capacity(self.bytes.len() + beneath.len() + ROOM);
        bytes.extend_from_slice(&self.bytes);
        if !bytes.is_empty() && !beneath.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(beneath);
        SitePath { bytes, form }
    }

    /// Returns the path of a file with `suffix` appended to the name.
    pub fn with_suffix(&self, suffix: &str) -> SitePath {
        let bytes = [&self.bytes[..], suffix.as_bytes()].concat();
        SitePath {
            bytes,
            form: PathForm::File,
        }
    }

    /// Returns the segments.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        names(&self.bytes)
    }

    /// Returns the last segment, empty for the root itself.
    pub fn name(&self) -> &[u8] {
        let mut segments = self.bytes.rsplit(|&byte| byte == b'/');
        segments.next().unwrap_or_default()
    }

    /// Whether a segment starts with a dot, except for `/.well-known/` (RFC 8615).
    pub fn is_hidden(&self) -> bool {
        let shown = self
            .bytes
            .strip_prefix(b".well-known")
            .unwrap_or(&self.bytes);
        let shown = match shown {
            [] | [b'/', ..] => shown,
            _ => &self.bytes,
        };
        shown.starts_with(b".") || shown.windows(2).any(|pair| pair == b"/.")
    }

    /// Appends the path to a `Location`: absolute, percent-encoded, with exactly one leading slash.
    pub fn encode_into(&self, location: &mut Vec<u8>) {
        location.push(b'/');
        encode_path(&self.bytes, location);
    }
}

/// Returns the segments in the bytes of a path.
pub fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
}

/// Appends a path beneath a folder, percent-encoded.
pub fn encode_path(beneath: &[u8], location: &mut Vec<u8>) {
    for part in percent_encode(beneath, ENCODED) {
        location.extend_from_slice(part.as_bytes());
    }
}

impl fmt::Debug for SitePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes.escape_ascii())?;
        match self.form {
            PathForm::File => Ok(()),
            PathForm::Folder => f.write_str("/"),
        }
    }
}

/// Encodes a segment of a path, or a value of a query, for a link.
pub fn encoded(segment: &[u8]) -> impl Iterator<Item = &str> {
    percent_encode(segment, LINKED)
}

/// Decodes a form-encoded query value. Malformed escapes are left unchanged.
pub fn decode_lossy(value: &[u8]) -> Vec<u8> {
    let blanks: Vec<u8> = value
        .iter()
        .map(|&byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    percent_decode(&blanks).collect()
}

/// Decodes a path; rejects malformed escapes and NUL.
fn decode(raw: &[u8]) -> Result<Cow<'_, [u8]>, HttpError> {
    let mut marks = (0..raw.len()).filter(|&at| raw[at] == b'%');
    if !marks.all(|at| is_escape(raw, at)) {
        return Err(HttpError::bad("the path contains a malformed escape"));
    }
    let decoded: Cow<'_, [u8]> = percent_decode(raw).into();
    match decoded.contains(&0) {
        true => Err(HttpError::bad("the path contains a NUL")),
        false => Ok(decoded),
    }
}

/// Whether the percent sign at `at` is followed by two digits.
pub fn is_escape(raw: &[u8], at: usize) -> bool {
    let digits = raw.get(at + 1..at + 3);
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parsed(raw: &str) -> String {
        match SitePath::parse(raw.as_bytes()) {
            Ok(path) => format!("{path:?}"),
            Err(_) => "refused".into(),
        }
    }

    #[test]
    fn paths_are_decoded_once_and_normalised() {
        for (raw, expected) in [
            ("/", "/"),
            ("/f.txt", "f.txt"),
            ("/f%2etxt", "f.txt"),
            ("/./f.txt", "f.txt"),
            ("/dir/../f.txt", "f.txt"),
            ("/dir/%2e%2E/f.txt", "f.txt"),
            ("/dir/", "dir/"),
            ("/dir/.", "dir/"),
            ("/dir/sub/..", "dir/"),
            ("/dir/..", "/"),
            ("//f.txt", "f.txt"),
            ("/dir//index.html", "dir/index.html"),
            ("/a%2fb", "a/b"),
            ("/%252e%252e/x", "%2e%2e/x"),
            ("/a\\b;x=1+", "a\\\\b;x=1+"),
            ("/a%5cb", "a\\\\b"),
            ("/%c0%ae", "\\xc0\\xae"),
            ("/...", "..."),
            ("/..a/.b", "..a/.b"),
        ] {
            assert_eq!(parsed(raw), expected, "{raw}");
        }
    }

    #[test]
    fn what_leads_above_the_root_or_is_malformed_is_refused() {
        for raw in [
            "/../x",
            "/..",
            "/%2e%2e/x",
            "/..%2fx",
            "/a/b/../../../x",
            "/a/../..",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
            "/a%00b",
        ] {
            assert_eq!(parsed(raw), "refused", "{raw}");
        }
    }

    #[test]
    fn dot_names_are_hidden_and_well_known_is_not() {
        let hidden = |raw: &str| SitePath::parse(raw.as_bytes()).unwrap().is_hidden();
        for raw in [
            "/.git",
            "/a/.b",
            "/.git/x",
            "/.well-known/.x",
            "/a/.well-known",
            "/.well-knownx",
        ] {
            assert!(hidden(raw), "{raw}");
        }
        for raw in [
            "/",
            "/a",
            "/a.b",
            "/.well-known",
            "/.well-known/x",
            "/.well-known/",
        ] {
            assert!(!hidden(raw), "{raw}");
        }
    }

    #[test]
    fn paths_are_joined_by_one_slash() {
        let join = |raw: &[u8], beneath: &[u8]| {
            let folder = SitePath::parse(raw).unwrap();
            format!("{:?}", folder.join(beneath, PathForm::File))
        };
        assert_eq!(join(b"/", b"index.html"), "index.html");
        assert_eq!(join(b"/a/b/", b"index.html"), "a/b/index.html");
        assert_eq!(join(b"/a/", b""), "a");
    }

    #[test]
    fn the_name_is_the_last_segment() {
        for (raw, name) in [("/", ""), ("/a", "a"), ("/a/b.c", "b.c"), ("/a/b/", "b")] {
            let path = SitePath::parse(raw.as_bytes()).unwrap();
            assert_eq!(path.name(), name.as_bytes(), "{raw}");
        }
    }

    #[test]
    fn a_folder_has_another_key_than_a_file() {
        let key = |raw: &[u8]| SitePath::parse(raw).unwrap().key().into_owned();
        assert_eq!(key(b"/"), b"/");
        assert_eq!(key(b"/a"), b"a");
        assert_eq!(key(b"/a/"), b"a/");
    }

    proptest! {
        #[test]
        fn a_path_never_escapes(raw in "(/|\\.|%2[eEfF]|[a-c]|%5c|%00|%ff){0,24}") {
            if let Ok(path) = SitePath::parse(format!("/{raw}").as_bytes()) {
                prop_assert!(!path.bytes().contains(&0));
                for segment in path.bytes().split(|&byte| byte == b'/') {
                    prop_assert!(segment != b".." && segment != b".");
                    prop_assert!(!segment.is_empty() || path.bytes().is_empty());
                }
            }
        }

        #[test]
        fn normalising_again_changes_nothing(raw in vec(any::<u8>(), 0..24)) {
            let mut target = b"/".to_vec();
            target.extend(raw);
            if let Ok(path) = SitePath::parse(&target) {
                let mut encoded = Vec::new();
                path.encode_into(&mut encoded);
                if path.form() == PathForm::Folder && !path.bytes().is_empty() {
                    encoded.push(b'/');
                }
                prop_assert!(encoded.iter().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(!encoded.starts_with(b"//"));
                prop_assert_eq!(SitePath::parse(&encoded).unwrap(), path);
            }
        }
    }
}
