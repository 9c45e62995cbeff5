//! Requests and responses, in the versions that are written down here.
//!
//! The versions are those that Kafka 4 and brokers like it have in common. Names and order of
//! fields are in Kafka's schemas.

use crate::error::{Error, Result};

const CLIENT_ID: &str = "underpass-bench";

/// The limit for a broker to wait.
const TIMEOUT_MS: i32 = 30_000;

/// The most that a response to Fetch holds, and how long it is waited for: what consumers have by
/// default.
const FETCH_BYTES_MAX: i32 = 50 << 20;
const FETCH_WAIT_MS: i32 = 500;

/// A request: its size, and a header with or without tagged fields.
struct RequestWriter(Vec<u8>);

impl RequestWriter {
    fn classic(key: i16, version: i16) -> RequestWriter {
        let mut bytes = vec![0; 4];
        bytes.extend(key.to_be_bytes());
        bytes.extend(version.to_be_bytes());
        bytes.extend(0_i32.to_be_bytes());
        RequestWriter(bytes).string(CLIENT_ID)
    }

    fn flexible(key: i16, version: i16) -> RequestWriter {
        RequestWriter::classic(key, version).zero()
    }

    fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn string(mut self, text: &str) -> Self {
        self = self.i16(text.len() as i16);
        self.0.extend(text.as_bytes());
        self
    }

    /// The length of a compact string or array, or of compact bytes.
    fn compact_length(mut self, length: usize) -> Self {
        push_unsigned(&mut self.0, length as u64 + 1);
        self
    }

    fn compact_bytes(mut self, bytes: &[u8]) -> Self {
        self = self.compact_length(bytes.len());
        self.0.extend(bytes);
        self
    }

    /// A byte for null, false, the least or no tagged fields.
    fn zero(mut self) -> Self {
        self.0.push(0);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let size = self.0.len() as i32 - 4;
        self.0[..4].copy_from_slice(&size.to_be_bytes());
        self.0
    }
}

