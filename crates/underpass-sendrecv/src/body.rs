//! Bodies of messages, from a connection into memory or a file.

use std::os::fd::AsFd;
use std::time::Duration;

use underpass::Account;
use underpass_http::body::chunked::{ChunkedReader, NextPart};
use underpass_http::status::HttpError;
use underpass_net::{Connection, ConnectionError, ReadOutcome, WhileDraining};

/// The time that framing may take to arrive.
const FRAMING_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a body was not read to its end.
#[derive(Debug)]
pub(crate) enum BodyReadError {
    /// It is malformed.
    Invalid(HttpError),
    /// The connection failed, or the file.
    Connection(ConnectionError),
}

impl From<ConnectionError> for BodyReadError {
    fn from(error: ConnectionError) -> BodyReadError {
        BodyReadError::Connection(error)
    }
}

/// The rest of a body.
#[derive(Debug)]
pub(crate) enum Body {
    /// A body of known length, of which so many bytes are left.
    Length(u64),
    Chunked(ChunkedReader),
}

impl Body {
    /// Returns the bytes of content that come next without framing between them; 0 at the end.
    pub(crate) async fn next(&mut self, connection: &mut Connection) -> Result<u64, BodyReadError> {
        let chunked = match self {
            Body::Length(left) => return Ok(*left),
            Body::Chunked(chunked) => chunked,
        };
        loop {
            let read = chunked.read_framing(connection.input());
            let (taken, next) = read.map_err(BodyReadError::Invalid)?;
            connection.consume(taken);
            match next {
                NextPart::Framing => {}
                NextPart::Payload(left) => return Ok(left),
                NextPart::End => return Ok(0),
            }
            connection.start_deadline(FRAMING_TIMEOUT);
            fill(connection).await?;
        }
    }

    /// Returns content that has arrived, waiting for some; empty at the end.
    /// [`consume`](Body::consume) takes it.
    pub(crate) async fn content<'c>(
        &mut self,
        connection: &'c mut Connection,
    ) -> Result<&'c [u8], BodyReadError> {
        let next = self.next(connection).await?;
        if next > 0 && connection.input().is_empty() {
            connection.start_deadline(FRAMING_TIMEOUT);
            fill(connection).await?;
        }
        let input = connection.input();
        let len = usize::try_from(next).map_or(input.len(), |next| next.min(input.len()));
        Ok(&input[..len])
    }

    /// Takes `count` bytes of what [`content`](Body::content) has returned.
    pub(crate) fn consume(&mut self, connection: &mut Connection, count: usize) {
        connection.consume(count);
        self.took(count as u64);
    }

    /// Moves `len` bytes of content, or those up to the end of the body, into a file. What arrived
    /// before an error is in the file, and counted in `account`.
    pub(crate) async fn move_to_file(
        &mut self,
        connection: &mut Connection,
        file: impl AsFd,
        (offset, len): (u64, u64),
        account: &mut Account,
    ) -> Result<u64, BodyReadError> {
        let mut moved = 0;
        while moved < len {
            let part = self.next(connection).await?.min(len - moved);
            if part == 0 {
                break;
            }
            let mut receiver = connection.file_receiver(file.as_fd(), offset + moved, part)?;
            let received = connection
                .receive_file(&mut receiver, WhileDraining::Continues)
                .await;
            let taken = part - receiver.left();
            self.took(taken);
            moved += taken;
            account.add(receiver.account());
            received?;
        }
        Ok(moved)
    }

    /// Reads the rest into memory.
    pub(crate) async fn text(
        &mut self,
        connection: &mut Connection,
        bytes_max: usize,
    ) -> Result<Vec<u8>, BodyReadError> {
        let mut text = Vec::new();
        loop {
            let content = self.content(connection).await?;
            let count = content.len();
            if count == 0 {
                return Ok(text);
            }
            let room = bytes_max.saturating_sub(text.len());
            text.extend_from_slice(&content[..count.min(room)]);
            if room < count {
                return Ok(text);
            }
            self.consume(connection, count);
        }
    }

    fn took(&mut self, bytes: u64) {
        match self {
            Body::Length(left) => *left -= bytes,
            Body::Chunked(chunked) => chunked.took(bytes),
        }
    }
}

pub(crate) async fn fill(connection: &mut Connection) -> Result<(), ConnectionError> {
    match connection.fill(WhileDraining::Continues).await? {
        ReadOutcome::Bytes(_) => Ok(()),
        ReadOutcome::End => Err(ConnectionError::PeerGone),
    }
}
