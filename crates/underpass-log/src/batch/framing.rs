//! Whether bytes are records, as far as their fields fit into each other.

/// 64 bits, seven to a byte.
pub(super) const VARINT_BYTES_MAX: usize = 10;

/// Whether these bytes are `count` records that are not compressed, with consecutive offsets, and
/// nothing behind them.
pub(crate) fn are_whole(mut bytes: &[u8], count: i32) -> bool {
    for number in 0..i64::from(count) {
        match split_record(bytes) {
            Some((delta, rest)) if delta == number => bytes = rest,
            _ => return false,
        }
    }
    bytes.is_empty()
}

/// A record that the bytes begin with, as far as its fields fit into it: how far its offset is
/// above that of the batch, and what is behind the record.
fn split_record(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (length, rest) = split_varint(bytes)?;
    let (record, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let (_attributes, fields) = record.split_first()?;
    let (_timestamp_delta, fields) = split_varint(fields)?;
    let (offset_delta, fields) = split_varint(fields)?;
    let (_key, fields) = split_field(fields)?;
    let (_value, fields) = split_field(fields)?;
    let (headers, mut fields) = split_varint(fields)?;
    for _ in 0..u64::try_from(headers).ok()? {
        let (key, rest) = split_field(fields)?;
        let (_value, rest) = split_field(rest)?;
        key?;
        fields = rest;
    }
    fields.is_empty().then_some((offset_delta, behind))
}

/// Bytes behind their length; −1 is that of null.
fn split_field(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    match split_varint(bytes)? {
        (-1, rest) => Some((None, rest)),
        (length, rest) => {
            let (field, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((Some(field), rest))
        }
    }
}

/// A number of variable length, and what is behind it.
fn split_varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut number = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((zigzag(number), &bytes[at + 1..]));
        }
    }
    None
}

/// A number in zigzag encoding.
pub(super) fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}
