//! Fields of requests that bring files. They are read apart from those of other requests, which
//! do not pay for them.

use std::os::fd::AsFd;

use rustix::io::Errno;
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use underpass_http::request::field_lines::FieldLines;
use underpass_http::status::HttpError;

use crate::limits::READ_BYTES;

/// The fields of a head.
#[derive(Clone, Debug)]
pub(crate) struct HeadFields<'b> {
    lines: FieldLines<'b>,
}

impl<'b> HeadFields<'b> {
    /// Reads the fields of a complete head that was found valid.
    pub(crate) fn of(head: &'b [u8]) -> HeadFields<'b> {
        HeadFields {
            lines: FieldLines::of(head),
        }
    }

    /// The value of a field that a head has once.
    ///
    /// # Errors
    /// 400 if it is there twice.
    pub(crate) fn once(&self, name: &str) -> Result<Option<&'b [u8]>, HttpError> {
        self.lines.once(name)
    }

    /// A field that is a number of bytes.
    ///
    /// # Errors
    /// 400 for anything but digits, and for what no file can have.
    pub(crate) fn bytes(&self, name: &str) -> Result<Option<u64>, HttpError> {
        self.once(name)?.map(number).transpose()
    }

    /// The hash that a whole body (`Content-Digest`) or a whole file (`Repr-Digest`) should have
    /// (RFC 9530), the strongest one that is known here.
    ///
    /// # Errors
    /// 400 for a malformed field, and for a known hash of the wrong length. A hash that is not
    /// known says nothing.
    pub(crate) fn digest(&self, name: &str) -> Result<Option<ExpectedDigest>, HttpError> {
        self.once(name)?.map_or(Ok(None), ExpectedDigest::parse)
    }
}

impl ExpectedDigest {
    /// Reads the value of a digest field, as [`HeadFields::digest`] does.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<ExpectedDigest>, HttpError> {
        const MALFORMED: HttpError = HttpError::bad("the digest of the upload is malformed");
        let members: Dictionary = Parser::new(value).parse().map_err(|_| MALFORMED)?;
        for (key, algorithm) in [
            ("sha-512", Algorithm::Sha512),
            ("sha-256", Algorithm::Sha256),
        ] {
            let Some(ListEntry::Item(item)) = members.get(key) else {
                continue;
            };
            let BareItem::ByteSequence(hash) = &item.bare_item else {
                return Err(MALFORMED);
            };
            return match hash.len() == algorithm.length() {
                true => Ok(Some(ExpectedDigest {
                    algorithm,
                    hash: hash.clone(),
                })),
                false => Err(MALFORMED),
            };
        }
        Ok(None)
    }
}

/// Reads a number of bytes that a file can have.
pub(crate) fn number(value: &[u8]) -> Result<u64, HttpError> {
    const MALFORMED: HttpError = HttpError::bad("a number of bytes of the upload is malformed");
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).map_err(|_| MALFORMED)?;
    let number = text.parse().ok().filter(|_| is_number);
    number
        .filter(|number| *number <= i64::MAX as u64)
        .ok_or(MALFORMED)
}

/// A hash that an upload should have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ExpectedDigest {
    pub(crate) algorithm: Algorithm,
    pub(crate) hash: Vec<u8>,
}

/// A hash function of uploads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    pub(crate) fn length(self) -> usize {
        match self {
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }
}

impl ExpectedDigest {
    /// Whether it is that of a file from an offset on. Reads the file, which may block.
    ///
    /// # Errors
    /// Those of pread(2).
    pub(crate) fn is_of(&self, file: impl AsFd, from: u64) -> Result<bool, Errno> {
        Ok(match self.algorithm {
            Algorithm::Sha1 => hash::<Sha1>(file, from)? == self.hash,
            Algorithm::Sha256 => hash::<Sha256>(file, from)? == self.hash,
            Algorithm::Sha512 => hash::<Sha512>(file, from)? == self.hash,
        })
    }
}

fn hash<D: Digest>(file: impl AsFd, from: u64) -> Result<Vec<u8>, Errno> {
    let (mut hasher, mut offset) = (D::new(), from);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match rustix::io::pread(&file, &mut buffer[..], offset) {
            Ok(0) => return Ok(hasher.finalize().to_vec()),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                offset += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn fields_are_read_strictly() {
        let head = b"PUT /a HTTP/1.1\r\nHost: h\r\nupload-length:  12 \r\nUpload-Complete: ?0\r\n\
            X: 1\r\nx: 2\r\nBad: -1\r\n\r\n";
        let fields = HeadFields::of(head);
        assert_eq!(fields.bytes("Upload-Length"), Ok(Some(12)));
        assert_eq!(fields.once("Missing"), Ok(None));
        assert!(fields.once("X").is_err() && fields.bytes("Bad").is_err());
        for bad in [
            "",
            "+1",
            "1x",
            "9223372036854775808",
            "99999999999999999999999",
        ] {
            assert!(number(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_strongest_known_digest_counts() {
        let digest = |value: &str| {
            let head = format!("PUT /a HTTP/1.1\r\nRepr-Digest: {value}\r\n\r\n");
            let fields = HeadFields::of(head.as_bytes());
            fields
                .digest("Repr-Digest")
                .map(|found| found.map(|it| it.algorithm))
        };
        let sha256 = format!("sha-256=:{}:", BASE64_STANDARD.encode([0; 32]));
        let sha512 = format!("sha-512=:{}:", BASE64_STANDARD.encode([0; 64]));
        assert_eq!(digest(&sha256), Ok(Some(Algorithm::Sha256)));
        assert_eq!(
            digest(&format!("{sha256}, {sha512}")),
            Ok(Some(Algorithm::Sha512))
        );
        assert_eq!(digest("md5=:AAAA:"), Ok(None));
        assert!(digest("sha-256=:AAAA:").is_err() && digest("sha-256=1, ,").is_err());
    }
}
