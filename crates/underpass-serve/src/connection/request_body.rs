//! Request bodies: nobody wants them yet, but where they end the next request begins.
//!
//! A short one is read and thrown away before the answer, so that a malformed one is noticed and
//! the connection can be kept. A long one is left where it is, and the connection ends.

use underpass::Piece;
use underpass_net::{Connection, ConnectionError, ReadOutcome, WhileDraining};

use crate::answer::reply::CONTINUE;
use crate::http::status::{Refusal, Status};
use crate::limits::Limits;
use crate::request::chunked::{Chunked, Reach};
use crate::request::framing::Framing;
use crate::request::head::{Expect, Request};
use crate::request::request_line::Method;

/// What to do about a request's body.
#[derive(Debug)]
pub(crate) enum Plan {
    /// There is none.
    Nothing,
    /// Read it to its end, then answer.
    Skip(Body),
    /// Answer at once and close.
    Leave,
}

/// A body being skipped.
#[derive(Debug)]
pub(crate) struct Body {
    extent: Extent,
    invitation: Invitation,
}

#[derive(Debug)]
enum Extent {
    Length(u64),
    Chunked(Chunked),
}

/// Whether the client waits to be asked for its body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Invitation {
    Awaited,
    Unneeded,
}

/// Why a body was not read to its end.
#[derive(Debug)]
pub(crate) enum Unskipped {
    /// It turned out longer than is worth reading.
    TooLong,
    /// It is malformed or did not come in time.
    Refused(Refusal),
    /// There is nobody to answer.
    Gone,
}

/// Decides about a request's body.
pub(crate) fn plan(request: &Request<'_>, limits: &Limits) -> Plan {
    let refused = !matches!(request.method, Method::Get | Method::Head | Method::Options);
    let extent = match request.framing {
        Framing::Empty => return Plan::Nothing,
        Framing::Length(length) if length > limits.drained_bytes_max => return Plan::Leave,
        Framing::Length(length) => Extent::Length(length),
        Framing::Chunked => Extent::Chunked(Chunked::new()),
    };
    let invitation = match request.expect {
        Expect::Unknown => return Plan::Leave,
        Expect::Continue if refused => return Plan::Leave,
        Expect::Continue => Invitation::Awaited,
        Expect::Nothing => Invitation::Unneeded,
    };
    Plan::Skip(Body { extent, invitation })
}

impl Body {
    /// Reads the body, which begins where the stream's input does, and throws it away.
    pub(crate) async fn skip(
        mut self,
        stream: &mut Connection,
        limits: &Limits,
    ) -> Result<(), Unskipped> {
        if self.invitation == Invitation::Awaited && stream.input().is_empty() {
            stream.outbox().push(Piece::Bytes(CONTINUE.to_vec()));
            stream.flush().await.map_err(|_| Unskipped::Gone)?;
        }
        stream.start_deadline(limits.body_timeout);
        loop {
            let (taken, reach) = self.read(stream.input(), limits)?;
            stream.consume(taken);
            if reach == Reach::End {
                return Ok(());
            }
            match stream.fill(WhileDraining::Continues).await {
                Ok(ReadOutcome::Bytes) => {}
                Err(ConnectionError::TimedOut) => return Err(Unskipped::Refused(LATE)),
                Ok(ReadOutcome::End) | Err(_) => return Err(Unskipped::Gone),
            }
        }
    }

    fn read(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, Reach), Unskipped> {
        match &mut self.extent {
            Extent::Length(left) => {
                let taken = input
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                match left {
                    0 => Ok((taken, Reach::End)),
                    _ => Ok((taken, Reach::Within)),
                }
            }
            Extent::Chunked(chunked) => {
                let read = chunked.read(input).map_err(Unskipped::Refused)?;
                match chunked.announced() > limits.drained_bytes_max {
                    true => Err(Unskipped::TooLong),
                    false => Ok(read),
                }
            }
        }
    }
}

const LATE: Refusal = Refusal::new(Status::RequestTimeout, "the body did not come in time");
