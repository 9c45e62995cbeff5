//! Numbers in fields of headers, and decimal ones.

use crate::limits::DIGITS_MAX;

/// A field that holds no number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NotANumber;

/// Reads a field: octal digits between spaces, ended by a space or zero byte, or GNU's base 256, a
/// two's complement number whose first byte is 0x80 or 0xff. `None` for a blank field.
pub(crate) fn parse_field(field: &[u8]) -> Result<Option<i64>, NotANumber> {
    match field.first() {
        Some(0x80 | 0xff) => base256(field).map(Some),
        _ => octal(field),
    }
}

fn octal(field: &[u8]) -> Result<Option<i64>, NotANumber> {
    let start = field.iter().take_while(|&&byte| byte == b' ').count();
    let field = &field[start..];
    let is_digit = |byte: &&u8| (b'0'..=b'7').contains(*byte);
    let (digits, rest) = field.split_at(field.iter().take_while(is_digit).count());
    if rest.iter().any(|byte| !matches!(byte, b' ' | 0)) {
        return Err(NotANumber);
    }
    let add = |number: i64, digit: &u8| {
        let shifted = number.checked_mul(8).ok_or(NotANumber)?;
        Ok(shifted + i64::from(digit - b'0'))
    };
    match digits {
        [] => Ok(None),
        digits => digits.iter().try_fold(0, add).map(Some),
    }
}

fn base256(field: &[u8]) -> Result<i64, NotANumber> {
    let sign: u8 = if field[0] == 0xff { 0xff } else { 0 };
    let (extension, number) = field.split_at(field.len().saturating_sub(8));
    // The first byte of a field is its marker, which extends the sign.
    let extends = |(at, byte): (usize, &u8)| at == 0 || *byte == sign;
    let mut value = [sign; 8];
    value[8 - number.len()..].copy_from_slice(number);
    if extension.is_empty() {
        value[8 - number.len()] = sign;
    }
    let value = i64::from_be_bytes(value);
    let has_sign = (value < 0) == (sign == 0xff);
    match extension.iter().enumerate().all(extends) && has_sign {
        true => Ok(value),
        false => Err(NotANumber),
    }
}

/// Reads a decimal number: digits only, and not too many.
pub(crate) fn parse_decimal(text: &[u8]) -> Result<u64, NotANumber> {
    let is_decimal = (1..=DIGITS_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).map_err(|_| NotANumber)?;
    match is_decimal {
        true => text.parse().map_err(|_| NotANumber),
        false => Err(NotANumber),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hold_octal_numbers_or_base_256() {
        for (field, number) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"77777777", Some(0o7777_7777)),
            (b"0 \0\0", Some(0)),
            (b"\0\0\0\0", None),
            (b"    ", None),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                Some(-1),
            ),
            (
                b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
                Some(i64::MAX),
            ),
        ] {
            assert_eq!(parse_field(field), Ok(number), "{}", field.escape_ascii());
        }
    }

    #[test]
    fn other_fields_are_no_numbers() {
        for field in [
            &b"0000648\0"[..],
            b"-000644\0",
            b"0x00644\0",
            b"12\x0034",
            b"12 34\0\0\0",
            b"\xc0\0\0\0\0\0\0\x01",
            b"\x80\0\0\0\x80\0\0\0\0\0\0\0",
            b"\x80\0\x01\0\0\0\0\0\0\0\0\0",
            b"\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"7777777777777777777777777777",
        ] {
            let number = parse_field(field);
            assert_eq!(number, Err(NotANumber), "{}", field.escape_ascii());
        }
    }

    #[test]
    fn decimals_are_digits() {
        assert_eq!(parse_decimal(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_decimal(b"007"), Ok(7));
        for text in [
            &b""[..],
            b"+1",
            b"-1",
            b" 1",
            b"1 ",
            b"18446744073709551616",
        ] {
            assert_eq!(parse_decimal(text), Err(NotANumber));
        }
        assert_eq!(parse_decimal(&[b'0'; 21]), Err(NotANumber));
    }
}
