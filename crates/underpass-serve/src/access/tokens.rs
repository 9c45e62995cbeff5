//! Token files: a name, the hash of a token and perhaps a date per line, as
//! `underpass serve hash --token` writes them.
//!
//! ```text
//!  ci:sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//!  ci:sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752:2027-01-31T00:00:00Z
//! ```
//!
//! A token is made at random, so a fast hash protects it. A name may have several lines, so that a
//! new token can be handed out before the old one expires.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use underpass_http::fields::digest::from_hex;

use crate::access::passwords::check_name;
use crate::limits::ACCESS_ENTRIES_MAX;

/// The tokens of a file, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct TokenFile {
    tokens: HashMap<TokenHash, StoredToken>,
}

type TokenHash = [u8; 32];

#[derive(Debug)]
struct StoredToken {
    name: Arc<str>,
    expires: Option<SystemTime>,
}

impl TokenFile {
    /// Parses the content of a file. Empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The number of the first wrong line, and the mistake.
    pub(crate) fn parse(text: &str) -> Result<TokenFile, String> {
        let mut tokens = HashMap::new();
        for (number, line) in super::lines(text) {
            let wrong = |what: &str| format!("line {number}: {what}");
            let (hash, token) = parse_line(line).map_err(|what| wrong(&what))?;
            if tokens.insert(hash, token).is_some() {
                return Err(wrong("this token is listed twice"));
            }
            if tokens.len() > ACCESS_ENTRIES_MAX {
                return Err(wrong(&format!("more than {ACCESS_ENTRIES_MAX} tokens")));
            }
        }
        Ok(TokenFile { tokens })
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether a token of this name exists that has not expired at the time `now`.
    pub(crate) fn has(&self, name: &str, now: SystemTime) -> bool {
        let mut all = self.tokens.values();
        all.any(|token| *token.name == *name && token.is_valid(now))
    }

    /// Returns the name of a token that has not expired at the time `now`. The time taken depends
    /// on the hash of the client's token, which a client cannot choose.
    pub(crate) fn verify(&self, token: &[u8], now: SystemTime) -> Option<Arc<str>> {
        let found = self.tokens.get(&hash(token))?;
        found.is_valid(now).then(|| Arc::clone(&found.name))
    }
}

impl StoredToken {
    fn is_valid(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// Formats the line of a token.
pub(crate) fn line(name: &str, token: &[u8], expires: Option<SystemTime>) -> String {
    let hash: String = hash(token)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let expires = expires.map(|time| format!(":{}", humantime::format_rfc3339_seconds(time)));
    format!("{name}:{SCHEME}:{hash}{}", expires.unwrap_or_default())
}

const SCHEME: &str = "sha256";

fn hash(token: &[u8]) -> TokenHash {
    Sha256::digest(token).into()
}

fn parse_line(line: &str) -> Result<(TokenHash, StoredToken), String> {
    const EXPECTED: &str = "expected NAME:sha256:HASH or NAME:sha256:HASH:DATE, as `underpass \
                            serve hash --token NAME` prints it";
    let expected = || EXPECTED.to_owned();
    if !line.contains(':') {
        return Err(format!(
            "this may be a token itself, which only clients have; {EXPECTED}"
        ));
    }
    let mut parts = line.splitn(4, ':');
    let (Some(name), Some(SCHEME), Some(hash)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(expected());
    };
    check_name(name)?;
    let hash = from_hex(hash).ok_or_else(expected)?;
    let expires = parts.next().map(|date| {
        let wrong = |_| {
            let date = super::shown(date);
            format!("the text {date} is not a date; expected one like 2027-01-31T00:00:00Z")
        };
        humantime::parse_rfc3339(date).map_err(wrong)
    });
    let token = StoredToken {
        name: name.into(),
        expires: expires.transpose()?,
    };
    Ok((hash, token))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_token_is_its_name_until_it_expires() {
        let end = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let text = [
            line("ci", b"first", None),
            line("ci", b"second", Some(end)),
            "# nothing".to_owned(),
            line("mirror", b"third", None),
        ]
        .join("\n");
        let file = TokenFile::parse(&text).unwrap();
        let before = end - Duration::from_secs(1);
        for (token, now, expected) in [
            ("first", before, Some("ci")),
            ("first", end, Some("ci")),
            ("second", before, Some("ci")),
            ("second", end, None),
            ("third", end, Some("mirror")),
            ("fourth", before, None),
            ("", before, None),
        ] {
            let found = file.verify(token.as_bytes(), now);
            assert_eq!(found.as_deref(), expected, "{token}");
        }
        assert!(file.has("mirror", end) && !file.has("Mirror", end));
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        let good = line("ci", b"first", None);
        for text in [
            "ci",
            "ci:secret",
            "ci:sha256:",
            "ci:sha256:abcd",
            "ci:md5:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            &format!("{good}:tomorrow"),
            &good.replacen("ci", "", 1),
            &format!("{good}\n{good}"),
        ] {
            let told = TokenFile::parse(text).expect_err(text);
            assert!(told.starts_with("line "), "{told}");
        }
    }
}
