//! Reads and writes the header of a batch.

use crate::batch::framing::NO_TIMESTAMP;
use crate::position::OFFSET_MAX;

/// The size of a header, and of the smallest batch.
pub const HEADER_BYTES: usize = 61;

/// The size of the base offset and the length, which the length does not include.
pub(super) const PREFIX_BYTES: usize = 12;

/// The position in a batch from which the checksum covers the bytes.
pub(crate) const CRC_FROM: u64 = 21;

pub(super) const MAGIC: u8 = 2;
const CODEC: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
const DELETE_HORIZON: i16 = 1 << 6;

/// The header of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchHeader {
    /// The offset of the first record.
    pub base_offset: i64,
    /// The size of the whole batch, in bytes.
    pub size: usize,
    /// The epoch of the leader that appended it.
    pub leader_epoch: i32,
    /// The CRC-32C stated in the header.
    pub crc: u32,
    /// Codec, timestamp type, transactional and control bits.
    pub attributes: i16,
    /// The last offset relative to the first.
    pub last_offset_delta: i32,
    /// The timestamp that those of the records are relative to, in milliseconds since 1970: that of
    /// the first record, or the time from which compaction removes tombstones.
    pub base_timestamp: i64,
    /// The largest timestamp.
    pub max_timestamp: i64,
    /// The producer ID; −1 without idempotence.
    pub producer_id: i64,
    /// The producer epoch; −1 without idempotence.
    pub producer_epoch: i16,
    /// The sequence number of the first record; −1 without idempotence.
    pub base_sequence: i32,
    /// The number of records.
    pub count: i32,
}

/// The compression of the records of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Codec {
    /// No compression.
    None,
    /// Gzip, RFC 1952.
    Gzip,
    /// Snappy, with or without the block framing of Java's library.
    Snappy,
    /// LZ4, in the frame format.
    Lz4,
    /// Zstandard, RFC 8878.
    Zstd,
    /// A codec unknown to Kafka.
    Unknown,
}

impl BatchHeader {
    /// Reads the header of the batch at the start of `bytes`; `None` if they are too short or are
    /// not a batch.
    pub fn parse(bytes: &[u8]) -> Option<BatchHeader> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let length = i32::from_be_bytes(field(header, 8));
        let size = usize::try_from(length).ok()? + PREFIX_BYTES;
        let parsed = BatchHeader {
            base_offset: i64::from_be_bytes(field(header, 0)),
            size,
            leader_epoch: i32::from_be_bytes(field(header, 12)),
            crc: u32::from_be_bytes(field(header, 17)),
            attributes: i16::from_be_bytes(field(header, 21)),
            last_offset_delta: i32::from_be_bytes(field(header, 23)),
            base_timestamp: i64::from_be_bytes(field(header, 27)),
            max_timestamp: i64::from_be_bytes(field(header, 35)),
            producer_id: i64::from_be_bytes(field(header, 43)),
            producer_epoch: i16::from_be_bytes(field(header, 51)),
            base_sequence: i32::from_be_bytes(field(header, 53)),
            count: i32::from_be_bytes(field(header, 57)),
        };
        let is_one = header[16] == MAGIC
            && size >= HEADER_BYTES
            && (0..=OFFSET_MAX).contains(&parsed.base_offset)
            && parsed.last_offset_delta >= 0;
        is_one.then_some(parsed)
    }

    /// Returns the offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// Returns the offset after the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset() + 1
    }

    /// Whether the batch may follow others in the segment with this base: its offsets are `next` or
    /// later, and their distance from the base fits into 31 bits.
    pub(crate) fn is_within(&self, base: i64, next: i64) -> bool {
        self.base_offset >= next && self.last_offset() - base <= i64::from(i32::MAX)
    }

    /// Returns the compression of the records.
    pub fn codec(&self) -> Codec {
        match self.attributes & CODEC {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            _ => Codec::Unknown,
        }
    }

    /// Whether the timestamps are those of the append.
    pub fn has_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Whether the batch is a control batch, which marks the end of a transaction.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Returns the time from which compaction removes the tombstones of the batch, once it is set.
    pub(crate) fn delete_horizon(&self) -> Option<i64> {
        let is_set = self.attributes & DELETE_HORIZON != 0;
        is_set.then_some(self.base_timestamp)
    }

    /// Returns this header with a delete horizon, which is the base timestamp, too.
    pub(crate) fn with_delete_horizon(self, horizon: i64) -> BatchHeader {
        BatchHeader {
            attributes: self.attributes | DELETE_HORIZON,
            base_timestamp: horizon,
            ..self
        }
    }

    /// Returns the header of the batch without records. It keeps the offsets, the producer and its
    /// sequence numbers.
    pub(crate) fn without_records(self) -> BatchHeader {
        BatchHeader {
            size: HEADER_BYTES,
            attributes: self.attributes & !(CODEC | DELETE_HORIZON),
            base_timestamp: NO_TIMESTAMP,
            count: 0,
            ..self
        }
    }

    /// Returns the largest timestamp of the records; −1 if compaction has removed all of them.
    pub(crate) fn latest_timestamp(&self) -> i64 {
        match self.count {
            0 => NO_TIMESTAMP,
            _ => self.max_timestamp,
        }
    }

    /// Returns the sequence number of the last record.
    pub fn last_sequence(&self) -> i32 {
        add_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// Adds to a sequence number; sequence numbers wrap to 0 after the largest.
pub(crate) fn add_sequence(sequence: i32, delta: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(delta);
    (sum & i64::from(i32::MAX)) as i32
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&header[at..at + N]);
    field
}

pub(super) const MAX_TIMESTAMP_AT: usize = 35;

/// The size of a header up to the last field that a broker changes.
pub(crate) const WRITTEN_BYTES: usize = MAX_TIMESTAMP_AT + 8;

/// Returns the first bytes of a batch with this header.
pub(crate) fn written(header: &BatchHeader) -> [u8; WRITTEN_BYTES] {
    let length = (header.size - PREFIX_BYTES) as u32;
    let mut bytes = [0; WRITTEN_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &header.base_offset.to_be_bytes());
    put(8, &length.to_be_bytes());
    put(12, &header.leader_epoch.to_be_bytes());
    put(16, &[MAGIC]);
    put(17, &header.crc.to_be_bytes());
    put(21, &header.attributes.to_be_bytes());
    put(23, &header.last_offset_delta.to_be_bytes());
    put(27, &header.base_timestamp.to_be_bytes());
    put(MAX_TIMESTAMP_AT, &header.max_timestamp.to_be_bytes());
    bytes
}

/// Returns the whole header.
pub(super) fn encoded(header: &BatchHeader) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..WRITTEN_BYTES].copy_from_slice(&written(header));
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(43, &header.producer_id.to_be_bytes());
    put(51, &header.producer_epoch.to_be_bytes());
    put(53, &header.base_sequence.to_be_bytes());
    put(57, &header.count.to_be_bytes());
    bytes
}
