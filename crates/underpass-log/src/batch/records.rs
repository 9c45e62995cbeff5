//! The timestamps of the records of a batch. Compressed records are decompressed as a stream.

use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;

use crate::batch::framing::{NO_TIMESTAMP, VARINT_BYTES_MAX, zigzag};
use crate::batch::header::{BatchHeader, Codec, HEADER_BYTES};

/// The largest Snappy block that is decompressed; blocks are decompressed as a whole.
const SNAPPY_BLOCK_MAX: u64 = 64 << 20;

/// The magic that Java's Snappy library writes first, followed by two version numbers.
const SNAPPY_JAVA: &[u8] = b"\x82SNAPPY\0";
const SNAPPY_JAVA_HEADER_BYTES: usize = 16;

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
    if header.has_append_time() {
        // All records have the same timestamp.
        let is_late = header.max_timestamp >= timestamp;
        let first = header.base_offset.max(start);
        return Ok(is_late.then_some((first, header.max_timestamp)));
    }
    let mut found = None;
    let last = header.last_offset();
    visit(batch, header, u64::MAX, |offset_delta, time| {
        let offset = header.base_offset.checked_add(offset_delta);
        let offset = offset.filter(|offset| (header.base_offset..=last).contains(offset));
        let offset = offset.ok_or_else(damaged)?;
        if offset >= start && time >= timestamp {
            found = Some((offset, time));
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Returns the largest timestamp of the records. Their offsets must be consecutive, and nothing may
/// follow them.
///
/// # Errors
/// The records cannot be read. `FileTooLarge` if they have more than `bytes_max` bytes
/// uncompressed.
pub(crate) fn latest(batch: &[u8], header: &BatchHeader, bytes_max: u64) -> io::Result<i64> {
    if header.has_append_time() {
        return Ok(header.max_timestamp);
    }
    let (mut latest, mut next) = (NO_TIMESTAMP, 0);
    let mut rest = visit(batch, header, bytes_max, |offset_delta, time| {
        if offset_delta != next {
            return Err(damaged());
        }
        next += 1;
        latest = latest.max(time);
        Ok(ControlFlow::Continue(()))
    })?;
    match rest.read(&mut [0])? {
        0 => Ok(latest),
        _ => Err(damaged()),
    }
}

/// Visits the records with the offset delta and the timestamp of each. Returns the bytes after the
/// last record visited.
fn visit<'a>(
    batch: &'a [u8],
    header: &BatchHeader,
    bytes_max: u64,
    mut visitor: impl FnMut(i64, i64) -> io::Result<ControlFlow<()>>,
) -> io::Result<Limited<'a>> {
    let compressed = batch.get(HEADER_BYTES..).ok_or_else(damaged)?;
    let records: Box<dyn Read + 'a> = match header.codec() {
        Codec::None => Box::new(compressed),
        Codec::Gzip => Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(
            compressed,
        ))),
        Codec::Snappy => Box::new(io::Cursor::new(unsnap(
            compressed,
            bytes_max.min(SNAPPY_BLOCK_MAX),
        )?)),
        Codec::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(compressed)),
        Codec::Zstd => Box::new(BufReader::new(zstd::Decoder::with_buffer(compressed)?)),
        Codec::Unknown => return Err(damaged()),
    };
    let mut records = Limited {
        records,
        left: bytes_max,
    };
    for _ in 0..header.count {
        let (time_delta, offset_delta) = next(&mut records)?;
        let time = header.base_timestamp.checked_add(time_delta);
        if visitor(offset_delta, time.ok_or_else(damaged)?)?.is_break() {
            break;
        }
    }
    Ok(records)
}

/// A reader of uncompressed records that returns at most `left` more bytes.
struct Limited<'a> {
    records: Box<dyn Read + 'a>,
    left: u64,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.records.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}

/// Reads a record. Returns its timestamp delta and its offset delta.
fn next(records: &mut dyn Read) -> io::Result<(i64, i64)> {
    let (length, _) = varint(records)?;
    let mut attributes = [0];
    records.read_exact(&mut attributes)?;
    let (time, time_bytes) = varint(records)?;
    let (offset, offset_bytes) = varint(records)?;
    let read = attributes.len() as u64 + time_bytes + offset_bytes;
    let rest = u64::try_from(length)
        .ok()
        .and_then(|length| length.checked_sub(read));
    let rest = rest.ok_or_else(damaged)?;
    match io::copy(&mut records.take(rest), &mut io::sink())? == rest {
        true => Ok((time, offset)),
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

/// Decompresses length-prefixed blocks as written by Java's Snappy library, or one raw block, up to
/// `bytes_max` uncompressed bytes in total.
fn unsnap(compressed: &[u8], bytes_max: u64) -> io::Result<Vec<u8>> {
    let block = |block: &[u8], whole: &mut Vec<u8>| {
        let length = snap::raw::decompress_len(block)?;
        if (whole.len() + length) as u64 > bytes_max {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        whole.extend(snap::raw::Decoder::new().decompress_vec(block)?);
        Ok(())
    };
    let mut whole = Vec::new();
    if !compressed.starts_with(SNAPPY_JAVA) {
        block(compressed, &mut whole)?;
        return Ok(whole);
    }
    let mut rest = compressed
        .get(SNAPPY_JAVA_HEADER_BYTES..)
        .ok_or_else(damaged)?;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let (one, behind) = behind.split_at_checked(length).ok_or_else(damaged)?;
        block(one, &mut whole)?;
        rest = behind;
    }
    Ok(whole)
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the records of a batch cannot be read",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Three records, 10 ms apart, with values long enough for multi-byte varints.
    fn records() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, length) in [(0u8, 200usize), (1, 3), (2, 70)] {
            let mut record = vec![0, 20 * number, 2 * number];
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
            assert_eq!(latest(&batch, &header, length).unwrap(), 1020, "{codec:?}");
            let too_large = latest(&batch, &header, length - 1).unwrap_err();
            let kind = io::ErrorKind::FileTooLarge;
            assert_eq!(too_large.kind(), kind, "{codec:?}");
            // One record less and one more than the header announces.
            for count in [2, 4] {
                header.count = count;
                let outcome = latest(&batch, &header, u64::MAX);
                assert!(outcome.is_err(), "{codec:?} {count}");
            }
            // The returned header has the timestamp of the records and a matching checksum.
            batch[35..43].copy_from_slice(&1000i64.to_be_bytes());
            crate::batch::tests::seal(&mut batch);
            let forged = BatchHeader::parse(&batch).unwrap();
            let checked = crate::batch::check_compressed(&batch, forged, 1 << 20).unwrap();
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
