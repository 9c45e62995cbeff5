//! Request bodies. No method uses them yet, but the next request starts after them.
//!
//! A short body is read and discarded before the response, so that a malformed one is detected and
//! the connection can be kept. A long one is not read, and the connection is closed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass::drive::tokio::FileReceiver;
use underpass::{Account, Mechanism, Piece};
use underpass_http::body::chunked::{BodyPosition, ChunkedReader, NextPart};
use underpass_http::body::framing::Framing;
use underpass_http::request::head::{Expectation, RequestHead};
use underpass_http::request::request_line::Method;
use underpass_http::status::{HttpError, Status};
use underpass_net::{Connection, ConnectionError, InboundRate, ReadOutcome, WhileDraining};

use crate::answer::writer::CONTINUE;
use crate::limits::{DRAINED_BYTES_MAX, RequestLimits};

/// A body to be skipped.
#[derive(Debug)]
pub(crate) struct RequestBody {
    extent: BodyExtent,
    invitation: ContinueExpected,
    /// The part of it that is being received into a file.
    part: Option<FileReceiver>,
    /// How the parts before it were received.
    account: Account,
}

/// A body is longer than there is room for. What was received is in the file.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    TooLong,
    /// It is malformed.
    Invalid(HttpError),
    /// The connection failed, or the file.
    Connection(ConnectionError),
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
        Some(RequestBody::new(extent, invitation))
    }

    fn new(extent: BodyExtent, invitation: ContinueExpected) -> RequestBody {
        RequestBody {
            extent,
            invitation,
            part: None,
            account: Account::default(),
        }
    }

    /// The body of a request, which may be wanted.
    pub(crate) fn of(request: &RequestHead<'_>) -> RequestBody {
        let extent = match request.framing {
            Framing::Empty => BodyExtent::Length(0),
            Framing::Length(length) => BodyExtent::Length(length),
            Framing::Chunked => BodyExtent::Chunked(ChunkedReader::new()),
        };
        let invitation = match (request.expect, request.framing) {
            (_, Framing::Empty) | (Expectation::Nothing | Expectation::Unknown, _) => {
                ContinueExpected::Unneeded
            }
            (Expectation::Continue, _) => ContinueExpected::Awaited,
        };
        RequestBody::new(extent, invitation)
    }

    /// The length of what has not been received, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.extent {
            BodyExtent::Length(left) => Some(*left - self.part_bytes()),
            BodyExtent::Chunked(chunked) if chunked.is_done() => Some(0),
            BodyExtent::Chunked(_) => None,
        }
    }

    /// Whether nothing of it was asked for or received, and the client waits to be asked.
    pub(crate) fn is_withheld(&self) -> bool {
        self.invitation == ContinueExpected::Awaited
    }

    fn part_bytes(&self) -> u64 {
        let part = self.part.as_ref();
        part.map_or(0, |part| part.account().bytes())
    }

    /// How it was received so far.
    pub(crate) fn account(&self) -> Account {
        let mut account = self.account.clone();
        if let Some(part) = &self.part {
            account.add(part.account());
        }
        account
    }

    /// Asks for the body, if the client waits for that.
    pub(crate) async fn invite(&mut self, stream: &mut Connection) -> Result<(), ConnectionError> {
        let awaited = self.invitation == ContinueExpected::Awaited;
        self.invitation = ContinueExpected::Unneeded;
        if awaited && stream.input().is_empty() {
            stream.outbox().push(Piece::Bytes(CONTINUE.to_vec()));
            stream.flush().await?;
        }
        Ok(())
    }

    /// Receives the rest of the body into `file` from `offset` on, at most `bytes_max` bytes. A
    /// future that is dropped takes nothing with it but the rest of the body: what arrived is in
    /// the file and in the account, and the connection is to be closed.
    pub(crate) async fn receive(
        &mut self,
        stream: &mut Connection,
        limits: &RequestLimits,
        file: &Arc<OwnedFd>,
        (offset, bytes_max): (u64, u64),
    ) -> Result<(), ReceiveError> {
        self.invite(stream)
            .await
            .map_err(ReceiveError::Connection)?;
        loop {
            let left = self.framed(stream, limits).await?;
            let received = self.account.bytes();
            if left > bytes_max.saturating_sub(received) {
                return Err(ReceiveError::TooLong);
            }
            if left == 0 {
                return Ok(());
            }
            let part = stream.file_receiver(file, offset + received, left);
            let part = self.part.insert(part.map_err(ReceiveError::Connection)?);
            let done = stream.receive_file(part, WhileDraining::Continues).await;
            let part = self.part.take().map(FileReceiver::into_account);
            let part = part.unwrap_or_default();
            self.took(part.bytes());
            self.account.add(&part);
            done.map_err(ReceiveError::Connection)?;
        }
    }

    /// Receives content into `buffer` until that has `bytes_max` bytes or the body ends, and
    /// returns whether it has ended.
    pub(crate) async fn read_into(
        &mut self,
        stream: &mut Connection,
        limits: &RequestLimits,
        rate: &mut InboundRate,
        (buffer, bytes_max): (&mut Vec<u8>, usize),
    ) -> Result<BodyPosition, ReceiveError> {
        self.invite(stream)
            .await
            .map_err(ReceiveError::Connection)?;
        while buffer.len() < bytes_max {
            let left = self.framed(stream, limits).await?;
            if left == 0 {
                return Ok(BodyPosition::End);
            }
            if stream.input().is_empty() {
                let filled = stream.fill_at_rate(rate, WhileDraining::Continues).await;
                match filled.map_err(ReceiveError::Connection)? {
                    ReadOutcome::Bytes(_) => {}
                    ReadOutcome::End => {
                        return Err(ReceiveError::Connection(ConnectionError::PeerGone));
                    }
                }
            }
            let input = stream.input();
            let taken = input.len().min(bytes_max - buffer.len());
            let taken = taken.min(usize::try_from(left).unwrap_or(usize::MAX));
            buffer.extend_from_slice(&input[..taken]);
            stream.consume(taken);
            self.took(taken as u64);
            self.account.record(Mechanism::ReadWrite, taken as u64, 1);
        }
        Ok(BodyPosition::Within)
    }

    /// Notes that content was received.
    fn took(&mut self, bytes: u64) {
        match &mut self.extent {
            BodyExtent::Length(left) => *left -= bytes,
            BodyExtent::Chunked(chunked) => chunked.took(bytes),
        }
    }

    /// Ends a dropped call of [`receive`](Self::receive), so that another one continues: the file
    /// has everything that was taken from the connection. Returns the bytes of content so far.
    ///
    /// # Errors
    /// `Connection` with `Move` if the file cannot be written.
    pub(crate) async fn pause(&mut self, stream: &Connection) -> Result<u64, ReceiveError> {
        if let Some(mut part) = self.part.take() {
            let settled = stream.settle_file(&mut part).await;
            let account = part.into_account();
            self.took(account.bytes());
            self.account.add(&account);
            settled.map_err(ReceiveError::Connection)?;
        }
        Ok(self.account.bytes())
    }

    /// Waits until the file has everything that a dropped call of [`receive`](Self::receive) has
    /// taken from the connection. A failure to write shows in the account.
    pub(crate) async fn settle(&mut self, stream: &Connection) {
        if let Some(part) = &mut self.part {
            let _ = stream.settle_file(part).await;
        }
    }

    /// Reads the framing before the next bytes of content, and returns how many these are; 0 at the
    /// end of the body.
    async fn framed(
        &mut self,
        stream: &mut Connection,
        limits: &RequestLimits,
    ) -> Result<u64, ReceiveError> {
        let chunked = match &mut self.extent {
            BodyExtent::Length(left) => return Ok(*left),
            BodyExtent::Chunked(chunked) => chunked,
        };
        stream.start_deadline(limits.body_timeout);
        loop {
            let read = chunked.read_framing(stream.input());
            let (taken, next) = read.map_err(ReceiveError::Invalid)?;
            stream.consume(taken);
            match next {
                NextPart::Framing => {}
                NextPart::Payload(left) => return Ok(left),
                NextPart::End => return Ok(0),
            }
            match stream.fill(WhileDraining::Continues).await {
                Ok(ReadOutcome::Bytes(_)) => {}
                Ok(ReadOutcome::End) => {
                    return Err(ReceiveError::Connection(ConnectionError::PeerGone));
                }
                Err(error) => return Err(ReceiveError::Connection(error)),
            }
        }
    }

    /// Reads the body, which starts at the stream's input, and discards it.
    pub(crate) async fn skip(
        mut self,
        stream: &mut Connection,
        limits: &RequestLimits,
    ) -> Result<(), SkipError> {
        self.invite(stream).await.map_err(|_| SkipError::Gone)?;
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
