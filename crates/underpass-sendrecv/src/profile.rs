//! What both sides of a transfer say to each other beside plain HTTP: names of fields, and their
//! values as types. `docs/sendrecv-protocol.md` describes the whole profile.

use std::fmt;

use rustix::fs::Stat;
use underpass_tar::HeaderChain;

/// The version of the profile, in [`VERSION`] of every request and response.
pub(crate) const SPOKEN: &str = "1";

/// The field with the version.
pub(crate) const VERSION: &str = "Underpass-Version";

/// The field with the [`SourceStamp`] of a file.
pub(crate) const SOURCE: &str = "Underpass-Source";

/// The field with the number of bytes of a file that need not be sent.
pub(crate) const OFFSET: &str = "Upload-Offset";

/// The field with the [`WindowHash`] before the first byte that is sent.
pub(crate) const WINDOW: &str = "Underpass-Window";

/// The field with the [`TreePosition`] of a tree.
pub(crate) const POSITION: &str = "Underpass-Position";

/// The field with the number of items that follow this one.
pub(crate) const REMAINING: &str = "Underpass-Remaining";

/// The field that replaces an unfinished item of another source.
pub(crate) const FRESH: &str = "Underpass-Fresh";

/// The field with a nonce, on connections without encryption.
pub(crate) const NONCE: &str = "Underpass-Nonce";

/// The field with a proof, on connections without encryption.
pub(crate) const PROOF: &str = "Underpass-Proof";

/// The field with the number of a code.
pub(crate) const CODE: &str = "Underpass-Code";

/// The field with a message of the key exchange, in hexadecimal.
pub(crate) const PAKE: &str = "Underpass-Pake";

/// The field with the ticket, for those who know the code.
pub(crate) const TICKET: &str = "Underpass-Ticket";

/// The name after [`PROVEN`] of the exchange of a code.
pub(crate) const CODE_NAME: &str = "code";

/// The first name of paths without the token: of proofs on connections without encryption, which
/// must not show it, and of the exchange of a code.
pub(crate) const PROVEN: &str = "-";

/// The media type of a tree.
pub(crate) const TAR: &str = "application/x-tar";

/// The bytes before an offset that are read again when a file is continued.
pub(crate) const WINDOW_BYTES: u64 = 4 << 20;

/// The size and time of a file, by which a sender recognizes it again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SourceStamp {
    pub(crate) size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl SourceStamp {
    pub(crate) fn of(stat: &Stat) -> SourceStamp {
        SourceStamp {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            seconds: stat.st_mtime,
            nanoseconds: i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
        }
    }

    pub(crate) fn parse(value: &[u8]) -> Option<SourceStamp> {
        let text = str::from_utf8(value).ok()?;
        let (size, time) = text.split_once('@')?;
        let (seconds, nanoseconds) = time.split_once('.')?;
        Some(SourceStamp {
            size: size.parse().ok()?,
            seconds: seconds.parse().ok()?,
            nanoseconds: nanoseconds.parse().ok()?,
        })
    }
}

impl fmt::Display for SourceStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}.{}", self.size, self.seconds, self.nanoseconds)
    }
}

/// The BLAKE3 hash of the last bytes before an offset: [`WINDOW_BYTES`], or all if there are fewer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WindowHash(pub(crate) blake3::Hash);

impl WindowHash {
    pub(crate) fn parse(value: &[u8]) -> Option<WindowHash> {
        blake3::Hash::from_hex(value).ok().map(WindowHash)
    }
}

impl fmt::Display for WindowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

/// How much of a tree is received: complete members, and a part of the next one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TreePosition {
    /// Number of complete members.
    pub(crate) members: u64,
    /// The hash over their headers.
    pub(crate) chain: HeaderChain,
    /// The hash that includes the headers of the next member, and the bytes of its content.
    pub(crate) cut: Option<(HeaderChain, u64)>,
}

impl TreePosition {
    pub(crate) fn parse(value: &[u8]) -> Option<TreePosition> {
        let text = str::from_utf8(value).ok()?;
        let mut parts = text.split_ascii_whitespace();
        let members = parts.next()?.parse().ok()?;
        let chain = HeaderChain::parse(parts.next()?)?;
        let cut = match (parts.next(), parts.next(), parts.next()) {
            (None, None, None) => None,
            (Some(chain), Some(bytes), None) => {
                Some((HeaderChain::parse(chain)?, bytes.parse().ok()?))
            }
            _ => return None,
        };
        Some(TreePosition {
            members,
            chain,
            cut,
        })
    }
}

impl fmt::Display for TreePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.members, self.chain)?;
        match &self.cut {
            Some((chain, bytes)) => write!(f, " {chain} {bytes}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let stamp = SourceStamp {
            size: u64::MAX,
            seconds: -1,
            nanoseconds: 5,
        };
        assert_eq!(
            SourceStamp::parse(stamp.to_string().as_bytes()),
            Some(stamp)
        );
        let whole = TreePosition {
            members: 7,
            chain: HeaderChain::new().then(b"x"),
            cut: None,
        };
        let cut = Some((HeaderChain::new(), 9));
        for position in [
            TreePosition::default(),
            whole,
            TreePosition { cut, ..whole },
        ] {
            let text = position.to_string();
            assert_eq!(TreePosition::parse(text.as_bytes()), Some(position));
            assert_eq!(TreePosition::parse(format!("{text} 1").as_bytes()), None);
        }
        for wrong in ["", "1", "1@", "1@2", "x@1.0", "1@1.0.0"] {
            assert_eq!(SourceStamp::parse(wrong.as_bytes()), None, "{wrong}");
        }
        let hash = WindowHash(blake3::hash(b"w"));
        assert_eq!(WindowHash::parse(hash.to_string().as_bytes()), Some(hash));
        assert_eq!(WindowHash::parse(b"abc"), None);
    }
}
