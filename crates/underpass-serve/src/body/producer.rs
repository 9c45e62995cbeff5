//! A body that is produced while it is sent: its length is unknown, and it need not fit into
//! memory.
//!
//! ```text
//!   outbox empty ─► BodyProducer::next, on a blocking thread ─► Chunk ─► outbox ─► flush ─┐
//!        ▲          (a turn first, if it takes processor time)                            │
//!        └────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Bodies take turns: a step is short, and after it a body queues behind all that are waiting.
//! Steps that take processor time leave most threads of a worker to those that wait for disks, so
//! that a listing overtakes sixteen files that are being compressed.
//!
//! A chunk consists of bytes and ranges of files, and is sent as one chunk of the chunked coding
//! (RFC 9112, section 7.1); to an HTTP/1.0 client it is sent unframed, and the end of the
//! connection is the end of the body. The next chunk is produced after the previous one has been
//! sent, so a slow client costs the memory of one, and no work is done for a client that is gone.
//! An error resets the connection: a truncated body never looks complete.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;
use underpass::{FileRange, Outbox, Piece};
use underpass_http::version::HttpVersion;
use underpass_net::{Connection, ConnectionError, DescriptorReservation};

use crate::limits::BATCH_BYTES_MAX;

/// A producer of a body, chunk by chunk.
pub(crate) trait BodyProducer: fmt::Debug + Send {
    /// Adds the next pieces to `chunk`, if any are ready. Returns when the chunk is full or after a
    /// bounded amount of work of the kind that [`work`](BodyProducer::work) has announced.
    ///
    /// # Errors
    /// The body cannot be completed.
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress>;

    /// Returns the kind of work of the next step.
    fn work(&self) -> Work {
        Work::Disk
    }

    /// Describes how the body is produced, for debugging.
    fn made(&self) -> &'static str {
        "produced in memory while it is sent"
    }
}

/// The kind of work of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Work {
    /// Reads that may wait for a disk.
    Disk,
    /// Computation that waits for nothing.
    Processor,
}

/// Whether a body has more to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyProgress {
    More,
    End,
}

/// The delimiter that ends a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyDelimiter {
    /// An empty chunk.
    LastChunk,
    /// The end of the connection.
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

/// Pieces that are sent together, in order.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The first piece is bytes and starts with space for the chunk size line.
    pieces: Vec<Piece>,
}

/// Space for a chunk size of 16 digits and its line end.
const SIZE_LINE_BYTES: usize = 18;

impl Chunk {
    pub(crate) fn new() -> Chunk {
        Chunk {
            pieces: vec![Piece::Bytes(vec![0; SIZE_LINE_BYTES])],
        }
    }

    /// Returns the last bytes, to append to.
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

    /// Returns the number of ranges; each holds a file open.
    pub(crate) fn ranges(&self) -> usize {
        let is_range = |piece: &&Piece| matches!(piece, Piece::Range(_));
        self.pieces.iter().filter(is_range).count()
    }

    /// Whether the chunk holds enough memory to be sent.
    pub(crate) fn is_full(&self) -> bool {
        let in_memory = self.pieces.iter().map(|piece| piece.bytes().len());
        in_memory.sum::<usize>() >= BATCH_BYTES_MAX
    }

    /// Returns the pieces that are not empty, to be sent in another form.
    pub(crate) fn into_pieces(mut self) -> Vec<Piece> {
        if let Some(Piece::Bytes(first)) = self.pieces.first_mut() {
            first.drain(..SIZE_LINE_BYTES);
        }
        self.pieces.retain(|piece| !piece.is_empty());
        self.pieces
    }

    fn length(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum::<u64>() - SIZE_LINE_BYTES as u64
    }

    /// Puts the chunk into the outbox, framed if the client supports it. An empty chunk is omitted:
    /// it would end the body.
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

/// A body that is ready to be produced, and the fields of its head.
#[derive(Debug)]
pub(crate) struct StartedBody {
    pub(crate) producer: Box<dyn BodyProducer>,
    /// The part that is known before a disk is read.
    pub(crate) opening: Chunk,
    /// All fields except the general ones, each preceded by a line break.
    pub(crate) fields: Vec<u8>,
    /// A description of the body, for messages about failures.
    pub(crate) what: String,
    /// The descriptors that the body needs in addition to one.
    pub(crate) reserved: Option<DescriptorReservation>,
}

/// A body in transmission.
#[derive(Debug)]
pub(crate) struct ProducedBody {
    producer: Box<dyn BodyProducer>,
    delimiter: BodyDelimiter,
    /// A description of the body, for messages about failures.
    pub(crate) what: String,
    /// Released when the body has ended.
    reserved: Option<DescriptorReservation>,
}

/// The reason why a body is incomplete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Producing it failed.
    #[error("{0}")]
    Source(io::Error),
    /// Sending it failed.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
}

impl ProducedBody {
    /// Puts the opening into the outbox, after the head.
    pub(crate) fn new(
        started: StartedBody,
        delimiter: BodyDelimiter,
        outbox: &mut Outbox,
    ) -> ProducedBody {
        started.opening.frame(delimiter, BodyProgress::More, outbox);
        ProducedBody {
            producer: started.producer,
            delimiter,
            what: started.what,
            reserved: started.reserved,
        }
    }

