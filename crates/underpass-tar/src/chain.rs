//! A hash over the headers of a stream, by which two sides agree on how much of it is the same.

use std::fmt;

/// The chained BLAKE3 hash of the headers of the members so far: each member's header bytes are
/// hashed after the former value. Header bytes are everything before the content: extensions, the
/// header, and the map of a sparse file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HeaderChain([u8; 32]);

impl HeaderChain {
    /// Returns the chain before the first member.
    pub fn new() -> HeaderChain {
        HeaderChain::default()
    }

    /// Returns the chain that continues this one with a member's header bytes.
    #[must_use]
    pub fn then(&self, headers: &[u8]) -> HeaderChain {
        let mut hasher = self.hasher();
        hasher.update(headers);
        HeaderChain::of(&hasher)
    }

    /// The hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the form that is displayed: 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<HeaderChain> {
        let is_lower = text.bytes().all(|byte| !byte.is_ascii_uppercase());
        let hash = blake3::Hash::from_hex(text).ok()?;
        is_lower.then(|| HeaderChain(*hash.as_bytes()))
    }

    pub(crate) fn hasher(&self) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher
    }

    pub(crate) fn of(hasher: &blake3::Hasher) -> HeaderChain {
        HeaderChain(*hasher.finalize().as_bytes())
    }
}

impl fmt::Display for HeaderChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_depends_on_every_member_and_on_their_boundaries() {
        let start = HeaderChain::new();
        let one = start.then(b"ab").then(b"c");
        assert_ne!(one, start.then(b"a").then(b"bc"));
        assert_ne!(one, start.then(b"abc"));
        assert_eq!(HeaderChain::parse(&one.to_string()), Some(one));
        assert_eq!(HeaderChain::parse(&one.to_string().to_uppercase()), None);
        assert_eq!(HeaderChain::parse("12"), None);
    }
}
