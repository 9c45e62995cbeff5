//! Record batches of format 2, with records of noise, and the topics that are made of them.

use std::time::{SystemTime, UNIX_EPOCH};

const HEADER_BYTES: usize = 61;

/// The maximum size of a record of about a kibibyte without its value.
const RECORD_HEADER_BYTES: usize = 10;

/// A broker writes the offset before the length of a batch, and the leader epoch after it.
const LENGTH: std::ops::Range<usize> = 8..12;
const CHECKED: usize = 16;

/// The checksum covers all bytes after it.
const CHECKSUM: usize = 17;
const SUMMED: usize = 21;

/// Different batches of a topic.
const POOL: u64 = 64;

/// A topic whose batches all have the same size. Its partitions all have the same content: these
/// batches in turn.
pub(crate) struct PreparedTopic {
    pub(crate) name: String,
    pub(crate) partitions: i32,
    pub(crate) batches: u64,
    pub(crate) batch_records: i64,
    pool: Vec<Vec<u8>>,
}

impl PreparedTopic {
    /// A topic that is filled with about this much in all.
    pub(crate) fn new(
        name: &str,
        partitions: i32,
        bytes: u64,
        batch_bytes_max: usize,
    ) -> PreparedTopic {
        let each = bytes / u64::from(partitions.unsigned_abs());
        let batches = (each / batch_bytes_max as u64).max(1);
        let pool = (0..POOL.min(batches)).map(|seed| prepare(batch_bytes_max, seed));
        PreparedTopic {
            name: name.to_owned(),
            partitions,
            batches,
            batch_records: records_of(batch_bytes_max) as i64,
            pool: pool.collect(),
        }
    }

    pub(super) fn batch(&self, number: u64) -> &[u8] {
        &self.pool[(number % self.pool.len() as u64) as usize]
    }

    pub(crate) fn batch_bytes(&self) -> usize {
        self.pool[0].len()
    }

    pub(crate) fn partition_count(&self) -> u64 {
        u64::from(self.partitions.unsigned_abs())
    }

    /// The offset behind what each partition is filled with.
    pub(crate) fn end(&self) -> i64 {
        self.batches as i64 * self.batch_records
    }

    /// Whether these bytes are what a broker has to have stored as the batch of this number.
    pub(super) fn is_batch(&self, number: u64, stored: &[u8]) -> bool {
        let batch = self.batch(number);
        stored.len() == batch.len()
            && stored[..LENGTH.start] == (number as i64 * self.batch_records).to_be_bytes()
            && stored[LENGTH] == batch[LENGTH]
            && stored[CHECKED..] == batch[CHECKED..]
    }
}

fn records_of(batch_bytes_max: usize) -> usize {
    (batch_bytes_max >> 10).max(1)
}

/// A batch of at most `bytes_max` bytes as a producer sends it, with an uncompressed record for
/// each kibibyte. Those of one size have one length, whatever the seed.
fn prepare(bytes_max: usize, seed: u64) -> Vec<u8> {
    let count = records_of(bytes_max);
    let value_bytes = (bytes_max - HEADER_BYTES) / count - RECORD_HEADER_BYTES;
    let mut noise = fastrand::Rng::with_seed(seed);
    let mut value = vec![0; value_bytes];
    let mut records = Vec::with_capacity(bytes_max);
    for delta in 0..count {
        noise.fill(&mut value);
        push_record(&mut records, delta as i64, &value);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_millis() as i64);
    let mut bytes = Vec::with_capacity(bytes_max);
    bytes.extend(0_i64.to_be_bytes());
    bytes.extend(((HEADER_BYTES - LENGTH.end + records.len()) as i32).to_be_bytes());
    bytes.extend((-1_i32).to_be_bytes());
    // Format 2, the place of the checksum, no attributes.
    bytes.extend([2, 0, 0, 0, 0, 0, 0]);
    bytes.extend((count as i32 - 1).to_be_bytes());
    bytes.extend(now.to_be_bytes());
    bytes.extend(now.to_be_bytes());
    // No producer id, epoch and sequence number.
    bytes.extend([0xff; 14]);
    bytes.extend((count as i32).to_be_bytes());
    bytes.extend(records);
    let sum = crc32c::crc32c(&bytes[SUMMED..]);
    bytes[CHECKSUM..SUMMED].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Without key and headers.
fn push_record(records: &mut Vec<u8>, delta: i64, value: &[u8]) {
    let mut record = vec![0, 0];
    push_varint(&mut record, delta);
    push_varint(&mut record, -1);
    push_varint(&mut record, value.len() as i64);
    record.extend(value);
    push_varint(&mut record, 0);
    push_varint(records, record.len() as i64);
    records.extend(record);
}

fn push_varint(to: &mut Vec<u8>, value: i64) {
    super::message::push_unsigned(to, (value << 1 ^ value >> 63) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_fits_its_size_and_is_recognised_as_a_broker_stores_it() {
        for size in [1 << 10, 16 << 10, 256 << 10] {
            let topic = PreparedTopic::new("t", 1, 2 * size as u64, size);
            assert!(topic.batch_bytes() <= size && topic.batch_bytes() > size - size / 50 - 20);
            assert_eq!(topic.batch_records, (size >> 10) as i64);
            let mut stored = topic.batch(1).to_vec();
            assert_ne!(stored[61..], topic.batch(0)[61..]);
            stored[..8].copy_from_slice(&topic.batch_records.to_be_bytes());
            stored[12..16].copy_from_slice(&5_i32.to_be_bytes());
            assert!(topic.is_batch(1, &stored));
            assert!(!topic.is_batch(3, &stored) && !topic.is_batch(0, &stored));
        }
    }
}
