//! `Want-Repr-Digest` and `Repr-Digest` (RFC 9530): the hash of the content, sent with it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sfv::{Dictionary, ListEntry, Parser};

use crate::fields::digest::FileDigest;
use crate::fields::writer::push_field;

/// The hash that a client wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WantedDigest {
    /// None, or none that is supported.
    Nothing,
    /// SHA-256
    Sha256,
}

/// Parses the field. A malformed field and an invalid preference (0 refuses, 1 to 10 accept) are
/// ignored.
pub fn wanted(field: Option<&[u8]>) -> WantedDigest {
    let members = field.and_then(|field| Parser::new(field).parse::<Dictionary>().ok());
    let preference = members.and_then(|members| match members.get("sha-256")? {
        ListEntry::Item(item) => item.bare_item.as_integer().map(i64::from),
        ListEntry::InnerList(_) => None,
    });
    match preference {
        Some(1..=10) => WantedDigest::Sha256,
        _ => WantedDigest::Nothing,
    }
}

/// Appends the field to a head.
pub fn push_repr_digest(head: &mut Vec<u8>, digest: &FileDigest) {
    let value = format!("sha-256=:{}:", BASE64_STANDARD.encode(digest.0));
    push_field(head, "Repr-Digest", &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_a_hash_that_is_offered() {
        for (field, expected) in [
            ("sha-256=1", WantedDigest::Sha256),
            ("sha-256=10", WantedDigest::Sha256),
            ("sha-512=9, sha-256=3;x=y, unixsum", WantedDigest::Sha256),
            ("sha-256=0, sha-256=5", WantedDigest::Sha256),
            ("sha-256=5, sha-256=0", WantedDigest::Nothing),
            ("sha-256=0", WantedDigest::Nothing),
            ("sha-256=11", WantedDigest::Nothing),
            ("sha-256=-1", WantedDigest::Nothing),
            ("sha-256=1.0", WantedDigest::Nothing),
            ("sha-256", WantedDigest::Nothing),
            ("SHA-256=1", WantedDigest::Nothing),
            ("sha-512=10, md5=3", WantedDigest::Nothing),
            ("sha-256=(1)", WantedDigest::Nothing),
            ("\tsha-256=1", WantedDigest::Nothing),
            (
                "sha-256=1 \t,\t b=2;q, c=?1, d=:aGk=:",
                WantedDigest::Sha256,
            ),
            ("sha-256=1, =", WantedDigest::Nothing),
            ("sha-256=1,", WantedDigest::Nothing),
            ("sha-256=1, a=:-:", WantedDigest::Nothing),
            ("sha-256=1, a=\"x", WantedDigest::Nothing),
            ("sha-256=1, A=2", WantedDigest::Nothing),
            ("", WantedDigest::Nothing),
        ] {
            assert_eq!(wanted(Some(field.as_bytes())), expected, "{field:?}");
        }
        assert_eq!(wanted(None), WantedDigest::Nothing);
    }

    #[test]
    fn the_field_is_a_byte_sequence() {
        let mut head = Vec::new();
        push_repr_digest(&mut head, &FileDigest([0; 32]));
        let zeros = format!("\r\nRepr-Digest: sha-256=:{}=:", "A".repeat(43));
        assert_eq!(head, zeros.as_bytes());
    }
}
