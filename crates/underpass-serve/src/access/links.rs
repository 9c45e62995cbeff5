//! Signed links: a URL that grants its holder read access until a set time.
//!
//! ```text
//!  /drop/acme/report.pdf?signed=1800000000.file.Kx3…    that file
//!  /drop/acme/report.pdf?signed=1800000000.2.9fQ…       it is in a folder of 2 names: /drop/acme/
//! ```
//!
//! The signature is HMAC-SHA-256 (RFC 2104) of method, path and time, in base64url. The key is the
//! content of a file; the first configured key signs and all of them verify, so that keys can be
//! changed while links are in use.

pub(crate) mod cookies;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::percent_decode;
use sha2::Sha256;
use underpass_http::path::{PathForm, SitePath, names};
use zeroize::Zeroizing;

use crate::limits::LINK_KEY_BYTES_MIN;

/// The query parameter that holds a signature.
pub(crate) const PARAMETER: &str = "signed";

/// A key of signed links.
pub(crate) struct LinkKey(Zeroizing<Vec<u8>>);

/// The scope of a signed link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum LinkScope {
    /// This file.
    File(Vec<u8>),
    /// This folder and everything beneath it. Empty for the root.
    Folder(Vec<u8>),
}

/// The result of verifying a signed link.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum ShownLink {
    /// No link, or not signed with any of the keys, or signed for another path.
    #[default]
    None,
    /// The holder may read this.
    Valid(LinkScope),
    /// The link has expired.
    Expired,
}

/// The parsed value of the parameter; not verified yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SignedParameter {
    expires: u64,
    /// The number of names in the path of the signed folder; `None` for a file.
    depth: Option<usize>,
    signature: [u8; SIGNATURE_BYTES],
}

const SIGNATURE_BYTES: usize = 32;

/// The first line of the signed text, which separates this use of the key from others.
const PURPOSE: &str = "underpass-link-1";

impl LinkKey {
    /// Reads the content of a key file, without its line end.
    ///
    /// # Errors
    /// The content is too short to be a secret.
    pub(crate) fn parse(content: &[u8]) -> Result<LinkKey, String> {
        let key = content.trim_ascii_end();
        match key.len() {
            LINK_KEY_BYTES_MIN.. => Ok(LinkKey(Zeroizing::new(key.to_vec()))),
            length => Err(format!(
                "the key has {length} bytes, fewer than {LINK_KEY_BYTES_MIN}; `openssl rand \
                 -base64 32` makes one"
            )),
        }
    }

    fn mac(&self, scope: &LinkScope, expires: u64) -> Hmac<Sha256> {
        // HMAC accepts a key of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|_| unreachable!());
        let (bytes, slash) = match scope {
            LinkScope::File(path) => (path, ""),
            LinkScope::Folder(path) => (path, "/"),
        };
        mac.update(format!("{PURPOSE}\nGET\n{expires}\n/").as_bytes());
        mac.update(bytes);
        mac.update(slash.as_bytes());
        mac
    }
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey")
    }
}

impl SignedParameter {
    /// Signs the file or folder that `path` names, until `expires`.
    pub(crate) fn sign(path: &SitePath, expires: SystemTime, key: &LinkKey) -> SignedParameter {
        let since = expires.duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = since.as_secs();
        let (scope, depth) = match path.form() {
            PathForm::File => (LinkScope::File(path.bytes().to_vec()), None),
            PathForm::Folder => {
                let scope = LinkScope::Folder(path.bytes().to_vec());
                (scope, Some(path.names().count()))
            }
        };
        let signature = key.mac(&scope, expires).finalize().into_bytes().into();
        SignedParameter {
            expires,
            depth,
            signature,
        }
    }

    /// Parses the value of the parameter.
    pub(crate) fn parse(value: &[u8]) -> Option<SignedParameter> {
        let mut parts = std::str::from_utf8(value).ok()?.split('.');
        let (expires, scope, signature) = (parts.next()?, parts.next()?, parts.next()?);
        let parameter = SignedParameter {
            expires: decimal(expires)?,
            depth: match scope {
                FILE => None,
                depth => Some(usize::try_from(decimal(depth)?).ok()?),
            },
            signature: {
                let bytes = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
                bytes.try_into().ok()?
            },
        };
        parts.next().is_none().then_some(parameter)
    }