pub(super) fn push_unsigned(to: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

pub(super) fn api_versions() -> Vec<u8> {
    RequestWriter::classic(18, 0).finish()
}

pub(super) fn metadata(topic: &str) -> Vec<u8> {
    RequestWriter::classic(3, 1).i32(1).string(topic).finish()
}

/// A request for a topic with one replica and these configurations.
pub(crate) fn create_topic(name: &str, partitions: i32, configs: &[(&str, &str)]) -> Vec<u8> {
    let topic = RequestWriter::classic(19, 2).i32(1).string(name);
    let topic = topic.i32(partitions).i16(1).i32(0);
    let topic = topic.i32(configs.len() as i32);
    let topic = configs.iter().fold(topic, |topic, (name, value)| {
        topic.string(name).string(value)
    });
    topic.i32(TIMEOUT_MS).zero().finish()
}

/// A request for the end of every partition.
pub(super) fn list_offsets(topic: &str, partitions: i32) -> Vec<u8> {
    let request = RequestWriter::classic(2, 1).i32(-1).i32(1).string(topic);
    let request = (0..partitions).fold(request.i32(partitions), |request, partition| {
        request.i32(partition).i64(-1)
    });
    request.finish()
}

pub(super) fn produce(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Vec<u8> {
    let request = RequestWriter::flexible(0, 9);
    // No transactional id.
    let request = request.zero().i16(acks).i32(TIMEOUT_MS);
    let request = request.compact_length(1).compact_bytes(topic.as_bytes());
    let request = request
        .compact_length(1)
        .i32(partition)
        .compact_bytes(batch);
    request.zero().zero().zero().finish()
}

/// A request for all these partitions from one offset on, without a session.
pub(super) fn fetch(
    topic: &str,
    partitions: std::ops::Range<i32>,
    offset: i64,
    slice_bytes: i32,
) -> Vec<u8> {
    let request = RequestWriter::flexible(1, 12).i32(-1);
    let request = request.i32(FETCH_WAIT_MS).i32(1).i32(FETCH_BYTES_MAX);
    let request = request.zero().i32(0).i32(-1);
    let request = request.compact_length(1).compact_bytes(topic.as_bytes());
    let request = request.compact_length(partitions.len());
    let request = partitions.fold(request, |request, partition| {
        let request = request.i32(partition).i32(-1).i64(offset).i32(-1).i64(-1);
        request.i32(slice_bytes).zero()
    });
    // No forgotten topics and no rack.
    let request = request.zero().compact_length(0).compact_bytes(b"");
    request.zero().finish()
}

/// Reads a response from its size on. A field behind its end is `None`.
pub(super) struct ResponseReader<'a>(&'a [u8]);

impl<'a> ResponseReader<'a> {
    /// Behind the correlation id.
    pub(super) fn classic(frame: &'a [u8]) -> Option<ResponseReader<'a>> {
        let mut reader = ResponseReader(frame);
        reader.take(8)?;
        Some(reader)
    }

    pub(super) fn flexible(frame: &'a [u8]) -> Option<ResponseReader<'a>> {
        let mut reader = ResponseReader::classic(frame)?;
        reader.tags()?;
        Some(reader)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Skips a string, which may be null.
    pub(super) fn string(&mut self) -> Option<()> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        self.take(length).map(drop)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Some(value)
    }

    /// The length of a compact field; 0 if it is null.
    fn compact_length(&mut self) -> Option<usize> {
        usize::try_from(self.unsigned()?.saturating_sub(1)).ok()
    }

    fn compact_string(&mut self) -> Option<()> {
        let length = self.compact_length()?;
        self.take(length).map(drop)
    }

    /// The error of a partition in a response to Fetch, and the length of the records that follow.
    pub(super) fn fetched_partition(&mut self) -> Option<(i16, usize)> {
        self.i32()?;
        let code = self.i16()?;
        self.take(3 * 8)?;
        // No aborted transactions.
        self.compact_length()?;
        self.i32()?;
        Some((code, self.compact_length()?))
    }

    pub(super) fn tags(&mut self) -> Option<()> {
        for _ in 0..self.unsigned()? {
            self.unsigned()?;
            let length = usize::try_from(self.unsigned()?).ok()?;
            self.take(length)?;
        }
        Some(())
    }
}

pub(super) fn malformed() -> Error {
    Error::Answer("a response that is cut off or malformed".into())
}

/// An error by the number that Kafka's protocol has for it.
pub(super) fn check_code(code: i16, what: &str) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::Answer(format!("{what}: error {code}"))),
    }
}

/// The error of a response to Produce.
pub(super) fn produced(frame: &[u8]) -> Result<()> {
    let code = || {
        let mut reader = ResponseReader::flexible(frame)?;
        reader.compact_length()?;
        reader.compact_string()?;
        reader.compact_length()?;
        reader.i32()?;
        reader.i16()
    };
    check_code(code().ok_or_else(malformed)?, "Produce")
}

/// The error code, the number of partitions and the rest of a response to Fetch; `None` if it is
/// incomplete.
pub(super) fn fetched(frame: &[u8]) -> Option<(i16, usize, ResponseReader<'_>)> {
    let mut reader = ResponseReader::flexible(frame)?;
    reader.i32()?;
    let code = reader.i16()?;
    reader.i32()?;
    reader.compact_length()?;
    reader.compact_string()?;
    let partitions = reader.compact_length()?;
    Some((code, partitions, reader))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_size_and_its_fields() {
        let request = fetch("t", 0..2, 7, 1024);
        let size = i32::from_be_bytes(request[..4].try_into().unwrap());
        assert_eq!(size as usize, request.len() - 4);
        assert_eq!(request[4..8], [0, 1, 0, 12]);
        let offsets = request
            .windows(8)
            .filter(|bytes| **bytes == 7_i64.to_be_bytes());
        assert_eq!(offsets.count(), 2);
    }

    #[test]
    fn what_is_cut_off_is_no_response() {
        let frame = [[0; 8].as_slice(), &[0], &[2, 2, b't', 2], &[0; 4], &[0, 3]].concat();
        for length in 0..frame.len() {
            let cut = produced(&frame[..length]).unwrap_err();
            assert!(cut.to_string().contains("cut off"), "{length}: {cut}");
        }
        assert!(
            produced(&frame)
                .unwrap_err()
                .to_string()
                .contains("error 3")
        );
    }
}
