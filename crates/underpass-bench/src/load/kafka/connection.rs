//! A connection that sends a request and waits for its response.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;

use super::batch::PreparedTopic;
use super::message::{self, ResponseReader, check_code, malformed};
use crate::error::{Error, Result};
use crate::load::transport::{ClientTransport, ServerAddress, wait};

/// A thousand partitions may take a while to be made.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// One receive of a response that is kept.
const RECEIVE_BYTES: usize = 256 << 10;

/// Bytes per fetch when content is compared.
const CHECKED_BYTES: i32 = 8 << 20;

pub(crate) struct BrokerConnection {
    pub(super) transport: ClientTransport,
}

impl BrokerConnection {
    /// Opens a connection, with a complete handshake where there is TLS.
    pub(crate) fn connect(address: &ServerAddress) -> Result<BrokerConnection> {
        let mut transport = ClientTransport::connect(address)?;
        transport.complete_handshake(RESPONSE_TIMEOUT)?;
        Ok(BrokerConnection { transport })
    }

    /// Sends a request and returns its response, with its size.
    pub(crate) fn call(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.transport.send(request)?;
        let mut frame = Vec::new();
        loop {
            let whole = frame_bytes(&frame)?;
            if whole == Some(frame.len()) {
                return Ok(frame);
            }
            let filled = frame.len();
            let room = whole.unwrap_or(4) - filled;
            frame.resize(filled + room.min(RECEIVE_BYTES), 0);
            let got = match self.transport.receive(&mut frame[filled..]) {
                Err(error) if error.would_block() => {
                    wait(self, PollFlags::IN, RESPONSE_TIMEOUT)?;
                    0
                }
                got => got?,
            };
            frame.truncate(filled + got);
        }
    }

    /// Waits until a broker has answered which versions it speaks.
    pub(crate) fn api_versions(&mut self) -> Result<()> {
        let frame = self.call(&message::api_versions())?;
        let code = ResponseReader::classic(&frame).and_then(|mut reader| reader.i16());
        check_code(code.ok_or_else(malformed)?, "ApiVersions")
    }

    /// Creates a topic by a request for it.
    pub(crate) fn create(&mut self, request: &[u8]) -> Result<()> {
        let frame = self.call(request)?;
        let code = || {
            let mut reader = ResponseReader::classic(&frame)?;
            reader.take(8)?;
            reader.string()?;
            reader.i16()
        };
        check_code(code().ok_or_else(malformed)?, "CreateTopics")
    }

    /// Whether every partition of a topic has a leader.
    pub(crate) fn has_leaders(&mut self, topic: &str, partitions: i32) -> Result<bool> {
        let frame = self.call(&message::metadata(topic))?;
        let leaders = || {
            let mut reader = ResponseReader::classic(&frame)?;
            for _ in 0..reader.i32()? {
                reader.i32()?;
                reader.string()?;
                reader.i32()?;
                reader.string()?;
            }
            // The controller, and one topic with its error.
            reader.take(8)?;
            reader.i16()?;
            reader.string()?;
            reader.take(1)?;
            let mut leaders = 0;
            for _ in 0..reader.i32()? {
                let (code, _, leader) = (reader.i16()?, reader.i32()?, reader.i32()?);
                leaders += i32::from(code == 0 && leader >= 0);
                for _ in 0..2 {
                    let nodes = usize::try_from(reader.i32()?).ok()?;
                    reader.take(4 * nodes)?;
                }
            }
            Some(leaders)
        };
        Ok(leaders().ok_or_else(malformed)? == partitions)
    }

    /// The end of every partition; `None` where a partition has no leader yet.
    pub(crate) fn end_offsets(&mut self, topic: &str, partitions: i32) -> Result<Option<Vec<i64>>> {
        let frame = self.call(&message::list_offsets(topic, partitions))?;
        let ends = || {
            let mut reader = ResponseReader::classic(&frame)?;
            reader.i32()?;
            reader.string()?;
            let mut ends = vec![0; usize::try_from(reader.i32()?).ok()?];
            for _ in 0..ends.len() {
                let index = usize::try_from(reader.i32()?).ok()?;
                let (code, _, end) = (reader.i16()?, reader.i64()?, reader.i64()?);
                *ends.get_mut(index)? = if code == 0 { end } else { -1 };
            }
            Some(ends)
        };
        let ends = ends().ok_or_else(malformed)?;
        Ok((!ends.contains(&-1)).then_some(ends))
    }

    /// Fetches every partition of a topic, and compares it with the produced records.
    pub(crate) fn check(&mut self, topic: &PreparedTopic) -> Result<()> {
        for partition in 0..topic.partitions {
            let mut next = 0;
            while next < topic.batches {
                let offset = next as i64 * topic.batch_records;
                let one = partition..partition + 1;
                let frame = self.call(&message::fetch(&topic.name, one, offset, CHECKED_BYTES))?;
                let records = records(&frame)?;
                let mut stored = records.chunks_exact(topic.batch_bytes());
                let is_produced = stored.by_ref().all(|stored| {
                    next += 1;
                    topic.is_batch(next - 1, stored)
                });
                if !is_produced || records.len() < topic.batch_bytes() {
                    let name = &topic.name;
                    return Err(Error::Answer(format!(
                        "{name}-{partition} has other records from {offset} on than were produced"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl AsFd for BrokerConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

/// The length of a response including its size field; `None` until that has arrived.
pub(super) fn frame_bytes(frame: &[u8]) -> Result<Option<usize>> {
    let Some(size) = frame.first_chunk() else {
        return Ok(None);
    };
    let size = usize::try_from(i32::from_be_bytes(*size));
    size.map(|size| Some(size + 4)).map_err(|_| malformed())
}

/// The records of the one partition in a response to Fetch.
fn records(frame: &[u8]) -> Result<&[u8]> {
    let read = || {
        let (code, _, mut reader) = message::fetched(frame)?;
        let (partition_code, length) = reader.fetched_partition()?;
        Some(([code, partition_code], reader.take(length)?))
    };
    let (codes, records) = read().ok_or_else(malformed)?;
    codes
        .into_iter()
        .try_for_each(|code| check_code(code, "Fetch"))?;
    Ok(records)
}