    /// Verifies the link at the time `now`, for a request of `path`.
    pub(crate) fn verify(
        &self,
        path: &SitePath,
        keys: &[Arc<LinkKey>],
        now: SystemTime,
    ) -> ShownLink {
        let Some(scope) = self.scope(path) else {
            return ShownLink::None;
        };
        let is_genuine = |key: &Arc<LinkKey>| {
            let mac = key.mac(&scope, self.expires);
            mac.verify_slice(&self.signature).is_ok()
        };
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        // All keys are tried, so that the time does not depend on which one matches.
        let genuine = keys.iter().filter(|key| is_genuine(key)).count();
        match (genuine, since < Duration::from_secs(self.expires)) {
            (0, _) => ShownLink::None,
            (_, true) => ShownLink::Valid(scope),
            (_, false) => ShownLink::Expired,
        }
    }

    /// Returns the second at which the signature expires, since 1970.
    pub(crate) fn expires(&self) -> u64 {
        self.expires
    }

    pub(crate) fn is_of_folder(&self) -> bool {
        self.depth.is_some()
    }

    /// Returns the scope of the link if it covers `path`.
    fn scope(&self, path: &SitePath) -> Option<LinkScope> {
        match self.depth {
            None => Some(LinkScope::File(path.bytes().to_vec())),
            Some(depth) => Some(LinkScope::Folder(folder_of(path, depth)?.to_vec())),
        }
    }
}

impl fmt::Display for SignedParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.expires)?;
        match self.depth {
            None => f.write_str(FILE)?,
            Some(depth) => depth.fmt(f)?,
        }
        write!(f, ".{}", BASE64_URL_SAFE_NO_PAD.encode(self.signature))
    }
}

/// The depth field in the link of a file.
const FILE: &str = "file";

impl ShownLink {
    /// Whether the link grants read access to `path`.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        matches!(self, ShownLink::Valid(scope) if scope.covers(path))
    }

    /// Returns the number of names in the path of a valid link; 0 for the root and for other links.
    pub(crate) fn depth(&self) -> usize {
        match self {
            ShownLink::Valid(LinkScope::File(path) | LinkScope::Folder(path)) => {
                names(path).count()
            }
            ShownLink::None | ShownLink::Expired => 0,
        }
    }

    /// Returns the rank among several links of a request: a wider valid link ranks higher.
    pub(crate) fn rank(&self) -> usize {
        match self {
            ShownLink::None => 0,
            ShownLink::Expired => 1,
            ShownLink::Valid(_) => usize::MAX - self.depth(),
        }
    }
}

impl LinkScope {
    /// Whether `path` is the file, or is within the folder.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        match self {
            LinkScope::File(file) => file == path,
            LinkScope::Folder(folder) if folder.is_empty() => true,
            LinkScope::Folder(folder) => {
                let beneath = path.strip_prefix(&folder[..]);
                matches!(beneath, Some([] | [b'/', ..]))
            }
        }
    }
}

/// Removes signatures from a part of a request: the values of the parameter, and anything that
/// looks like one elsewhere, as in a link mangled in transit (`?amp;signed=`, `%3Fsigned%3D`).
pub(crate) fn redacted(part: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = !part.windows(START.len()).any(|window| window == START);
    if is_plain && !words(part).any(holds_signature) {
        return Cow::Borrowed(part);
    }
    let mut redacted = Vec::with_capacity(part.len());
    for pair in part.split_inclusive(|byte| b"?&".contains(byte)) {
        match pair.strip_prefix(START) {
            Some(value) => {
                redacted.extend_from_slice(b"signed=-");
                redacted.extend(value.last().filter(|byte| b"?&".contains(byte)));
            }
            None => {
                for word in pair.split_inclusive(|byte| !is_of_word(*byte)) {
                    let end = word.iter().rposition(|byte| is_of_word(*byte));
                    let (word, separator) = word.split_at(end.map_or(0, |end| end + 1));
                    match holds_signature(word) {
                        true => redacted.push(b'-'),
                        false => redacted.extend_from_slice(word),
                    }
                    redacted.extend_from_slice(separator);
                }
            }
        }
    }
    Cow::Owned(redacted)
}

const START: &[u8] = b"signed=";

/// The minimum number of characters of a truncated signature; a shorter one is useless.
const SIGNATURE_PART_MIN: usize = 22;

/// Whether a signature may have the byte, percent-encoded or not.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.%".contains(&byte)
}

fn words(part: &[u8]) -> impl Iterator<Item = &[u8]> {
    part.split(|byte| !is_of_word(*byte))
}

/// Whether a word has an expiry, a scope and a signature, percent-encoded up to twice.
fn holds_signature(word: &[u8]) -> bool {
    if word.len() < SIGNATURE_PART_MIN {
        return false;
    }
    let once: Vec<u8> = percent_decode(word).collect();
    let twice: Vec<u8> = percent_decode(&once).collect();
    let text = String::from_utf8_lossy(&twice);
    let fields: Vec<_> = text.split('.').collect();
    fields.windows(3).any(|fields| {
        let [before, scope, signature] = fields else {
            return false;
        };
        let digits = before.bytes().rev().take_while(u8::is_ascii_digit);
        let is_scope = *scope == FILE || decimal(scope).is_some();
        let is_signature = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
        let length = signature.bytes().take_while(is_signature).count();
        // Times since 1973.
        digits.count() >= 9 && is_scope && length >= SIGNATURE_PART_MIN
    })
}

