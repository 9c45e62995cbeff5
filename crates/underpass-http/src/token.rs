//! The characters of tokens and values.

/// Whether a token may contain the byte: RFC 9110, section 5.6.2.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a value or a quoted string may contain the byte: no control byte except the tab.
pub fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}
