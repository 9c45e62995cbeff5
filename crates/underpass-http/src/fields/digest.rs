//! Hashes of files: their names and how they are written.

use serde::Deserialize;

/// A hash function.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum HashAlgorithm {
    /// SHA-256
    Sha256,
    /// BLAKE3, 256 bits.
    Blake3,
}

/// Parses 64 hexadecimal digits.
pub fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (number, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * number..2 * number + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// A hash of 256 bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileDigest(pub [u8; 32]);

impl FileDigest {
    /// A placeholder where only the length matters.
    pub const UNKNOWN: FileDigest = FileDigest([0; 32]);

    /// Formats a line like `sha256sum` and `b3sum`: a name with a backslash or a line end is
    /// escaped and the line starts with a backslash.
    pub fn line(&self, name: &[u8]) -> Vec<u8> {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut line = Vec::with_capacity(68 + name.len());
        if name.iter().any(|byte| b"\\\n\r".contains(byte)) {
            line.push(b'\\');
        }
        line.extend_from_slice(hex.as_bytes());
        line.extend_from_slice(b"  ");
        for &byte in name {
            match byte {
                b'\\' => line.extend_from_slice(b"\\\\"),
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                other => line.push(other),
            }
        }
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_they_are_written() {
        let digits = "00ff".repeat(16);
        let digest = FileDigest(from_hex(&digits).unwrap());
        assert_eq!(digest.line(b"a b"), format!("{digits}  a b\n").as_bytes());
        let escaped = digest.line(b"a\\b\nc\r");
        assert_eq!(escaped, format!("\\{digits}  a\\\\b\\nc\\r\n").as_bytes());
        for wrong in ["", &digits[1..], &format!("{digits}0"), &"0g".repeat(32)] {
            assert_eq!(from_hex(wrong), None, "{wrong:?}");
        }
    }
}