/// Parses a number in its canonical form only, so that a link has one spelling.
fn decimal(text: &str) -> Option<u64> {
    let is_plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_plain)
}

/// Returns the first `depth` names of a path, if they name a folder.
fn folder_of(path: &SitePath, depth: usize) -> Option<&[u8]> {
    let bytes = path.bytes();
    if depth == 0 {
        return Some(b"");
    }
    let slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut ends = slashes.map(|(at, _)| at);
    match ends.nth(depth - 1) {
        Some(end) => Some(&bytes[..end]),
        None => (path.form() == PathForm::Folder && path.names().count() == depth).then_some(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Arc<LinkKey> {
        Arc::new(LinkKey::parse(text.repeat(8).as_bytes()).unwrap())
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn path(text: &str) -> SitePath {
        SitePath::parse(text.as_bytes()).unwrap()
    }

    fn signed(text: &str, key: &LinkKey) -> String {
        SignedParameter::sign(&path(text), at(1000), key).to_string()
    }

    fn shown(parameter: &str, of: &str, keys: &[Arc<LinkKey>], now: u64) -> ShownLink {
        let parameter = SignedParameter::parse(parameter.as_bytes());
        parameter.map_or(ShownLink::None, |one| one.verify(&path(of), keys, at(now)))
    }

    fn verified(parameter: &str, of: &str, keys: &[Arc<LinkKey>], now: u64) -> bool {
        matches!(shown(parameter, of, keys, now), ShownLink::Valid(_))
    }

    #[test]
    fn a_link_is_for_its_file_or_folder_until_its_time() {
        let keys = [key("some")];
        for (signed_for, asked, expected) in [
            ("/a/b", "/a/b", true),
            ("/a/b", "/a//./b", true),
            ("/a/b", "/a/c", false),
            ("/a/b", "/a/b/c", false),
            ("/a/", "/a/", true),
            ("/a/", "/a/b", true),
            ("/a/", "/a/b/c/", true),
            ("/a/", "/a", false),
            ("/a/", "/ab/c", false),
            ("/a/", "/b/c", false),
            ("/a/b/", "/a/c/d", false),
            ("/", "/a/b", true),
            ("/", "/", true),
        ] {
            let parameter = signed(signed_for, &keys[0]);
            assert_eq!(
                verified(&parameter, asked, &keys, 999),
                expected,
                "{signed_for} {asked}"
            );
            let later = match expected {
                true => ShownLink::Expired,
                false => ShownLink::None,
            };
            assert_eq!(shown(&parameter, asked, &keys, 1000), later, "{asked}");
            for now in [999, 1000] {
                let without_keys = shown(&parameter, asked, &[], now);
                assert_eq!(without_keys, ShownLink::None, "{signed_for} {asked}");
            }
        }
    }

    #[test]
    fn a_link_ends_when_the_second_that_it_names_begins() {
        let keys = [key("some")];
        let parameter = signed("/a", &keys[0]);
        let parameter = SignedParameter::parse(parameter.as_bytes()).unwrap();
        for (milliseconds, is_valid) in [
            (0, true),
            (999_000, true),
            (999_999, true),
            (1_000_000, false),
            (1_000_001, false),
            (1_001_000, false),
        ] {
            let now = UNIX_EPOCH + Duration::from_millis(milliseconds);
            let shown = parameter.verify(&path("/a"), &keys, now);
            let expected = match is_valid {
                true => ShownLink::Valid(LinkScope::File(b"a".to_vec())),
                false => ShownLink::Expired,
            };
            assert_eq!(shown, expected, "{milliseconds}");
        }
        let before_1970 = UNIX_EPOCH - Duration::from_secs(1);
        let shown = parameter.verify(&path("/a"), &keys, before_1970);
        assert!(matches!(shown, ShownLink::Valid(_)));
    }

    #[test]
    fn any_key_verifies_and_one_that_is_gone_does_not() {
        let old = signed("/a", &key("old!"));
        assert!(verified(&old, "/a", &[key("new!"), key("old!")], 1));
        assert!(!verified(&old, "/a", &[key("new!")], 1));
    }

    #[test]
    fn no_other_spelling_of_a_link_is_one() {
        let keys = [key("some")];
        let parameter = signed("/a/b", &keys[0]);
        assert!(verified(&parameter, "/a/b", &keys, 1));
        let (expires, rest) = parameter.split_once('.').unwrap();
        for changed in [
            format!("{}.{rest}", "1001"),
            format!("0{expires}.{rest}"),
            format!("+{expires}.{rest}"),
            format!("{parameter}."),
            format!("{parameter}="),
            parameter.replace("file", "2"),
            parameter.replace("file", "0"),
            parameter.to_lowercase(),
            parameter[..parameter.len() - 1].to_owned(),
            String::new(),
        ] {
            assert!(!verified(&changed, "/a/b", &keys, 1), "{changed}");
        }
        for bit in 0..8 * SIGNATURE_BYTES {
            let mut other = SignedParameter::parse(parameter.as_bytes()).unwrap();
            other.signature[bit / 8] ^= 1 << (bit % 8);
            let forged = other.verify(&path("/a/b"), &keys, at(1));
            assert_eq!(forged, ShownLink::None, "bit {bit}");
        }
    }

    #[test]
    fn a_link_to_a_folder_is_none_to_a_file_of_that_name() {
        let keys = [key("some")];
        let folder = signed("/a/b/", &keys[0]);
        let as_file = folder.replacen(".2.", ".file.", 1);
        assert!(!verified(&as_file, "/a/b", &keys, 1));
    }

    #[test]
    fn a_scope_covers_what_is_beneath_it() {
        let folder = LinkScope::Folder(b"a/b".to_vec());
        assert!(folder.covers(b"a/b") && folder.covers(b"a/b/c"));
        assert!(!folder.covers(b"a/bc") && !folder.covers(b"a") && !folder.covers(b""));
        assert!(LinkScope::Folder(Vec::new()).covers(b"a"));
        assert!(!LinkScope::File(b"a".to_vec()).covers(b"a/b"));
    }

    #[test]
    fn no_signature_is_left_in_a_target() {
        for (target, expected) in [
            ("/a?signed=1.file.x", "/a?signed=-"),
            ("/a?b=c&signed=1.2.x&d", "/a?b=c&signed=-&d"),
            ("/a?signed=1&signed=2", "/a?signed=-&signed=-"),
            ("http://a/?signed=x", "http://a/?signed=-"),
            ("/signed=x", "/signed=x"),
            ("/a?unsigned=x", "/a?unsigned=x"),
            ("/a", "/a"),
        ] {
            let target = redacted(target.as_bytes());
            assert_eq!(String::from_utf8_lossy(&target), expected);
        }
    }

    #[test]
    fn no_signature_is_left_wherever_it_stands() {
        let key = key("some");
        for path in ["/a/b", "/a/b/"] {
            let expires = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
            let value = SignedParameter::sign(&self::path(path), expires, &key).to_string();
            let encoded = value
                .replace('.', "%2E")
                .replace('-', "%2d")
                .replace('_', "%5F");
            let twice = encoded.replace('%', "%25");
            for (target, expected) in [
                (format!("/a?amp;signed={value}"), "/a?amp;signed=-"),
                (
                    format!("/a?x=1&amp;signed={value}&b"),
                    "/a?x=1&amp;signed=-&b",
                ),
                (format!("/a%3Fsigned%3D{value}"), "/-"),
                (format!("/a?signed%3D{value}/c"), "/a?-/c"),
                (format!("/{value}"), "/-"),
                (format!("/a?SIGNED={value}"), "/a?SIGNED=-"),
                (format!("/a?s={encoded}#x"), "/a?s=-#x"),
                (format!("/a?s={twice}"), "/a?s=-"),
                (format!("<http://a/?signed={value}>"), "<http://a/?signed=-"),
                (format!("/a?s={}", &value[..value.len() - 5]), "/a?s=-"),
            ] {
                let shown = redacted(target.as_bytes());
                let shown = String::from_utf8_lossy(&shown);
                assert!(shown.starts_with(expected), "{target}: {shown}");
                assert!(!shown.contains(&value[value.len() - 43..]), "{shown}");
            }
        }
        for plain in [
            "/releases/1.2.3/underpass-1.2.3-x86_64-unknown-linux-gnu.tar.gz",
            "/a/1234567890.1.short",
            "/0123456789abcdef0123456789abcdef.2.0123456789",
            "/%ff%fe/%",
        ] {
            assert_eq!(redacted(plain.as_bytes()), plain.as_bytes(), "{plain}");
        }
    }

    #[test]
    fn a_key_has_some_length() {
        assert!(LinkKey::parse(b"short\n").is_err());
        assert!(LinkKey::parse(&[b'x'; LINK_KEY_BYTES_MIN]).is_ok());
        assert_eq!(format!("{:?}", key("some")), "LinkKey");
    }
}
