//! Encoding and decoding of the records of an uncompressed batch.

/// The longest varint: 64 bits, seven to a byte.
pub(super) const VARINT_BYTES_MAX: usize = 10;

/// A record, without its headers, of a batch that is not compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchRecord<'a> {
    /// The offset relative to the base offset of the batch.
    pub offset_delta: i64,
    /// The key, which may be null.
    pub key: Option<&'a [u8]>,
    /// The value, which may be null.
    pub value: Option<&'a [u8]>,
}

impl<'a> BatchRecord<'a> {
    /// Splits the first record off the bytes and returns it with the rest; `None` if its lengths
    /// are inconsistent.
    pub fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        Self::split_timed(bytes).map(|(_, record, behind)| (record, behind))
    }

    /// Does the same as [`split`](Self::split), and also returns the timestamp delta.
    pub(super) fn split_timed(bytes: &'a [u8]) -> Option<(i64, Self, &'a [u8])> {
        let (length, rest) = split_varint(bytes)?;
        let (record, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let (_attributes, fields) = record.split_first()?;
        let (timestamp_delta, fields) = split_varint(fields)?;
        let (offset_delta, fields) = split_varint(fields)?;
        let (key, fields) = split_field(fields)?;
        let (value, fields) = split_field(fields)?;
        let (headers, mut fields) = split_varint(fields)?;
        for _ in 0..u64::try_from(headers).ok()? {
            let (key, rest) = split_field(fields)?;
            let (_value, rest) = split_field(rest)?;
            key?;
            fields = rest;
        }
        let record = Self {
            offset_delta,
            key,
            value,
        };
        let is_whole = fields.is_empty();
        is_whole.then_some((timestamp_delta, record, behind))
    }

    /// Appends the record to `out`, without headers and with the base timestamp of the batch.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.put_with(0, &[], out);
    }

    pub(super) fn put_with(&self, timestamp: i64, headers: &[[Field<'_>; 2]], out: &mut Vec<u8>) {
        let mut record = vec![0];
        put_varint(&mut record, timestamp);
        put_varint(&mut record, self.offset_delta);
        put_field(&mut record, self.key);
        put_field(&mut record, self.value);
        put_varint(&mut record, headers.len() as i64);
        for field in headers.as_flattened() {
            put_field(&mut record, *field);
        }
        put_varint(out, record.len() as i64);
        out.extend(record);
    }
}

/// Bytes, or null.
type Field<'a> = Option<&'a [u8]>;

/// Facts about the records of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RecordsSummary {
    /// The largest timestamp.
    pub(crate) latest: i64,
    pub(crate) has_all_keys: bool,
}

/// Returns a summary of `count` uncompressed records; `None` if the bytes are not exactly such
/// records with consecutive offsets.
pub(super) fn summary(mut bytes: &[u8], base_timestamp: i64, count: i32) -> Option<RecordsSummary> {
    let mut summary = RecordsSummary {
        latest: NO_TIMESTAMP,
        has_all_keys: true,
    };
    for number in 0..i64::from(count) {
        let (delta, record, rest) = BatchRecord::split_timed(bytes)?;
        let timestamp = base_timestamp.checked_add(delta)?;
        if record.offset_delta != number {
            return None;
        }
        summary.latest = summary.latest.max(timestamp);
        summary.has_all_keys &= record.key.is_some();
        bytes = rest;
    }
    bytes.is_empty().then_some(summary)
}

/// A record within uncompressed bytes, as far as compaction reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramedRecord<'a> {
    /// The whole record, with its length.
    pub(super) bytes: &'a [u8],
    pub(super) attributes: u8,
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i64,
    pub(super) key: Option<&'a [u8]>,
    /// Whether the value is null: the record deletes its key.
    pub(super) is_tombstone: bool,
    /// The fields after the timestamp delta.
    behind_timestamp: &'a [u8],
}

impl<'a> FramedRecord<'a> {
    /// Splits the first record off the bytes and returns it with the rest; `None` if its lengths
    /// are inconsistent.
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (length, rest) = split_varint(bytes)?;
        let (record, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let (&attributes, fields) = record.split_first()?;
        let (timestamp_delta, behind_timestamp) = split_varint(fields)?;
        let (offset_delta, fields) = split_varint(behind_timestamp)?;
        let (key, fields) = split_field(fields)?;
        let (value, _headers) = split_field(fields)?;
        let record = FramedRecord {
            bytes: &bytes[..bytes.len() - behind.len()],
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            is_tombstone: value.is_none(),
            behind_timestamp,
        };
        Some((record, behind))
    }

    /// Appends the record to `out` with another timestamp delta.
    pub(super) fn put_with_timestamp(&self, timestamp_delta: i64, out: &mut Vec<u8>) {
        let mut timestamp = Vec::with_capacity(VARINT_BYTES_MAX);
        put_varint(&mut timestamp, timestamp_delta);
        let length = 1 + timestamp.len() + self.behind_timestamp.len();
        put_varint(out, length as i64);
        out.push(self.attributes);
        out.extend(timestamp);
        out.extend_from_slice(self.behind_timestamp);
    }
}

/// The timestamp of a record without one.
pub(super) const NO_TIMESTAMP: i64 = -1;

/// Splits off bytes prefixed with their length; −1 is the length of null.
fn split_field(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    match split_varint(bytes)? {
        (-1, rest) => Some((None, rest)),
        (length, rest) => {
            let (field, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((Some(field), rest))
        }
    }
}

fn put_field(out: &mut Vec<u8>, field: Field<'_>) {
    put_varint(out, field.map_or(-1, |bytes| bytes.len() as i64));
    out.extend(field.unwrap_or_default());
}

/// Splits off a varint and returns it with the rest.
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

/// Writes a zigzag varint: seven bits to a byte, lowest first, the sign in the lowest bit.
fn put_varint(out: &mut Vec<u8>, number: i64) {
    let mut left = ((number << 1) ^ (number >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Decodes a number in zigzag encoding.
pub(super) fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}
