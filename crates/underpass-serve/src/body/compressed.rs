//! A body that is compressed while it is sent. Its contents pass through this program: they are
//! read, and written again in another form, all of it on blocking threads.
//!
//! ```text
//!  archive, file ─► Batch ─► pieces ─► read ─► encoder ─► Batch ─► one chunk
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::write::GzEncoder;
use rustix::io::pread;
use tokio::sync::OwnedSemaphorePermit;
use underpass::{FileRange, Piece};
use zstd::stream::write::Encoder as ZstdEncoder;

use crate::body::producer::{BodyProducer, BodyProgress, Chunk};
use crate::http::coding::Coding;
use crate::limits::{BATCH_BYTES_MAX, COMPRESSED_PER_BATCH, READ_BYTES};

/// What zstd takes for its own default. Its window of 2 MiB is within the 8 MiB that every client
/// has to have (RFC 9659).
const ZSTD_LEVEL: i32 = 3;

/// What zlib takes for its own default.
const GZIP_LEVEL: u32 = 6;

/// Far below the default of 11, which is for files that are compressed once and sent for years.
const BROTLI_QUALITY: i32 = 4;

/// A window of 512 KiB: each body that is under way has one, and pages are smaller.
const BROTLI_WINDOW_BITS: i32 = 19;

/// A feed, compressed.
pub(crate) struct Compressed<F> {
    producer: F,
    progress: BodyProgress,
    /// Pieces that are not compressed yet.
    pieces: VecDeque<Piece>,
    /// Until the end of the body is written: then its memory and its place are free, however long
    /// the end takes to leave.
    encoder: Option<Encoder>,
    buffer: Vec<u8>,
}

/// What is compressed of a file: all of it, at the size it had.
#[derive(Debug)]
pub(crate) struct WholeFile(pub(crate) FileRange);

impl BodyProducer for WholeFile {
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress> {
        chunk.push_range(self.0.clone());
        Ok(BodyProgress::End)
    }
}

/// A place among the answers that a worker compresses at once.
pub(crate) type CompressionPermit = OwnedSemaphorePermit;

/// Turns bytes into fewer of them.
pub(crate) struct Encoder {
    stream: CodingEncoder,
    _place: Option<CompressionPermit>,
}

/// What a coding's library has.
enum CodingEncoder {
    Br(Box<CompressorWriter<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// In a coding, of so many bytes if that is known.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn new(
        coding: Coding,
        size: Option<u64>,
        place: Option<CompressionPermit>,
    ) -> io::Result<Encoder> {
        let stream = match coding {
            Coding::Br => CodingEncoder::Br(Box::new(brotli())),
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.set_pledged_src_size(size)?;
                CodingEncoder::Zstd(encoder)
            }
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                CodingEncoder::Gzip(GzEncoder::new(Vec::new(), level))
            }
        };
        let _place = place;
        Ok(Encoder { stream, _place })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            CodingEncoder::Br(encoder) => encoder.write_all(bytes),
            CodingEncoder::Zstd(encoder) => encoder.write_all(bytes),
            CodingEncoder::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// What has come out so far.
    fn made(&mut self) -> &mut Vec<u8> {
        match &mut self.stream {
            CodingEncoder::Br(encoder) => encoder.get_mut(),
            CodingEncoder::Zstd(encoder) => encoder.get_mut(),
            CodingEncoder::Gzip(encoder) => encoder.get_mut(),
        }
    }

    /// The rest.
    fn finish(self) -> io::Result<Vec<u8>> {
        match self.stream {
            CodingEncoder::Br(encoder) => Ok(encoder.into_inner()),
            CodingEncoder::Zstd(encoder) => encoder.finish(),
            CodingEncoder::Gzip(encoder) => encoder.finish(),
        }
    }
}

/// Without a size hint, which would make the tables of large bodies four times as large.
fn brotli() -> CompressorWriter<Vec<u8>> {
    let parameters = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW_BITS,
        ..BrotliEncoderParams::default()
    };
    CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &parameters)
}

/// What brotli writes into before we have it.
const BROTLI_BUFFER_BYTES: usize = 4 << 10;

impl<F: BodyProducer> Compressed<F> {
    pub(crate) fn new(producer: F, encoder: Encoder) -> Compressed<F> {
        Compressed {
            producer,
            progress: BodyProgress::More,
            pieces: VecDeque::new(),
            encoder: Some(encoder),
            buffer: Vec::new(),
        }
    }

    /// Compresses the next piece, or as much of it as is read at once. Says how much that was;
    /// nothing means that there is no piece left.
    fn compress(&mut self, encoder: &mut Encoder) -> io::Result<usize> {
        match self.pieces.pop_front() {
            None => Ok(0),
            Some(Piece::Bytes(bytes) | Piece::Joined { bytes, .. }) => {
                encoder.write(&bytes)?;
                Ok(bytes.len())
            }
            Some(Piece::Range(range)) => self.compress_range(range, encoder),
        }
    }

