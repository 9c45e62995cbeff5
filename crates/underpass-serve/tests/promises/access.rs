//! Promises about arbitrary credentials, and about arbitrary files that they are compared with.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use underpass_http::path::SitePath;

use crate::access::credentials::Credentials;
use crate::access::links::{LinkKey, PARAMETER, ShownLink, SignedParameter};
use crate::access::passwords::PasswordFile;
use crate::access::tokens::{self, TokenFile};
use crate::body::query::Query;

/// A parsed `Authorization` is what was sent: a login is the decoded base64 text, split at its
/// first colon, and a token is a part of the field.
pub fn authorization(data: &[u8]) {
    let scheme = |name: &[u8]| {
        let there = data.get(..name.len());
        there.is_some_and(|there| there.eq_ignore_ascii_case(name))
    };
    match Credentials::parse(data) {
        Some(Credentials::Basic(login)) => {
            assert!(scheme(b"basic "));
            let text = [login.user.as_bytes(), b":", &login.password].concat();
            let again = BASE64_STANDARD.encode(text);
            let rest = data[b"basic ".len()..].trim_ascii();
            let rest = String::from_utf8_lossy(rest);
            assert_eq!(rest.trim_end_matches('='), again.trim_end_matches('='));
            assert!(!login.user.contains(':'));
        }
        Some(Credentials::Bearer(token)) => {
            assert!(scheme(b"bearer ") && !token.is_empty());
            assert!(data.ends_with(token) || data.trim_ascii_end().ends_with(token));
        }
        None => {}
    }
    let both = BASE64_STANDARD.encode([b"user:", data].concat());
    let value = format!("Basic {both}");
    match Credentials::parse(value.as_bytes()) {
        Some(Credentials::Basic(login)) => {
            assert_eq!((login.user.as_str(), &login.password[..]), ("user", data));
        }
        other => panic!("{other:?}"),
    }
}

/// A password file is accepted, or rejected with its line, and no message contains a hash.
pub fn passwords(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match PasswordFile::parse(text) {
        Ok(file) => {
            let said = text.lines().map(str::trim);
            let said = said.filter(|line| !line.is_empty() && !line.starts_with('#'));
            for line in said {
                let (user, _) = line.split_once(':').expect("it was read");
                assert!(file.has(user));
            }
        }
        Err(why) => refused(text, &why),
    }
}

fn refused(text: &str, why: &str) {
    assert!(why.starts_with("line "), "{why}");
    for (_, secret) in text.lines().filter_map(|line| line.split_once(':')) {
        // Words of a message may also occur in a file; a hash is long and has digits that no
        // message has.
        let digits = b"0123456789".iter();
        let digits = digits.filter(|digit| secret.as_bytes().contains(digit));
        let is_like_hash = secret.len() >= 50 && digits.count() >= 5;
        assert!(!is_like_hash || !why.contains(secret), "{why}");
    }
}

/// A token file is accepted, or rejected with its line; only tokens written in it are valid.
pub fn tokens(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    match TokenFile::parse(text) {
        Ok(file) => {
            let found = file.verify(data, now);
            let hash = tokens::line("x", data, None);
            let hash = hash.rsplit(':').next().unwrap_or_default().to_owned();
            assert!(found.is_none() || text.to_lowercase().contains(&hash));
        }
        Err(why) => refused(text, &why),
    }
    let line = tokens::line("name", data, Some(now));
    let file = TokenFile::parse(&line).expect("a line that was made");
    let before = now - Duration::from_secs(1);
    assert_eq!(file.verify(data, before).as_deref(), Some("name"));
    assert_eq!(file.verify(data, now), None);
}

/// Only signed links verify, and each only for its path. The first half of the data is a query, the
/// second a path.
pub fn signed(data: &[u8]) {
    let (query, path) = data.split_at(data.len() / 2);
    let key = LinkKey::parse(b"a key that nobody guesses, of 40 bytes..").expect("long enough");
    let keys = [std::sync::Arc::new(key)];
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let Ok(path) = SitePath::parse(&[b"/", path].concat()) else {
        return;
    };
    if let Some(parameter) = Query::parse(query).signed {
        assert_eq!(
            parameter.verify(&path, &keys, now),
            ShownLink::None,
            "guessed"
        );
        let again = format!("{PARAMETER}={parameter}");
        let read = Query::parse(again.as_bytes()).signed;
        assert_eq!(read.as_ref(), Some(&parameter), "one spelling");
    }
    let signed = SignedParameter::sign(&path, now + Duration::from_secs(1), &keys[0]);
    let written = signed.to_string();
    let read = SignedParameter::parse(written.as_bytes());
    assert_eq!(read.as_ref(), Some(&signed));
    let valid = signed.verify(&path, &keys, now);
    assert!(valid.covers(path.bytes()), "{valid:?}");
    let later = signed.verify(&path, &keys, now + Duration::from_secs(1));
    assert_eq!(later, ShownLink::Expired);
    let (start, signature) = written.rsplit_once('.').expect("three parts");
    let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(signature).expect("base64");
    bytes[data.len() % 32] ^= 1 << (data.len() % 8);
    let changed = format!("{start}.{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
    let changed = SignedParameter::parse(changed.as_bytes()).expect("well-formed");
    assert_eq!(changed.verify(&path, &keys, now), ShownLink::None);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::text;

    const AUTHORIZATIONS: &[&str] = &[
        "Basic ",
        "bearer ",
        "BASIC ",
        " ",
        "dXNlcjpwdw==",
        "dXNlcjpw",
        "=",
        "==",
        ":",
        "dXNl",
        "\t",
    ];

    const PASSWORDS: &[&str] = &[
        "a:",
        "b:",
        "user:",
        "\n",
        "\r\n",
        "#",
        " ",
        "{SHA}",
        "$apr1$",
        "$2y$",
        "$argon2id$",
        "v=19$",
        "$2y$04$KBCwKxOzLha2MR.vKhKyL.AmX/VZWBrFjxRQ9i0eTw4cIbfmEbSDa",
        "m=64,t=1,p=1$",
        "MDEyMzQ1Njc4OWFiY2RlZg",
        "$",
    ];

    const TOKENS: &[&str] = &[
        "a",
        ":",
        "sha256",
        ":sha256:",
        "\n",
        "#",
        "2027-01-31T00:00:00Z",
        "2027-13-31",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ];

    const SIGNED: &[&str] = &[
        "signed=",
        "1800000001.",
        "0",
        "file.",
        "2.",
        ".",
        "&",
        "/",
        "a",
        "..",
        "%2f",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ];

    proptest! {
        #[test]
        fn authorizations(data in text(AUTHORIZATIONS)) {
            super::authorization(&data);
        }

        #[test]
        fn password_files(data in text(PASSWORDS)) {
            super::passwords(&data);
        }

        #[test]
        fn token_files(data in text(TOKENS)) {
            super::tokens(&data);
        }

        #[test]
        fn signatures(data in text(SIGNED)) {
            super::signed(&data);
        }
    }
}
