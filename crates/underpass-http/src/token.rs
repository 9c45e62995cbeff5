//! The characters of tokens and values.

/// Whether a token may contain the byte: RFC 9110, section 5.6.2.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a value or a quoted string may contain the byte: no control byte except the tab.
pub fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

/// Parses digits, without overflow.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, add))?
}
