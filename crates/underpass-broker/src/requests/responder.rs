//! The frames of responses.

use underpass::{FileRange, Piece};

use crate::connection::response_queue::{PendingResponse, RequestOutcome};
use crate::protocol::apis::Api;
use crate::protocol::header::write_header;
use crate::protocol::wire::{Message, Wire};
use crate::protocol::{DecodeError, DecodeFault, Reader, Writer};

/// A request whose header was read.
pub(crate) struct Understood<'a> {
    /// The data that the response needs.
    pub(crate) responder: Responder,
    pub(crate) client_id: &'a str,
    pub(crate) body: Reader<'a>,
}

/// The data of a request that its response needs.
#[derive(Clone, Copy)]
pub(crate) struct Responder {
    pub(crate) api: &'static Api,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

/// The outcome of a request after its body was read.
pub(crate) enum BegunResponse {
    Made(RequestOutcome),
    /// The response waits for other events and no longer needs the request.
    Waits(PendingResponse),
}

impl<'a> Understood<'a> {
    /// Decodes the body. Ignores bytes after it, as Kafka does: librdkafka 2.12 leaves some after
    /// Metadata 13.
    pub(crate) fn body<M: Message<'a>>(&self) -> Result<M, DecodeError> {
        let mut from = self.body.clone();
        match M::version(self.responder.version) {
            Some(version) => M::read(&mut from, version),
            None => Err(from.error(DecodeFault::Version)),
        }
    }
}

impl Responder {
    /// Returns the frame of a response without gaps.
    pub(crate) fn whole<'r, M: Message<'r>>(self, response: &M) -> RequestOutcome {
        self.response(response, Vec::new())
    }

    /// Returns the frame of a response, with the file ranges that fill its gaps.
    pub(crate) fn response<'r, M: Message<'r>>(
        self,
        response: &M,
        ranges: Vec<FileRange>,
    ) -> RequestOutcome {
        let mut to = begun();
        write_header(&mut to, self.api, self.version, self.correlation_id);
        write(response, self.version, &mut to);
        framed(to, ranges)
    }
}

/// Starts a frame, with space for its length.
pub(crate) fn begun() -> Writer {
    let mut to = Writer::default();
    to.put(&[0; 4]);
    to
}

pub(crate) fn write<'r, M: Message<'r>>(response: &M, version: i16, to: &mut Writer) {
    if let Some(version) = M::version(version) {
        Wire::write(response, to, version);
    }
}

/// Returns the pieces of a frame: bytes, and file ranges between them.
pub(crate) fn framed(to: Writer, ranges: Vec<FileRange>) -> RequestOutcome {
    let Ok(length) = i32::try_from(to.length() - 4) else {
        tracing::warn!(
            "a response of {} bytes is not sent; the longest has 2 GiB",
            to.length()
        );
        return RequestOutcome::Close;
    };
    let (mut bytes, gaps) = to.into_parts();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    let mut pieces = Vec::with_capacity(2 * gaps.len() + 1);
    let mut behind = bytes.split_off(0);
    let mut cut = 0;
    for (gap, range) in gaps.iter().zip(ranges) {
        let rest = behind.split_off(gap.at - cut);
        cut = gap.at;
        pieces.push(Piece::Bytes(std::mem::replace(&mut behind, rest)));
        pieces.push(Piece::Range(range));
    }
    if !behind.is_empty() {
        pieces.push(Piece::Bytes(behind));
    }
    RequestOutcome::Frame(pieces)
}