    fn compress_range(&mut self, range: FileRange, encoder: &mut Encoder) -> io::Result<usize> {
        let wanted = usize::try_from(range.len).unwrap_or(READ_BYTES);
        self.buffer.resize(wanted.min(READ_BYTES), 0);
        let read = match pread(&*range.file, &mut self.buffer[..], range.offset) {
            Ok(0) => return Err(io::Error::other("a file was truncated while it was sent")),
            Ok(read) => read,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        encoder.write(&self.buffer[..read])?;
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

    /// As much as fits into a batch. Nothing is left when the feed has ended and so have its
    /// pieces.
    fn fill(&mut self, encoder: &mut Encoder) -> io::Result<BodyProgress> {
        let mut compressed = 0;
        while compressed < COMPRESSED_PER_BATCH && encoder.made().len() < BATCH_BYTES_MAX {
            if self.pieces.is_empty() {
                if self.progress == BodyProgress::End {
                    return Ok(BodyProgress::End);
                }
                let mut produced = Chunk::new();
                self.progress = self.producer.next(&mut produced)?;
                self.pieces = produced.into_pieces().into();
                // What was looked at and left out is work too.
                compressed += COMPRESSED_PER_BATCH / 16;
            }
            compressed += self.compress(encoder)?;
        }
        Ok(BodyProgress::More)
    }
}

impl<F: BodyProducer> BodyProducer for Compressed<F> {
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress> {
        let Some(mut encoder) = self.encoder.take() else {
            return Ok(BodyProgress::End);
        };
        let progress = self.fill(&mut encoder)?;
        match progress {
            BodyProgress::More => {
                chunk.bytes().append(encoder.made());
                self.encoder = Some(encoder);
            }
            BodyProgress::End => chunk.bytes().append(&mut encoder.finish()?),
        }
        Ok(progress)
    }

    fn made(&self) -> &'static str {
        "produced in memory while it is sent: contents are read and compressed"
    }
}

impl<F: fmt::Debug> fmt::Debug for Compressed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressed")
            .field("feed", &self.producer)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use underpass::SharedFile;

    use super::*;

    fn file(content: &[u8]) -> Arc<SharedFile> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        SharedFile::new(file.into())
    }

    /// A file of `there` bytes that had `len` when it was opened.
    fn compressed(
        coding: Coding,
        content: &[u8],
        len: u64,
        place: CompressionPermit,
    ) -> Compressed<WholeFile> {
        let content = WholeFile(FileRange {
            file: file(content),
            offset: 0,
            len,
        });
        let encoder = Encoder::new(coding, Some(len), Some(place)).unwrap();
        Compressed::new(content, encoder)
    }

    fn drain(producer: &mut impl BodyProducer) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut chunk = Chunk::new();
            let progress = producer.next(&mut chunk)?;
            for piece in chunk.into_pieces() {
                match piece {
                    Piece::Bytes(bytes) => body.extend(bytes),
                    other => panic!("{other:?}"),
                }
            }
            if progress == BodyProgress::End {
                return Ok(body);
            }
        }
    }

    #[test]
    fn the_place_is_free_when_the_last_byte_is_compressed() {
        for coding in Coding::ALL {
            let places = Arc::new(Semaphore::new(1));
            let place = Arc::clone(&places).try_acquire_owned().unwrap();
            let content = b"the same again, ".repeat(300);
            let mut producer = compressed(coding, &content, content.len() as u64, place);
            assert_eq!(places.available_permits(), 0);
            let body = drain(&mut producer).unwrap();
            assert_eq!(places.available_permits(), 1, "{coding:?}");
            assert!(
                drain(&mut producer).unwrap().is_empty(),
                "nothing follows the end"
            );
            let mut plain = Vec::new();
            match coding {
                Coding::Br => brotli::Decompressor::new(&body[..], 512).read_to_end(&mut plain),
                Coding::Zstd => zstd::stream::copy_decode(&body[..], &mut plain).map(|()| 0),
                Coding::Gzip => flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain),
            }
            .unwrap();
            assert_eq!(plain, content, "{coding:?}");
        }
    }

    #[test]
    fn a_file_that_became_shorter_has_no_end() {
        for coding in Coding::ALL {
            let places = Arc::new(Semaphore::new(1));
            let place = Arc::clone(&places).try_acquire_owned().unwrap();
            let mut producer = compressed(coding, b"half", 8, place);
            assert!(drain(&mut producer).is_err(), "{coding:?}");
        }
    }

    #[test]
    fn a_batch_is_bounded_whatever_comes_out() {
        let mut noise = vec![0; 4 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        for coding in Coding::ALL {
            let places = Arc::new(Semaphore::new(1));
            let place = Arc::clone(&places).try_acquire_owned().unwrap();
            let mut producer = compressed(coding, &noise, noise.len() as u64, place);
            let (mut batches, mut total) = (0, 0);
            let mut progress = BodyProgress::More;
            while progress == BodyProgress::More {
                let mut chunk = Chunk::new();
                progress = producer.next(&mut chunk).unwrap();
                let made = chunk.bytes().len();
                assert!(made < 3 << 19, "{coding:?}: {made}");
                batches += 1;
                total += made;
            }
            assert!(batches > 3 && total >= noise.len(), "{coding:?}");
        }
    }
}
