//! Record batches, version 2 of the format. A broker mostly needs only their headers.
//!
//! ```text
//!   0  base offset      8 │ 21 attributes         2 │ 43 producer id     8
//!   8  length           4 │ 23 last offset delta  4 │ 51 producer epoch  2
//!  12  leader epoch     4 │ 27 base timestamp     8 │ 53 base sequence   4
//!  16  magic (2)        1 │ 35 max timestamp      8 │ 57 count           4
//!  17  CRC of 21…       4 │                         │ 61 records
//! ```
//!
//! The broker writes the base offset and the leader epoch, which the checksum does not cover. If
//! the largest timestamp does not match the records, the broker corrects it and the checksum:
//! clients send wrong values, and retention depends on them. The broker changes nothing else.

mod bytes;
mod codec;
mod framing;
mod header;
pub(crate) mod records;
pub(crate) mod rewrite;

use std::io;

pub use self::bytes::BatchBytes;
pub use self::framing::BatchRecord;
pub use self::header::{BatchHeader, Codec, HEADER_BYTES};
pub(crate) use self::header::{CRC_FROM, WRITTEN_BYTES, add_sequence, written};
use self::header::{MAGIC, MAX_TIMESTAMP_AT, PREFIX_BYTES};
use self::records::RecordOffsets;

/// The reason why a batch is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadBatch {
    /// The batch is shorter than a header or than its stated length.
    #[error("the batch is cut off")]
    CutOff,
    /// The stated length is shorter than a header.
    #[error("the length of the batch is too small")]
    Length,
    /// Bytes follow the first batch.
    #[error("there are bytes behind the batch")]
    Trailing,
    /// The batch has another version of the format.
    #[error("the format of the batch has version {0}, expected 2")]
    Magic(u8),
    /// The checksum does not match: the bytes were changed.
    #[error("the checksum of the batch is wrong")]
    Crc,
    /// Fields of the header contradict each other.
    #[error("the header of the batch contradicts itself")]
    Inconsistent,
    /// The batch is a control batch, which only brokers write.
    #[error("control batches are written by brokers only")]
    Control,
    /// The batch is transactional, which is not supported.
    #[error("transactional batches are not supported")]
    Transactional,
    /// Consumers could not read the records, nor any after them.
    #[error("the batch does not have the records that its header announces")]
    Records,
    /// A record has no key, and the topic is compacted.
    #[error("a record has no key: the topic is compacted")]
    NoKey,
    /// Decompressing the records would take too much memory and time.
    #[error("the records of the batch have more than {0} bytes without compression")]
    Bomb(u64),
}

/// The largest number of records per byte of a compressed batch. Every record has a different
/// offset, so no codec gets near this limit.
const COMPRESSED_RECORDS_MAX: usize = 64;

/// Whether records need keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecordKeys {
    /// Records may have no key.
    Optional,
    /// Every record has a key: compaction keeps the latest record of each.
    Required,
}

