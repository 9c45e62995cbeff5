//! Structured fields, and what is made of one.

use crate::answer::repr_digest::{WantedDigest, wanted};
use crate::http::structured::{MemberValue, read_dictionary};

/// A dictionary is what taking it apart at its commas comes to, as far as that can read it; two of
/// them that can be read are one; and a member nobody knows changes nothing of what is wanted.
pub fn dictionary(data: &[u8]) {
    let read = members(data);
    if let Some(plain) = plain_members(data) {
        assert_eq!(read, plain, "{}", data.escape_ascii());
    }
    let wish = wanted(Some(data));
    match &read {
        None => assert_eq!(wish, WantedDigest::Nothing),
        Some(members) => {
            let mut preferences = members.iter().rev();
            let last = preferences.find(|(key, _)| key == b"sha-256");
            let wants = matches!(last, Some((_, MemberValue::Integer(1..=10))));
            assert_eq!(
                wish == WantedDigest::Sha256,
                wants,
                "{}",
                data.escape_ascii()
            );
        }
    }
    if let Some(once) = read.filter(|members| !members.is_empty()) {
        let twice = [data, b",", data].concat();
        assert_eq!(members(&twice), Some([&once[..], &once[..]].concat()));
        let more = [data, b" , other=10"].concat();
        assert_eq!(wanted(Some(&more)), wish);
    }
}

type Members = Vec<(Vec<u8>, MemberValue)>;

fn members(field: &[u8]) -> Option<Members> {
    let mut members = Vec::new();
    let read = read_dictionary(field, |key, value| members.push((key.to_vec(), value)));
    read.is_ok().then_some(members)
}

/// The same by other means, where there are only keys, integers, and words; nothing where there is
/// more in it.
fn plain_members(field: &[u8]) -> Option<Option<Members>> {
    let is_plain = |&byte: &u8| byte.is_ascii_lowercase() || b"0123456789-=, ".contains(&byte);
    if !field.iter().all(is_plain) {
        return None;
    }
    let text = String::from_utf8(field.to_vec()).ok()?;
    if text.trim().is_empty() {
        return Some(Some(Vec::new()));
    }
    Some(text.split(',').map(plain_member).collect())
}

fn plain_member(text: &str) -> Option<(Vec<u8>, MemberValue)> {
    let text = text.trim();
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    let begins_well = key.starts_with(|first: char| first.is_ascii_lowercase());
    if !begins_well || text.contains(' ') {
        return None;
    }
    let value = match value {
        None => MemberValue::Other,
        Some(value) if value.starts_with(|first: char| first.is_ascii_lowercase()) => {
            if value.contains('=') {
                return None;
            }
            MemberValue::Other
        }
        Some(value) => {
            let digits = value.strip_prefix('-').unwrap_or(value);
            if digits.len() > 15 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            MemberValue::Integer(value.parse().ok()?)
        }
    };
    Some((key.as_bytes().to_vec(), value))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select as one_of;

    const WORDS: &[&str] = &[
        "sha-256",
        "sha-256=",
        "sha-512",
        "a",
        "*",
        "=",
        "=",
        "0",
        "1",
        "10",
        "11",
        "-",
        ".",
        ",",
        ", ",
        " ",
        "\t",
        ";",
        ";q=1",
        "\"",
        "\"x,y\"",
        "\\",
        ":",
        ":aGk=:",
        "?1",
        "@",
        "%\"",
        "(",
        ")",
        "999999999999999",
        "\u{e4}",
    ];

    proptest! {
        #[test]
        fn dictionaries(words in vec(one_of(WORDS), 0..16)) {
            super::dictionary(words.concat().as_bytes());
        }

        #[test]
        fn plain_ones(field in "( ?[a-c=]?sha-256=-?[0-9]{0,2} ?,?){0,4}") {
            super::dictionary(field.as_bytes());
        }
    }
}
