//! Recognises file names that contain a hash of their content, and therefore never change.

/// The number of digits in a hash. Fewer are years and versions.
const HASH_DIGITS: std::ops::RangeInclusive<usize> = 8..=64;

/// Whether the last name of `path` contains a hash: `app.3f9ab2c1.js`, `app-3f9ab2c1.css`,
/// `3f9ab2c1.woff2`. A hash is a part between dots and dashes, before the extension, of at least
/// eight lower-case hexadecimal digits with both letters and figures: no date, number or word is
/// mistaken for one, and one in forty hashes of eight digits is missed.
pub(crate) fn is_hash_named(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return false;
    };
    name[..dot]
        .split(|byte| matches!(byte, b'.' | b'-'))
        .any(is_hash)
}

fn is_hash(part: &[u8]) -> bool {
    let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    HASH_DIGITS.contains(&part.len())
        && part.iter().all(hexadecimal)
        && part.iter().any(u8::is_ascii_digit)
        && part.iter().any(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_distinguished_from_dates_versions_and_words() {
        for hashed in [
            "name.3f9ab2c1.js",
            "a/name-3f9ab2c1.css",
            "3f9ab2c1d4e5f607.woff2",
            "app.3f9ab2c1.js.map",
        ] {
            assert!(is_hash_named(hashed.as_bytes()), "{hashed}");
        }
        for plain in [
            "report-20240101.pdf",
            "report-2024-01-01.pdf",
            "deadbeef.js",
            "name.3f9ab2c.js",
            "name-3f9ab2c1",
            "3f9ab2c1/name.js",
            "name.3F9AB2C1.js",
            "name.3f9ab2c1",
            "jquery-3.7.1.min.js",
            "name_3f9ab2c1.js",
            "name.3f9ab2c1d",
        ] {
            assert!(!is_hash_named(plain.as_bytes()), "{plain}");
        }
    }
}