/// Checks a batch from a client: it must be one whole batch with a correct checksum, and have the
/// records that its header announces. Returns the header to write, with the largest timestamp of
/// the records. Only the number of compressed records is checked; [`check_compressed`] checks the
/// records themselves.
///
/// # Errors
/// [`BadBatch`].
pub fn check(bytes: &[u8], keys: RecordKeys) -> Result<BatchHeader, BadBatch> {
    match bytes.get(16) {
        None => return Err(BadBatch::CutOff),
        Some(&MAGIC) => {}
        Some(&magic) => return Err(BadBatch::Magic(magic)),
    }
    if bytes.len() < HEADER_BYTES {
        return Err(BadBatch::CutOff);
    }
    let length = bytes.get(8..).and_then(<[u8]>::first_chunk);
    let length = length.map_or(0, |length| i32::from_be_bytes(*length));
    if length < (HEADER_BYTES - PREFIX_BYTES) as i32 {
        return Err(BadBatch::Length);
    }
    let header = BatchHeader::parse(bytes).ok_or(BadBatch::Inconsistent)?;
    match bytes.len() {
        length if length < header.size => return Err(BadBatch::CutOff),
        length if length > header.size => return Err(BadBatch::Trailing),
        _ => {}
    }
    if crc32c::crc32c(&bytes[21..]) != header.crc {
        return Err(BadBatch::Crc);
    }
    if header.is_control() {
        return Err(BadBatch::Control);
    }
    if header.is_transactional() {
        return Err(BadBatch::Transactional);
    }
    // Without a producer ID, epoch and sequence mean nothing: franz-go leaves 0 there.
    let is_consistent = header.count > 0
        && header.last_offset_delta == header.count - 1
        && !header.has_append_time()
        && header.codec() != Codec::Unknown
        && (header.producer_id < 0 || header.base_sequence >= 0 && header.producer_epoch >= 0);
    if !is_consistent {
        return Err(BadBatch::Inconsistent);
    }
    let records = &bytes[HEADER_BYTES..];
    if header.codec() != Codec::None {
        let are_possible = header.count as usize <= records.len() * COMPRESSED_RECORDS_MAX;
        return are_possible.then_some(header).ok_or(BadBatch::Records);
    }
    let summary = framing::summary(records, header.base_timestamp, header.count);
    let summary = summary.ok_or(BadBatch::Records)?;
    if keys == RecordKeys::Required && !summary.has_all_keys {
        return Err(BadBatch::NoKey);
    }
    Ok(with_latest(bytes, header, summary.latest))
}

/// Checks the compressed records of a batch that [`check`] accepted, by decompressing them, and
/// returns the header to write. Takes time in proportion to the uncompressed records, which are
/// limited to `bytes_max` bytes, and holds at most 128 MiB of them in memory.
///
/// # Errors
/// [`BadBatch::Records`], [`BadBatch::Bomb`], [`BadBatch::NoKey`].
pub fn check_compressed(
    bytes: &[u8],
    header: BatchHeader,
    bytes_max: u64,
    keys: RecordKeys,
) -> Result<BatchHeader, BadBatch> {
    let summary = records::summary(bytes, &header, (bytes_max, RecordOffsets::Consecutive));
    let summary = summary.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => BadBatch::Bomb(bytes_max),
        _ => BadBatch::Records,
    })?;
    if keys == RecordKeys::Required && !summary.has_all_keys {
        return Err(BadBatch::NoKey);
    }
    Ok(with_latest(bytes, header, summary.latest))
}

/// Returns the numbers of the records without a key in a batch that was rejected for them, at most
/// `count_max`. Takes as long as [`check_compressed`].
pub fn records_without_key(bytes: &[u8], bytes_max: u64, count_max: usize) -> Vec<i32> {
    let header = BatchHeader::parse(bytes);
    let numbers =
        header.and_then(|it| records::without_key(bytes, &it, (bytes_max, count_max)).ok());
    numbers.unwrap_or_default()
}

/// Returns the header of a batch with this largest timestamp and the checksum to match.
fn with_latest(bytes: &[u8], header: BatchHeader, latest: i64) -> BatchHeader {
    if header.max_timestamp == latest {
        return header;
    }
    let before = crc32c::crc32c(&bytes[CRC_FROM as usize..MAX_TIMESTAMP_AT]);
    let crc = crc32c::crc32c_append(before, &latest.to_be_bytes());
    BatchHeader {
        max_timestamp: latest,
        crc: crc32c::crc32c_append(crc, &bytes[WRITTEN_BYTES..]),
        ..header
    }
}

