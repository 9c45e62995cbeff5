//! Writes record batches of keys and values for internal topics (version 2 of the format,
//! uncompressed), and reads them back.

use underpass_log::batch::{self, HEADER_BYTES};

/// A record: a key with a value, or without one if the key is deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Record<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
}

/// The reason why records cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BadRecordBatch {
    /// The batch is too short, or its lengths are inconsistent.
    Malformed,
    /// The batch is compressed, which the broker's own batches never are.
    Compressed,
}

const AT_CRC: usize = 17;
const AT_ATTRIBUTES: usize = 21;
const AT_COUNT: usize = 57;
/// The codec, in the attributes.
const CODEC: u8 = 0b111;

/// Builds a batch with the base offset 0, which the log replaces, from at least one record.
/// `timestamp` is in milliseconds since 1970.
pub(crate) fn build(records: &[Record<'_>], timestamp: i64) -> Vec<u8> {
    let mut batch = vec![0; HEADER_BYTES];
    for (number, record) in records.iter().enumerate() {
        let record = batch::BatchRecord {
            offset_delta: number as i64,
            key: Some(record.key),
            value: record.value,
        };
        record.put(&mut batch);
    }
    let count = records.len() as i32;
    let length = (batch.len() - 12) as i32;
    let mut put = |at: usize, bytes: &[u8]| batch[at..at + bytes.len()].copy_from_slice(bytes);
    put(8, &length.to_be_bytes());
    put(12, &(-1i32).to_be_bytes());
    put(16, &[2]);
    put(23, &(count - 1).to_be_bytes());
    put(27, &timestamp.to_be_bytes());
    put(35, &timestamp.to_be_bytes());
    put(43, &(-1i64).to_be_bytes());
    put(51, &(-1i16).to_be_bytes());
    put(53, &(-1i32).to_be_bytes());
    put(AT_COUNT, &count.to_be_bytes());
    let crc = crc32c::crc32c(&batch[AT_ATTRIBUTES..]);
    batch[AT_CRC..AT_CRC + 4].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// Returns the records of a batch whose checksum has been verified.
///
/// # Errors
/// [`BadRecordBatch`].
pub(crate) fn records(batch: &[u8]) -> Result<Vec<Record<'_>>, BadRecordBatch> {
    let count = batch
        .get(AT_COUNT..HEADER_BYTES)
        .ok_or(BadRecordBatch::Malformed)?;
    let count = i32::from_be_bytes(count.try_into().map_err(|_| BadRecordBatch::Malformed)?);
    if batch[AT_ATTRIBUTES + 1] & CODEC != 0 {
        return Err(BadRecordBatch::Compressed);
    }
    let mut rest = &batch[HEADER_BYTES..];
    let mut records = Vec::new();
    for _ in 0..count {
        let (record, behind) = batch::BatchRecord::split(rest).ok_or(BadRecordBatch::Malformed)?;
        let (key, value) = (record.key.unwrap_or_default(), record.value);
        records.push(Record { key, value });
        rest = behind;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..300);
        prop::collection::vec((bytes(), prop::option::of(bytes())), 1..20)
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(pairs in pairs(), timestamp: i64) {
            let written: Vec<_> = pairs
                .iter()
                .map(|(key, value)| Record { key, value: value.as_deref() })
                .collect();
            let batch = build(&written, timestamp);
            prop_assert_eq!(records(&batch), Ok(written));
        }

        #[test]
        fn damaged_batches_are_errors(pairs in pairs(), cut: prop::sample::Index) {
            let written: Vec<_> = pairs
                .iter()
                .map(|(key, value)| Record { key, value: value.as_deref() })
                .collect();
            let batch = build(&written, 0);
            let cut = cut.index(batch.len());
            prop_assert!(records(&batch[..cut]).is_err());
        }

        #[test]
        fn anything_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = records(&bytes);
        }
    }

    #[test]
    fn compressed_batches_are_refused() {
        let mut batch = build(
            &[Record {
                key: b"k",
                value: None,
            }],
            0,
        );
        batch[AT_ATTRIBUTES + 1] = 1;
        assert_eq!(records(&batch), Err(BadRecordBatch::Compressed));
    }
}
