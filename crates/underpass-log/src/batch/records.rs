//! The timestamps and keys of the records of a batch. Compressed records are decompressed as a
//! stream.

use std::io::{self, Read};
use std::ops::ControlFlow;

use crate::batch::codec::{Limited, damaged, decompressor};
use crate::batch::framing::{NO_TIMESTAMP, RecordsSummary, VARINT_BYTES_MAX, zigzag};
use crate::batch::header::BatchHeader;

/// Finds the first record at or after the offset `start` with a timestamp of at least `timestamp`.
/// Returns its offset and its timestamp.
///
/// # Errors
/// The records cannot be read.
pub(crate) fn first_since(
    batch: &[u8],
    header: &BatchHeader,
    (start, timestamp): (i64, i64),
) -> io::Result<Option<(i64, i64)>> {
    let mut found = None;
    let last = header.last_offset();
    visit(batch, header, u64::MAX, |record| {
        let offset = header.base_offset.checked_add(record.offset_delta);
        let offset = offset.filter(|offset| (header.base_offset..=last).contains(offset));
        let offset = offset.ok_or_else(damaged)?;
        if offset >= start && record.timestamp >= timestamp {
            found = Some((offset, record.timestamp));
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// How the offsets of the records of a batch rise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RecordOffsets {
    /// By one, as a producer sends them.
    Consecutive,
    /// Records may be missing, because the log was compacted.
    Rising,
}

/// Returns the largest timestamp of the records, and whether all have keys. Nothing may follow
/// them.
///
/// # Errors
/// The records cannot be read. `FileTooLarge` if they have more than `bytes_max` bytes
/// uncompressed.
pub(crate) fn summary(
    batch: &[u8],
    header: &BatchHeader,
    (bytes_max, offsets): (u64, RecordOffsets),
) -> io::Result<RecordsSummary> {
    let mut summary = RecordsSummary {
        latest: NO_TIMESTAMP,
        has_all_keys: true,
    };
    let mut next = 0;
    let mut rest = visit(batch, header, bytes_max, |record| {
        let is_right = match offsets {
            RecordOffsets::Consecutive => record.offset_delta == next,
            RecordOffsets::Rising => record.offset_delta >= next,
        };
        if !is_right {
            return Err(damaged());
        }
        next = record.offset_delta + 1;
        summary.latest = summary.latest.max(record.timestamp);
        summary.has_all_keys &= record.has_key;
        Ok(ControlFlow::Continue(()))
    })?;
    match rest.read(&mut [0])? {
        0 => Ok(summary),
        _ => Err(damaged()),
    }
}

/// Returns the numbers of the records without a key, at most `count_max` of them.
///
/// # Errors
/// Those of [`summary`].
pub(crate) fn without_key(
    batch: &[u8],
    header: &BatchHeader,
    (bytes_max, count_max): (u64, usize),
) -> io::Result<Vec<i32>> {
    let (mut numbers, mut number) = (Vec::new(), 0);
    visit(batch, header, bytes_max, |record| {
        if !record.has_key {
            numbers.push(number);
        }
        number += 1;
        Ok(match numbers.len() < count_max {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    Ok(numbers)
}

/// The parts of a record that a visitor gets.
struct VisitedRecord {
    offset_delta: i64,
    timestamp: i64,
    has_key: bool,
}

/// Visits the records. Returns the bytes after the last record visited.
fn visit<'a>(
    batch: &'a [u8],
    header: &BatchHeader,
    bytes_max: u64,
    mut visitor: impl FnMut(VisitedRecord) -> io::Result<ControlFlow<()>>,
) -> io::Result<Limited<'a>> {
    let mut records = decompressor(batch, header, bytes_max)?;
    for _ in 0..header.count {
        let (time_delta, mut record) = next(&mut records)?;
        let timestamp = match header.has_append_time() {
            true => Some(header.max_timestamp),
            false => header.base_timestamp.checked_add(time_delta),
        };
        record.timestamp = timestamp.ok_or_else(damaged)?;
        if visitor(record)?.is_break() {
            break;
        }
    }
    Ok(records)
}

/// Reads a record. Returns its timestamp delta, and the record without a timestamp.
fn next(records: &mut dyn Read) -> io::Result<(i64, VisitedRecord)> {
    let (length, _) = varint(records)?;
    let mut attributes = [0];
    records.read_exact(&mut attributes)?;
    let (time, time_bytes) = varint(records)?;
    let (offset_delta, offset_bytes) = varint(records)?;
    let (key_length, key_bytes) = varint(records)?;
    let read = attributes.len() as u64 + time_bytes + offset_bytes + key_bytes;
    let rest = u64::try_from(length)
        .ok()
        .and_then(|length| length.checked_sub(read));
    let rest = rest.ok_or_else(damaged)?;
    let record = VisitedRecord {
        offset_delta,
        timestamp: NO_TIMESTAMP,
        has_key: key_length >= 0,
    };
    match io::copy(&mut records.take(rest), &mut io::sink())? == rest {
        true => Ok((time, record)),
        false => Err(damaged()),
    }
}

/// Reads a zigzag varint. Returns it with the number of bytes read.
fn varint(from: &mut dyn Read) -> io::Result<(i64, u64)> {
    let (mut number, mut bytes) = (0u64, 0);
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        number |= u64::from(byte[0] & 0x7f) << (7 * bytes);
        bytes += 1;
        if byte[0] & 0x80 == 0 {
            return Ok((zigzag(number), bytes));
        }
        if bytes == VARINT_BYTES_MAX as u64 {
            return Err(damaged());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::batch::RecordKeys;
    use crate::batch::codec::SNAPPY_JAVA;
    use crate::batch::header::{Codec, HEADER_BYTES};

    /// Three records, 10 ms apart, with values long enough for multi-byte varints.
    fn records() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, length) in [(0u8, 200usize), (1, 3), (2, 70)] {
            let mut record = vec![0, 20 * number, 2 * number, 1];
            record.resize(record.len() + length, 7);
            let zigzag = 2 * record.len() as u64;
            if zigzag >= 0x80 {
                bytes.push((zigzag & 0x7f) as u8 | 0x80);
                bytes.push((zigzag >> 7) as u8);
            } else {
                bytes.push(zigzag as u8);
            }
            bytes.extend(record);
        }
        bytes
    }

    fn compressed(codec: Codec) -> Vec<u8> {
        let plain = records();
        match codec {
            Codec::None | Codec::Unknown => plain,
            Codec::Gzip => {
                let level = flate2::Compression::default();
                let mut to = flate2::write::GzEncoder::new(Vec::new(), level);
                to.write_all(&plain).unwrap();
                to.finish().unwrap()
            }
            Codec::Snappy => snap::raw::Encoder::new().compress_vec(&plain).unwrap(),
            Codec::Lz4 => {
                let mut to = lz4_flex::frame::FrameEncoder::new(Vec::new());
                to.write_all(&plain).unwrap();
                to.finish().unwrap()
            }
            Codec::Zstd => zstd::encode_all(&plain[..], 1).unwrap(),
        }
    }

    fn batch_of(codec: i16, records: &[u8]) -> (Vec<u8>, BatchHeader) {
        let mut batch = crate::batch::tests::batch_of_records(3, records, 1000);
        batch[21..23].copy_from_slice(&codec.to_be_bytes());
        let mut header = BatchHeader::parse(&batch).unwrap();
        header.base_offset = 50;
        header.max_timestamp = 1020;
        (batch, header)
    }

    #[test]
    fn the_first_record_since_a_time_is_found_in_every_codec() {
        let codecs = [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ];
        for (number, codec) in (0..).zip(codecs) {
            let (batch, header) = batch_of(number, &compressed(codec));
            for (timestamp, found) in [
                (0, Some((50, 1000))),
                (1000, Some((50, 1000))),
                (1001, Some((51, 1010))),
                (1011, Some((52, 1020))),
                (1021, None),
            ] {
                let since = first_since(&batch, &header, (0, timestamp)).unwrap();
                assert_eq!(since, found, "{codec:?} {timestamp}");
            }
            let behind = first_since(&batch, &header, (52, 0)).unwrap();
            assert_eq!(behind, Some((52, 1020)), "{codec:?}");
        }
    }

    #[test]
    fn blocks_of_javas_snappy_follow_each_other() {
        let plain = records();
        let mut java = SNAPPY_JAVA.to_vec();
        java.extend([0, 0, 0, 1, 0, 0, 0, 1]);
        for part in plain.chunks(100) {
            let block = snap::raw::Encoder::new().compress_vec(part).unwrap();
            java.extend((block.len() as u32).to_be_bytes());
            java.extend(block);
        }
        let (batch, header) = batch_of(2, &java);
        assert_eq!(
            first_since(&batch, &header, (0, 1005)).unwrap(),
            Some((51, 1010))
        );
    }

    #[test]
    fn the_latest_time_is_that_of_the_records_in_every_codec() {
        let codecs = [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ];
        for (number, codec) in (0..).zip(codecs) {
            let (mut batch, mut header) = batch_of(number, &compressed(codec));
            let length = records().len() as u64;
            let latest = |header: &BatchHeader, bytes_max: u64| {
                let found = summary(&batch, header, (bytes_max, RecordOffsets::Consecutive))?;
                io::Result::Ok((found.latest, found.has_all_keys))
            };
            assert_eq!(latest(&header, length).unwrap(), (1020, false), "{codec:?}");
            let keyless = without_key(&batch, &header, (u64::MAX, 2)).unwrap();
            assert_eq!(keyless, [0, 1], "{codec:?}");
            let too_large = latest(&header, length - 1).unwrap_err();
            let kind = io::ErrorKind::FileTooLarge;
            assert_eq!(too_large.kind(), kind, "{codec:?}");
            // One record less and one more than the header announces.
            for count in [2, 4] {
                header.count = count;
                let outcome = latest(&header, u64::MAX);
                assert!(outcome.is_err(), "{codec:?} {count}");
            }
            // The returned header has the timestamp of the records and a matching checksum.
            batch[35..43].copy_from_slice(&1000i64.to_be_bytes());
            crate::batch::tests::seal(&mut batch);
            let forged = BatchHeader::parse(&batch).unwrap();
            let checked =
                crate::batch::check_compressed(&batch, forged, 1 << 20, RecordKeys::Optional);
            let checked = checked.unwrap();
            let written = crate::batch::written(&checked);
            batch[..written.len()].copy_from_slice(&written);
            assert_eq!(checked.max_timestamp, 1020, "{codec:?}");
            assert!(crate::batch::is_intact(&batch, &checked), "{codec:?}");
        }
    }

    #[test]
    fn what_is_not_records_is_an_error() {
        for codec in 0..8 {
            for bytes in [&[0xff; 40][..], &[], SNAPPY_JAVA, &[0x80; 20]] {
                let (batch, header) = batch_of(codec, bytes);
                assert!(
                    first_since(&batch, &header, (0, i64::MAX)).is_err(),
                    "{codec} {bytes:?}"
                );
            }
        }
        let (batch, header) = batch_of(0, &records());
        for end in HEADER_BYTES..batch.len() - 1 {
            assert!(
                first_since(&batch[..end], &header, (0, i64::MAX)).is_err(),
                "{end}"
            );
        }
    }
}
