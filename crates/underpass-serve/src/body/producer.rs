//! A body that is made while it is sent: nobody knows its length, and it need not fit into memory.
//!
//! ```text
//!   outbox empty ─► Feed::next, on a blocking thread ─► Batch ─► one chunk ─► outbox ─► flush ─┐
//!        ▲                                                                                     │
//!        └─────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A batch is bytes and ranges of files, and leaves as one chunk (RFC 9112, section 7.1); towards a
//! client of HTTP/1.0 as it is, and the end of the connection is the end of the body. The next
//! batch is made when the last one has left, so a slow client costs the memory of one, and with a
//! client that goes away the work ends. What goes wrong in the middle ends the connection with a
//! reset: no part of a body ever looks like a whole one.

use std::fmt;
use std::io;

use underpass::{FileRange, Outbox, Piece};
use underpass_net::{Connection, ConnectionError};

use crate::limits::BATCH_BYTES_MAX;
use crate::request::request_line::HttpVersion;

/// What makes a body, piece by piece.
pub(crate) trait BodyProducer: fmt::Debug + Send {
    /// Adds the next pieces to a batch. It may wait for disks, and stops when the batch is full or
    /// after a bounded amount of work, whatever it has come to.
    ///
    /// # Errors
    /// The body cannot be completed.
    fn next(&mut self, batch: &mut Chunk) -> io::Result<BodyProgress>;

    /// How the body comes about, for those who debug.
    fn made(&self) -> &'static str {
        "made in memory while it is sent"
    }
}

/// Whether a body goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyProgress {
    More,
    End,
}

/// How a client learns where the body ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyDelimiter {
    /// By a chunk of no length.
    LastChunk,
    /// By the end of the connection.
    Close,
}

impl BodyDelimiter {
    pub(crate) fn of(version: HttpVersion) -> BodyDelimiter {
        match version {
            HttpVersion::Http11 => BodyDelimiter::LastChunk,
            HttpVersion::Http10 => BodyDelimiter::Close,
        }
    }
}

/// Pieces that leave together, in order.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The first one is bytes and begins with room for the chunk's size.
    pieces: Vec<Piece>,
}

/// Room for a chunk's size of 16 digits and its line end.
const SIZE_LINE_BYTES: usize = 18;

impl Chunk {
    pub(crate) fn new() -> Chunk {
        Chunk {
            pieces: vec![Piece::Bytes(vec![0; SIZE_LINE_BYTES])],
        }
    }

    /// The bytes that stand last, to add some.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        if !matches!(self.pieces.last(), Some(Piece::Bytes(_))) {
            self.pieces.push(Piece::Bytes(Vec::new()));
        }
        match self.pieces.last_mut() {
            Some(Piece::Bytes(bytes)) => bytes,
            _ => unreachable!("bytes were pushed"),
        }
    }

    pub(crate) fn push_range(&mut self, range: FileRange) {
        if range.len > 0 {
            self.pieces.push(Piece::Range(range));
        }
    }

    /// Ranges in it: each holds a file open.
    pub(crate) fn ranges(&self) -> usize {
        let is_range = |piece: &&Piece| matches!(piece, Piece::Range(_));
        self.pieces.iter().filter(is_range).count()
    }

    /// Whether so much memory is taken that it should leave.
    pub(crate) fn is_full(&self) -> bool {
        let in_memory = |piece: &Piece| match piece {
            Piece::Bytes(bytes) | Piece::Joined { bytes, .. } => bytes.len(),
            Piece::Range(_) => 0,
        };
        self.pieces.iter().map(in_memory).sum::<usize>() >= BATCH_BYTES_MAX
    }

    /// The pieces, for those who send them as something else.
    pub(crate) fn into_pieces(mut self) -> Vec<Piece> {
        if let Some(Piece::Bytes(first)) = self.pieces.first_mut() {
            first.drain(..SIZE_LINE_BYTES);
        }
        self.pieces
    }

    fn length(&self) -> u64 {
        let length = |piece: &Piece| match piece {
            Piece::Bytes(bytes) | Piece::Joined { bytes, .. } => bytes.len() as u64,
            Piece::Range(range) => range.len,
        };
        self.pieces.iter().map(length).sum::<u64>() - SIZE_LINE_BYTES as u64
    }

    /// Puts it into the outbox, as a chunk where chunks are spoken. An empty one is none: a chunk
    /// of no length would be the end.
    fn frame(mut self, delimiter: BodyDelimiter, progress: BodyProgress, outbox: &mut Outbox) {
        let length = self.length();
        if delimiter == BodyDelimiter::LastChunk {
            let end: &[u8] = match (length, progress) {
                (0, BodyProgress::More) => b"",
                (0, BodyProgress::End) => b"0\r\n\r\n",
                (_, BodyProgress::More) => b"\r\n",
                (_, BodyProgress::End) => b"\r\n0\r\n\r\n",
            };
            self.bytes().extend_from_slice(end);
        }
        let size_line = match (delimiter, length) {
            (BodyDelimiter::Close, _) | (_, 0) => String::new(),
            (BodyDelimiter::LastChunk, length) => format!("{length:x}\r\n"),
        };
        if let Some(Piece::Bytes(first)) = self.pieces.first_mut() {
            let unused = SIZE_LINE_BYTES - size_line.len();
            first[unused..SIZE_LINE_BYTES].copy_from_slice(size_line.as_bytes());
            first.drain(..unused);
        }
        for piece in self.pieces {
            outbox.push(piece);
        }
    }
}

