//! An archive that is compressed while it is sent. Its contents pass through this program: they are
//! read, and written again in another form, all of it on blocking threads.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};

use rustix::io::pread;
use underpass::{FileRange, Piece};
use zstd::stream::write::Encoder;

use crate::feed::{Batch, Feed, Progress};
use crate::limits::{COMPRESSED_PER_BATCH, READ_BYTES};

/// What zstd takes for its own default: half a gigabyte a second on one core, and a third of a
/// text's size.
const LEVEL: i32 = 3;

/// A feed, compressed.
pub(crate) struct Compressed<F> {
    feed: F,
    progress: Progress,
    /// Pieces that are not compressed yet.
    pieces: VecDeque<Piece>,
    encoder: Encoder<'static, Vec<u8>>,
    buffer: Vec<u8>,
}

impl<F: Feed> Compressed<F> {
    pub(crate) fn new(feed: F) -> io::Result<Compressed<F>> {
        Ok(Compressed {
            feed,
            progress: Progress::More,
            pieces: VecDeque::new(),
            encoder: Encoder::new(Vec::new(), LEVEL)?,
            buffer: Vec::new(),
        })
    }

    /// Compresses the next piece, or as much of it as is read at once. Says how much that was;
    /// nothing means that there is no piece left.
    fn compress(&mut self) -> io::Result<usize> {
        match self.pieces.pop_front() {
            None => Ok(0),
            Some(Piece::Bytes(bytes) | Piece::Joined { bytes, .. }) => {
                self.encoder.write_all(&bytes)?;
                Ok(bytes.len())
            }
            Some(Piece::Range(range)) => self.compress_range(range),
        }
    }

    fn compress_range(&mut self, range: FileRange) -> io::Result<usize> {
        let wanted = usize::try_from(range.len).unwrap_or(READ_BYTES);
        self.buffer.resize(wanted.min(READ_BYTES), 0);
        let read = match pread(&*range.file, &mut self.buffer[..], range.offset) {
            Ok(0) => return Err(io::Error::other("a file became shorter while it was sent")),
            Ok(read) => read,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        self.encoder.write_all(&self.buffer[..read])?;
        let left = range.len - read as u64;
        if left > 0 {
            self.pieces.push_front(Piece::Range(FileRange {
                offset: range.offset + read as u64,
                len: left,
                ..range
            }));
        }
        Ok(read.max(1))
    }
}

impl<F: Feed> Feed for Compressed<F> {
    fn next(&mut self, batch: &mut Batch) -> io::Result<Progress> {
        let mut compressed = 0;
        let mut progress = Progress::More;
        while compressed < COMPRESSED_PER_BATCH {
            if self.pieces.is_empty() {
                if self.progress == Progress::End {
                    self.encoder.do_finish()?;
                    progress = Progress::End;
                    break;
                }
                let mut inner = Batch::new();
                self.progress = self.feed.next(&mut inner)?;
                self.pieces = inner.into_pieces().into();
                // What was looked at and left out is work too.
                compressed += COMPRESSED_PER_BATCH / 16;
            }
            compressed += self.compress()?;
        }
        batch.bytes().append(self.encoder.get_mut());
        Ok(progress)
    }

    fn made(&self) -> &'static str {
        "made in memory while it is sent: contents are read and compressed"
    }
}

impl<F: fmt::Debug> fmt::Debug for Compressed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressed")
            .field("feed", &self.feed)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
