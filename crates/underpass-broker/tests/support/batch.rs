//! Valid and invalid record batches.

use std::time::{SystemTime, UNIX_EPOCH};

use underpass_log::batch::BatchRecord;

/// The positions of the fields in a batch.
pub(crate) const BASE_OFFSET: usize = 0;
pub(crate) const LENGTH: usize = 8;
pub(crate) const MAGIC: usize = 16;
pub(crate) const CRC: usize = 17;
pub(crate) const ATTRIBUTES: usize = 21;
pub(crate) const LAST_OFFSET_DELTA: usize = 23;
pub(crate) const BASE_TIMESTAMP: usize = 27;
pub(crate) const MAX_TIMESTAMP: usize = 35;
pub(crate) const PRODUCER_ID: usize = 43;
pub(crate) const PRODUCER_EPOCH: usize = 51;
pub(crate) const BASE_SEQUENCE: usize = 53;
pub(crate) const COUNT: usize = 57;

pub(crate) const RECORDS: usize = 61;

/// A batch of `count` records without keys, with values of `value_bytes` bytes. The timestamps are
/// current, because retention may delete old records at any time.
pub(crate) fn batch(count: i32, value_bytes: usize) -> Vec<u8> {
    batch_with(count, &vec![b'v'; value_bytes])
}

/// A batch with the same value for all records.
pub(crate) fn batch_with(count: i32, value: &[u8]) -> Vec<u8> {
    keyed_batch(&vec![None; count as usize], value)
}

/// A batch of records with these keys, and the same value.
pub(crate) fn keyed_batch(keys: &[Option<&str>], value: &[u8]) -> Vec<u8> {
    let count = keys.len() as i32;
    let mut batch = vec![0; RECORDS];
    for (number, key) in keys.iter().enumerate() {
        let record = BatchRecord {
            offset_delta: number as i64,
            key: key.map(str::as_bytes),
            value: Some(value),
        };
        record.put(&mut batch);
    }
    let length = (batch.len() - MAGIC + 4) as i32;
    put(&mut batch, LENGTH, &length.to_be_bytes());
    put(&mut batch, LENGTH + 4, &(-1i32).to_be_bytes());
    put(&mut batch, MAGIC, &[2]);
    put(&mut batch, LAST_OFFSET_DELTA, &(count - 1).to_be_bytes());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("a time after 1970").as_millis() as i64;
    put(&mut batch, BASE_TIMESTAMP, &now.to_be_bytes());
    put(&mut batch, MAX_TIMESTAMP, &now.to_be_bytes());
    put(&mut batch, PRODUCER_ID, &(-1i64).to_be_bytes());
    put(&mut batch, PRODUCER_EPOCH, &(-1i16).to_be_bytes());
    put(&mut batch, BASE_SEQUENCE, &(-1i32).to_be_bytes());
    put(&mut batch, COUNT, &count.to_be_bytes());
    seal(&mut batch);
    batch
}

/// A batch of one record of an idempotent producer.
pub(crate) fn batch_of(producer_id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut batch = batch(1, 10);
    put(&mut batch, PRODUCER_ID, &producer_id.to_be_bytes());
    put(&mut batch, PRODUCER_EPOCH, &epoch.to_be_bytes());
    put(&mut batch, BASE_SEQUENCE, &sequence.to_be_bytes());
    seal(&mut batch);
    batch
}

/// A valid batch except that one field has other bytes, with a correct checksum.
pub(crate) fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch(3, 10);
    put(&mut batch, at, bytes);
    if at != CRC {
        seal(&mut batch);
    }
    batch
}

/// A message set of the formats before version 2: one message without a key.
pub(crate) fn old_message(magic: u8) -> Vec<u8> {
    let mut message = vec![0; 8 + 4 + 4];
    message.extend_from_slice(&[magic, 0]);
    if magic == 1 {
        message.extend_from_slice(&7i64.to_be_bytes());
    }
    message.extend_from_slice(&(-1i32).to_be_bytes());
    message.extend_from_slice(&5i32.to_be_bytes());
    message.extend_from_slice(b"value");
    let length = (message.len() - 12) as i32;
    put(&mut message, LENGTH, &length.to_be_bytes());
    message
}

pub(crate) fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES..]);
    put(batch, CRC, &crc.to_be_bytes());
}