/// Whether the checksum of a whole batch is correct.
#[cfg(test)]
pub(crate) fn is_intact(batch: &[u8], header: &BatchHeader) -> bool {
    batch.len() == header.size && crc32c::crc32c(&batch[21..]) == header.crc
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Sets the base offset and the leader epoch of a batch.
    pub(crate) fn put_place(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
        let header = BatchHeader::parse(batch).unwrap();
        let placed = written(&BatchHeader {
            base_offset,
            leader_epoch,
            ..header
        });
        batch[..WRITTEN_BYTES].copy_from_slice(&placed);
    }

    /// A batch of `count` records that take `bytes` bytes, or more if they need more.
    pub(crate) fn batch(count: i32, bytes: usize, timestamp: i64) -> Vec<u8> {
        let records = |value: Option<&[u8]>| {
            let mut records = Vec::new();
            for number in 0..i64::from(count) {
                let record = BatchRecord {
                    offset_delta: number,
                    key: None,
                    value: value.filter(|_| number == 0),
                };
                record.put(&mut records);
            }
            records
        };
        let least = records(None).len();
        // The lengths of the value and of its record take a few more bytes.
        let value = vec![0x61; bytes.saturating_sub(least)];
        let fitting = (0..=value.len()).rev().take(10);
        let mut fitting = fitting.map(|length| records(Some(&value[..length])));
        let found = fitting.find(|records| records.len() <= bytes.max(least));
        batch_of_records(count, &found.unwrap_or_else(|| records(None)), timestamp)
    }

    /// A batch that announces `count` records and contains these bytes.
    pub(crate) fn batch_of_records(count: i32, records: &[u8], timestamp: i64) -> Vec<u8> {
        let mut batch = [&[0; HEADER_BYTES][..], records].concat();
        let length = (batch.len() - PREFIX_BYTES) as i32;
        let mut put = |at: usize, bytes: &[u8]| batch[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &0i64.to_be_bytes());
        put(8, &length.to_be_bytes());
        put(12, &(-1i32).to_be_bytes());
        put(16, &[MAGIC]);
        put(21, &0i16.to_be_bytes());
        put(23, &(count - 1).to_be_bytes());
        put(27, &timestamp.to_be_bytes());
        put(35, &timestamp.to_be_bytes());
        put(43, &(-1i64).to_be_bytes());
        put(51, &(-1i16).to_be_bytes());
        put(53, &(-1i32).to_be_bytes());
        put(57, &count.to_be_bytes());
        seal(&mut batch);
        batch
    }

    /// A batch of an idempotent producer.
    pub(crate) fn batch_of(producer: i64, epoch: i16, sequence: i32, count: i32) -> Vec<u8> {
        let mut batch = batch(count, 20, 7);
        batch[43..51].copy_from_slice(&producer.to_be_bytes());
        batch[51..53].copy_from_slice(&epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&sequence.to_be_bytes());
        seal(&mut batch);
        batch
    }

    /// A record: key, value and timestamp.
    pub(crate) type Entry = (Option<Vec<u8>>, Option<Vec<u8>>, i64);

    /// A batch of keyed records, in the codec with this number.
    pub(crate) fn keyed(codec: i16, entries: &[Entry]) -> Vec<u8> {
        let first = entries[0].2;
        let mut records = Vec::new();
        for (number, (key, value, timestamp)) in entries.iter().enumerate() {
            let record = BatchRecord {
                offset_delta: number as i64,
                key: key.as_deref(),
                value: value.as_deref(),
            };
            record.put_with(timestamp - first, &[], &mut records);
        }
        let mut header = batch_of_records(entries.len() as i32, &[], first);
        header[22] = codec as u8;
        let latest = entries.iter().map(|entry| entry.2).max().unwrap();
        header[MAX_TIMESTAMP_AT..WRITTEN_BYTES].copy_from_slice(&latest.to_be_bytes());
        let mut batch = header.clone();
        let parsed = BatchHeader::parse(&header).unwrap();
        codec::compress(&records, &parsed, b"", &mut batch).unwrap();
        let length = (batch.len() - PREFIX_BYTES) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        seal(&mut batch);
        batch
    }

    /// Returns the records of a batch, with their offsets.
    pub(crate) fn entries(batch: &[u8]) -> Vec<(i64, Entry)> {
        let header = BatchHeader::parse(batch).unwrap();
        assert!(is_intact(batch, &header));
        let mut bytes = Vec::new();
        let mut plain = codec::decompressor(batch, &header, u64::MAX).unwrap();
        io::Read::read_to_end(&mut plain, &mut bytes).unwrap();
        let (mut rest, mut entries) = (&bytes[..], Vec::new());
        for _ in 0..header.count {
            let (delta, record, behind) = BatchRecord::split_timed(rest).unwrap();
            let offset = header.base_offset + record.offset_delta;
            let fields = [record.key, record.value].map(|field| field.map(<[u8]>::to_vec));
            let [key, value] = fields;
            entries.push((offset, (key, value, header.base_timestamp + delta)));
            rest = behind;
        }
        assert!(rest.is_empty());
        entries
    }

    pub(crate) fn seal(batch: &mut [u8]) {
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }

    /// A batch with these records.
    fn batch_with(count: i32, records: &[u8]) -> Vec<u8> {
        batch_of_records(count, records, 5)
    }

    /// Three records: with all optional fields, with none, and with a two-byte length.
    fn three_records() -> Vec<u8> {
        let mut records = Vec::new();
        let mut put = |offset_delta, key, value, headers: &[_]| {
            let record = BatchRecord {
                offset_delta,
                key,
                value,
            };
            record.put_with(-1000 * offset_delta, headers, &mut records);
        };
        let headers = [[Some(&b"h"[..]), Some(b"v")], [Some(b""), None]];
        put(0, Some(b"key"), Some(b"value"), &headers);
        put(1, None, None, &[]);
        put(2, Some(b""), Some(&[7; 200]), &[]);
        records
    }

    #[test]
    fn a_good_batch_is_taken_and_placed() {
        let records = three_records();
        let mut bytes = batch_with(3, &records);
        let header = check(&bytes, RecordKeys::Optional).unwrap();
        assert_eq!((header.count, header.max_timestamp), (3, 5));
        assert_eq!(header.size, HEADER_BYTES + records.len());
        put_place(&mut bytes, 1000, 7);
        let placed = BatchHeader::parse(&bytes).unwrap();
        assert_eq!((placed.base_offset, placed.next_offset()), (1000, 1003));
        assert_eq!(placed.leader_epoch, 7);
        assert!(is_intact(&bytes, &placed));
    }

    #[test]
    fn the_largest_timestamp_is_corrected_whatever_the_client_claims() {
        // The timestamps are 5, 1000 less, and 2000 less.
        let records = three_records();
        for claimed in [-1, 0, 4, 5, 6, i64::MAX] {
            let mut bytes = batch_with(3, &records);
            bytes[MAX_TIMESTAMP_AT..WRITTEN_BYTES].copy_from_slice(&i64::to_be_bytes(claimed));
            seal(&mut bytes);
            let header = check(&bytes, RecordKeys::Optional).unwrap();
            assert_eq!(header.max_timestamp, 5, "{claimed}");
            bytes[..WRITTEN_BYTES].copy_from_slice(&written(&header));
            assert_eq!(bytes, batch_with(3, &records), "{claimed}");
        }
        // Timestamps that overflow.
        let mut bytes = batch_with(3, &records);
        bytes[27..35].copy_from_slice(&(i64::MIN + 1).to_be_bytes());
        seal(&mut bytes);
        assert_eq!(check(&bytes, RecordKeys::Optional), Err(BadBatch::Records));
    }

    #[test]
    fn what_is_wrong_with_a_batch_is_named() {
        let records = three_records();
        let changed = |at: usize, bytes: &[u8]| {
            let mut batch = batch_with(3, &records);
            batch[at..at + bytes.len()].copy_from_slice(bytes);
            seal(&mut batch);
            check(&batch, RecordKeys::Optional).unwrap_err()
        };
        assert_eq!(changed(16, &[1]), BadBatch::Magic(1));
        assert_eq!(changed(8, &2000i32.to_be_bytes()), BadBatch::CutOff);
        assert_eq!(changed(8, &50i32.to_be_bytes()), BadBatch::Trailing);
        assert_eq!(changed(8, &(-1i32).to_be_bytes()), BadBatch::Length);
        assert_eq!(changed(8, &48i32.to_be_bytes()), BadBatch::Length);
        assert_eq!(changed(22, &[1 << 5]), BadBatch::Control);
        assert_eq!(changed(22, &[1 << 4]), BadBatch::Transactional);
        assert_eq!(changed(22, &[1 << 3]), BadBatch::Inconsistent);
        assert_eq!(changed(22, &[5]), BadBatch::Inconsistent);
        assert_eq!(changed(57, &4i32.to_be_bytes()), BadBatch::Inconsistent);
        assert_eq!(changed(57, &0i32.to_be_bytes()), BadBatch::Inconsistent);
        assert_eq!(changed(43, &1i64.to_be_bytes()), BadBatch::Inconsistent);
        let mut torn = batch_with(3, &records);
        torn[70] ^= 1;
        assert_eq!(check(&torn, RecordKeys::Optional), Err(BadBatch::Crc));
        for length in 0..torn.len() {
            assert_eq!(
                check(&torn[..length], RecordKeys::Optional),
                Err(BadBatch::CutOff),
                "{length}"
            );
        }
    }

    #[test]
    fn records_that_no_consumer_could_read_are_found() {
        let records = three_records();
        let of = |count: i32, records: &[u8]| {
            check(&batch_with(count, records), RecordKeys::Optional).map(drop)
        };
        assert_eq!(of(3, &records), Ok(()));
        for count in [1, 2, 4, i32::MAX] {
            assert_eq!(of(count, &records), Err(BadBatch::Records), "{count}");
        }
        for end in 0..records.len() {
            assert_eq!(of(3, &records[..end]), Err(BadBatch::Records), "{end}");
        }
        assert_eq!(
            of(3, &[&records[..], &[0]].concat()),
            Err(BadBatch::Records)
        );
        assert_eq!(of(1, &[0xff; 30]), Err(BadBatch::Records));
        // The length of a field, the length of a record, and the number of headers.
        for at in [0, 1 + 3, 1 + 3 + 4, 1 + 3 + 4 + 6] {
            for value in [2, 4, 0x7f, 3] {
                let mut wrong = records.clone();
                wrong[at] = wrong[at].wrapping_add(value);
                assert_eq!(of(3, &wrong), Err(BadBatch::Records), "{at} {value}");
            }
        }
        let mut elsewhere = Vec::new();
        let record = BatchRecord {
            offset_delta: 1,
            key: None,
            value: None,
        };
        record.put(&mut elsewhere);
        assert_eq!(
            of(1, &elsewhere),
            Err(BadBatch::Records),
            "its offset is not the first"
        );
    }

    #[test]
    fn compressed_records_are_not_more_than_there_can_be() {
        let gzip = |count: i32| {
            let mut batch = batch_with(count, &[7; 30]);
            batch[22] = 1;
            seal(&mut batch);
            check(&batch, RecordKeys::Optional).map(drop)
        };
        assert_eq!(gzip(30 * 64), Ok(()));
        assert_eq!(gzip(30 * 64 + 1), Err(BadBatch::Records));
        assert_eq!(gzip(i32::MAX), Err(BadBatch::Records));
    }

    #[test]
    fn sequence_numbers_go_on_with_0_behind_the_largest() {
        assert_eq!(add_sequence(5, 3), 8);
        assert_eq!(add_sequence(i32::MAX, 1), 0);
        assert_eq!(add_sequence(i32::MAX - 1, 5), 3);
    }
}