    /// See [`BodyProducer::made`].
    pub(crate) fn made(&self) -> &'static str {
        self.producer.made()
    }

    /// Sends the outbox and then the body; steps that take processor time wait for one of `turns`.
    /// Returns how the body was delimited: by a chunk, or by the end of the connection.
    pub(crate) async fn send(
        self,
        connection: &mut Connection,
        turns: &Arc<Semaphore>,
    ) -> Result<BodyDelimiter, BodyError> {
        let (mut producer, delimiter) = (self.producer, self.delimiter);
        let _reserved = self.reserved;
        loop {
            connection.flush().await?;
            let stepped = step(producer, turns).await.map_err(BodyError::Source)?;
            let (back, chunk, progress) = stepped;
            producer = back;
            chunk.frame(delimiter, progress, connection.outbox());
            if progress == BodyProgress::End {
                connection.flush().await?;
                return Ok(delimiter);
            }
        }
    }
}

/// Runs one step of a body. The producer is on a blocking thread while it works, and back here
/// while its chunk is sent.
async fn step(
    mut producer: Box<dyn BodyProducer>,
    turns: &Arc<Semaphore>,
) -> io::Result<(Box<dyn BodyProducer>, Chunk, BodyProgress)> {
    // The semaphore is fair: the next turn goes to the body that has waited longest.
    let turn = match producer.work() {
        Work::Disk => None,
        Work::Processor => Some(Arc::clone(turns).acquire_owned().await),
    };
    let work = tokio::task::spawn_blocking(move || {
        let mut chunk = Chunk::new();
        let progress = producer.next(&mut chunk);
        // The turn ends when the result is taken, so that no other body gets ahead before this one
        // waits again; or here, if the client has disconnected and the result is dropped.
        (progress.map(|progress| (producer, chunk, progress)), turn)
    });
    let (stepped, _turn) = work.await.map_err(io::Error::other)?;
    stepped
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::limits::{COMPRESSING_MAX, COMPRESSIONS_MAX};

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

    /// Makes steps of one kind, each once it is allowed to, and records its number.
    #[derive(Debug)]
    struct Steps {
        number: usize,
        work: Work,
        left: usize,
        allowed: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
        made: Arc<Mutex<Vec<usize>>>,
    }

    impl BodyProducer for Steps {
        fn next(&mut self, _: &mut Chunk) -> io::Result<BodyProgress> {
            if let Some(allowed) = &self.allowed {
                let _ended = allowed.lock().unwrap().recv();
            }
            self.made.lock().unwrap().push(self.number);
            self.left -= 1;
            Ok(match self.left {
                0 => BodyProgress::End,
                _ => BodyProgress::More,
            })
        }

        fn work(&self) -> Work {
            self.work
        }
    }

    async fn run(steps: Steps, turns: Arc<Semaphore>) {
        let mut producer: Box<dyn BodyProducer> = Box::new(steps);
        loop {
            let (back, _, progress) = step(producer, &turns).await.unwrap();
            producer = back;
            if progress == BodyProgress::End {
                return;
            }
        }
    }

    /// Runs a test with as many blocking threads as a worker has.
    fn block_on(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(8).build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn a_listing_passes_bodies_that_are_being_compressed() {
        block_on(async {
            let turns = Arc::new(Semaphore::new(COMPRESSING_MAX));
            let made = Arc::new(Mutex::default());
            let (allow, allowed) = mpsc::channel();
            let allowed = Arc::new(Mutex::new(allowed));
            let body = |number, work, allowed| Steps {
                number,
                work,
                left: 10,
                allowed,
                made: Arc::clone(&made),
            };
            let start = |steps| tokio::task::spawn_local(run(steps, Arc::clone(&turns)));
            let compressed: Vec<_> = (1..=COMPRESSIONS_MAX)
                .map(|number| start(body(number, Work::Processor, Some(Arc::clone(&allowed)))))
                .collect();
            // They have started, and none continues before the listing is complete.
            while turns.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            start(body(0, Work::Disk, None)).await.unwrap();
            assert_eq!(*made.lock().unwrap(), [0; 10]);
            drop(allow);
            for task in compressed {
                task.await.unwrap();
            }
            assert_eq!(made.lock().unwrap().len(), 10 * (1 + COMPRESSIONS_MAX));
        });
    }

    #[test]
    fn bodies_that_are_compressed_take_turns() {
        const BODIES: usize = 5;
        block_on(async {
            let turns = Arc::new(Semaphore::new(1));
            let made = Arc::new(Mutex::default());
            let tasks: Vec<_> = (0..BODIES)
                .map(|number| {
                    let steps = Steps {
                        number,
                        work: Work::Processor,
                        left: 20,
                        allowed: None,
                        made: Arc::clone(&made),
                    };
                    tokio::task::spawn_local(run(steps, Arc::clone(&turns)))
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            // A body queues behind those that already wait, so none is overtaken.
            let mut counts = [0; BODIES];
            for &number in made.lock().unwrap().iter() {
                counts[number] += 1;
                let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
                    unreachable!("there are bodies");
                };
                assert!(most - least <= 1, "{counts:?}");
            }
        });
    }
}
