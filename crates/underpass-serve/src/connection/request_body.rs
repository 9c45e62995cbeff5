//! Request bodies. No method uses them yet, but the next request starts after them.
//!
//! A short body is read and discarded before the response, so that a malformed one is detected and
//! the connection can be kept. A long one is not read, and the connection is closed.

use underpass::Piece;
use underpass_net::{Connection, ConnectionError, ReadOutcome, WhileDraining};

use crate::answer::writer::CONTINUE;
use crate::http::status::{HttpError, Status};
use crate::limits::{DRAINED_BYTES_MAX, RequestLimits};
use crate::request::chunked::{BodyPosition, ChunkedReader};
use crate::request::head::{Expectation, Framing, RequestHead};
use crate::request::request_line::Method;

/// A body to be skipped.
#[derive(Debug)]
pub(crate) struct RequestBody {
    extent: BodyExtent,
    invitation: ContinueExpected,
}

#[derive(Debug)]
enum BodyExtent {
    Length(u64),
    Chunked(ChunkedReader),
}

/// Whether the client waits for a 100 response before it sends the body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ContinueExpected {
    Awaited,
    Unneeded,
}

/// The reason why a body was not read to its end.
#[derive(Debug)]
pub(crate) enum SkipError {
    /// It is longer than is worth reading.
    TooLong,
    /// It is malformed or did not arrive in time.
    Invalid(HttpError),
    /// The client is gone.
    Gone,
}

impl RequestBody {
    /// Returns the body of a request if it must be read before the response; otherwise the request
    /// is served immediately and the connection closed.
    pub(crate) fn to_skip(request: &RequestHead<'_>) -> Option<RequestBody> {
        let refused = !matches!(request.method, Method::Get | Method::Head | Method::Options);
        let extent = match request.framing {
            Framing::Empty => BodyExtent::Length(0),
            Framing::Length(length) if length > DRAINED_BYTES_MAX => return None,
            Framing::Length(length) => BodyExtent::Length(length),
            Framing::Chunked => BodyExtent::Chunked(ChunkedReader::new()),
        };
        let invitation = match request.expect {
            Expectation::Unknown => return None,
            Expectation::Continue if refused => return None,
            Expectation::Continue => ContinueExpected::Awaited,
            Expectation::Nothing => ContinueExpected::Unneeded,
        };
        Some(RequestBody { extent, invitation })
    }

    /// Reads the body, which starts at the stream's input, and discards it.
    pub(crate) async fn skip(
        mut self,
        stream: &mut Connection,
        limits: &RequestLimits,
    ) -> Result<(), SkipError> {
        if self.invitation == ContinueExpected::Awaited && stream.input().is_empty() {
            stream.outbox().push(Piece::Bytes(CONTINUE.to_vec()));
            stream.flush().await.map_err(|_| SkipError::Gone)?;
        }
        stream.start_deadline(limits.body_timeout);
        loop {
            let (taken, reach) = self.read(stream.input())?;
            stream.consume(taken);
            if reach == BodyPosition::End {
                return Ok(());
            }
            match stream.fill(WhileDraining::Continues).await {
                Ok(ReadOutcome::Bytes(_)) => {}
                Err(ConnectionError::TimedOut) => return Err(SkipError::Invalid(LATE)),
                Ok(ReadOutcome::End) | Err(_) => return Err(SkipError::Gone),
            }
        }
    }

    fn read(&mut self, input: &[u8]) -> Result<(usize, BodyPosition), SkipError> {
        match &mut self.extent {
            BodyExtent::Length(left) => {
                let taken = input
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                match left {
                    0 => Ok((taken, BodyPosition::End)),
                    _ => Ok((taken, BodyPosition::Within)),
                }
            }
            BodyExtent::Chunked(chunked) => {
                let read = chunked.read(input).map_err(SkipError::Invalid)?;
                match chunked.announced() > DRAINED_BYTES_MAX {
                    true => Err(SkipError::TooLong),
                    false => Ok(read),
                }
            }
        }
    }
}

const LATE: HttpError = HttpError::new(
    Status::RequestTimeout,
    "the request body was not received in time",
);