/// A body on its way.
#[derive(Debug)]
pub(crate) struct ProducedBody {
    feed: Box<dyn BodyProducer>,
    delimiter: BodyDelimiter,
    /// What is sent, for those who have to tell that it failed.
    pub(crate) what: String,
}

/// Why a body is not complete.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It could not be made.
    Source(io::Error),
    /// It could not be sent.
    Connection(ConnectionError),
}

impl From<ConnectionError> for BodyError {
    fn from(error: ConnectionError) -> BodyError {
        BodyError::Connection(error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Source(error) => error.fmt(f),
            BodyError::Connection(error) => error.fmt(f),
        }
    }
}

impl ProducedBody {
    /// A body that begins with `opening`, which follows the head into the outbox.
    pub(crate) fn new(
        feed: Box<dyn BodyProducer>,
        opening: Chunk,
        delimiter: BodyDelimiter,
        what: String,
        outbox: &mut Outbox,
    ) -> ProducedBody {
        opening.frame(delimiter, BodyProgress::More, outbox);
        ProducedBody {
            feed,
            delimiter,
            what,
        }
    }

    /// See [`BodyProducer::made`].
    pub(crate) fn made(&self) -> &'static str {
        self.feed.made()
    }

    pub(crate) fn delimiter(&self) -> BodyDelimiter {
        self.delimiter
    }

    /// Sends what the outbox has and then the body.
    pub(crate) async fn send(&mut self, stream: &mut Connection) -> Result<(), BodyError> {
        // A feed is on a blocking thread while it works and here while it is sent.
        let mut feed = std::mem::replace(&mut self.feed, Box::new(EmptyBody));
        loop {
            stream.flush().await?;
            let work = tokio::task::spawn_blocking(move || {
                let mut batch = Chunk::new();
                let progress = feed.next(&mut batch);
                (feed, batch, progress)
            });
            let (back, batch, progress) = work
                .await
                .map_err(|error| BodyError::Source(io::Error::other(error)))?;
            feed = back;
            let progress = progress.map_err(BodyError::Source)?;
            batch.frame(self.delimiter, progress, stream.outbox());
            if progress == BodyProgress::End {
                return Ok(stream.flush().await?);
            }
        }
    }
}

/// What stands in for a feed that is at work.
#[derive(Debug)]
struct EmptyBody;

impl BodyProducer for EmptyBody {
    fn next(&mut self, _: &mut Chunk) -> io::Result<BodyProgress> {
        Ok(BodyProgress::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(content: &[u8], delimiter: BodyDelimiter, progress: BodyProgress) -> String {
        let mut batch = Chunk::new();
        batch.bytes().extend_from_slice(content);
        let mut outbox = Outbox::new();
        batch.frame(delimiter, progress, &mut outbox);
        format!("{outbox:?}")
    }

    fn bytes(expected: &[u8]) -> String {
        let mut outbox = Outbox::new();
        outbox.push(Piece::Bytes(expected.to_vec()));
        format!("{outbox:?}")
    }

    #[test]
    fn a_batch_is_a_chunk_and_an_empty_one_is_none() {
        use {BodyDelimiter::*, BodyProgress::*};
        for (content, delimiter, progress, expected) in [
            (&b"hello"[..], LastChunk, More, &b"5\r\nhello\r\n"[..]),
            (b"hello", LastChunk, End, b"5\r\nhello\r\n0\r\n\r\n"),
            (b"", LastChunk, More, b""),
            (b"", LastChunk, End, b"0\r\n\r\n"),
            (b"hello", Close, More, b"hello"),
            (b"hello", Close, End, b"hello"),
            (b"", Close, End, b""),
        ] {
            assert_eq!(framed(content, delimiter, progress), bytes(expected));
        }
    }

    #[test]
    fn sizes_are_hexadecimal() {
        let content = vec![b'x'; 4096];
        let expected = [b"1000\r\n", &content[..], b"\r\n"].concat();
        let framed = framed(&content, BodyDelimiter::LastChunk, BodyProgress::More);
        assert_eq!(framed, bytes(&expected));
    }
}
