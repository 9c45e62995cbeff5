//! A body that is compressed while it is sent. Its content passes through this process: it is read
//! and compressed, all of it on blocking threads.
//!
//! ```text
//!  archive, file ─► Chunk ─► pieces ─► read ─► buffer ─► encoder ─► Chunk
//!                   └──── a step for disks ────┘        └─ processor ─┘
//! ```
//!
//! Data on disk is read in a separate step before it is compressed: a compressing step reads more
//! data only from the page cache, so that no disk delays the bodies that wait for their turn.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSliceMut, Write};
use std::time::{Duration, Instant};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::write::GzEncoder;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use tokio::sync::OwnedSemaphorePermit;
use underpass::{FileRange, Piece, SharedFile};
use underpass_http::fields::coding::Coding;
use zstd::stream::write::Encoder as ZstdEncoder;

use crate::body::producer::{BodyProducer, BodyProgress, Chunk, Work};
use crate::limits::{BATCH_BYTES_MAX, COMPRESSING_TURN, READ_BYTES};

/// The default of zstd. Its window of 2 MiB is within the 8 MiB that every client must support
/// (RFC 9659).
const ZSTD_LEVEL: i32 = 3;

/// The default of zlib.
const GZIP_LEVEL: u32 = 6;

/// Far below the default of 11, which is for files compressed once and sent for years.
const BROTLI_QUALITY: i32 = 4;

/// A window of 512 KiB: every body in progress has one, and pages are smaller.
const BROTLI_WINDOW_BITS: i32 = 19;

/// The compressed output of another producer.
pub(crate) struct Compressed<F> {
    producer: F,
    progress: BodyProgress,
    /// Pieces that are not compressed yet, without the data in `buffer`.
    pieces: VecDeque<Piece>,
    buffer: Vec<u8>,
    /// The maximum duration of a compression step.
    turn: Duration,
    /// Dropped once the end of the body is written, which frees its memory and permit even if the
    /// client takes long to receive the end.
    encoder: Option<Encoder>,
}

/// The producer of a file's content, up to the size it had when opened.
#[derive(Debug)]
pub(crate) struct WholeFile(pub(crate) FileRange);

impl BodyProducer for WholeFile {
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress> {
        chunk.push_range(self.0.clone());
        Ok(BodyProgress::End)
    }
}

/// A permit for one of the compressions that a worker runs concurrently.
pub(crate) type CompressionPermit = OwnedSemaphorePermit;

/// A compressor.
pub(crate) struct Encoder {
    stream: CodingEncoder,
    _place: Option<CompressionPermit>,
}

/// The encoder of each coding's library.
enum CodingEncoder {
    Br(Box<CompressorWriter<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// Creates an encoder for a coding, with the uncompressed size if known.
    ///
    /// # Errors
    /// Out of memory.
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

    /// Returns the output so far.
    fn made(&mut self) -> &mut Vec<u8> {
        match &mut self.stream {
            CodingEncoder::Br(encoder) => encoder.get_mut(),
            CodingEncoder::Zstd(encoder) => encoder.get_mut(),
            CodingEncoder::Gzip(encoder) => encoder.get_mut(),
        }
    }

    /// Returns the rest of the output.
    fn finish(self) -> io::Result<Vec<u8>> {
        match self.stream {
            CodingEncoder::Br(encoder) => Ok(encoder.into_inner()),
            CodingEncoder::Zstd(encoder) => encoder.finish(),
            CodingEncoder::Gzip(encoder) => encoder.finish(),
        }
    }
}

/// Creates an encoder without a size hint, which would quadruple the tables of large bodies.
fn brotli() -> CompressorWriter<Vec<u8>> {
    let parameters = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW_BITS,
        ..BrotliEncoderParams::default()
    };
    CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &parameters)
}

/// The size of brotli's internal output buffer.
const BROTLI_BUFFER_BYTES: usize = 4 << 10;

impl<F: BodyProducer> Compressed<F> {
    pub(crate) fn new(producer: F, encoder: Encoder) -> Compressed<F> {
        Compressed {
            producer,
            progress: BodyProgress::More,
            pieces: VecDeque::new(),
            buffer: Vec::new(),
            turn: COMPRESSING_TURN,
            encoder: Some(encoder),
        }
    }

    /// Reads the next data, up to the size of one read, from disk if necessary.
    fn read(&mut self) -> io::Result<()> {
        if self.pieces.is_empty() && self.progress == BodyProgress::More {
            let mut produced = Chunk::new();
            self.progress = self.producer.next(&mut produced)?;
            self.pieces = produced.into_pieces().into();
        }
        match self.fill(|file, buffer, offset| pread(file, buffer, offset)) {
            Ok(Some(0)) => Err(io::Error::other("a file was truncated while it was sent")),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads further data from the page cache. [`read`](Self::read) reads the rest: on old kernels
    /// this call may return nothing before the end of a file, and some file systems lack it.
    fn read_cached(&mut self) {
        let _missing = self.fill(|file, buffer, offset| {
            let buffers = &mut [IoSliceMut::new(buffer)];
            preadv2(file, buffers, offset, ReadWriteFlags::NOWAIT)
        });
    }

    /// Fills the empty buffer from the next piece. Returns the number of bytes read if it is a
    /// range.
    fn fill(
        &mut self,
        read: impl FnOnce(&SharedFile, &mut [u8], u64) -> Result<usize, Errno>,
    ) -> Result<Option<usize>, Errno> {
        match self.pieces.front_mut() {
            None => Ok(None),
            Some(piece @ (Piece::Bytes(_) | Piece::Content(_))) => {
                self.buffer.extend_from_slice(piece.bytes());
                self.pieces.pop_front();
                Ok(None)
            }
            Some(Piece::Range(range)) => {
                let wanted = usize::try_from(range.len).unwrap_or(READ_BYTES);
                self.buffer.resize(wanted.min(READ_BYTES), 0);
                let count = read(&range.file, &mut self.buffer, range.offset);
                self.buffer.truncate(count.unwrap_or(0));
                let count = count?;
                range.offset += count as u64;
                range.len -= count as u64;
                if range.len == 0 {
                    self.pieces.pop_front();
                }
                Ok(Some(count))
            }
        }
    }

    /// Compresses data in memory until the turn is over or the batch is full. Returns `End` after
    /// the last data.
    fn compress(&mut self, encoder: &mut Encoder) -> io::Result<BodyProgress> {
        let start = Instant::now();
        loop {
            encoder.write(&self.buffer)?;
            self.buffer.clear();
            if self.has_ended() {
                return Ok(BodyProgress::End);
            }
            if start.elapsed() >= self.turn || encoder.made().len() >= BATCH_BYTES_MAX {
                return Ok(BodyProgress::More);
            }
            self.read_cached();
            if self.work() == Work::Disk {
                return Ok(BodyProgress::More);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.buffer.is_empty() && self.pieces.is_empty() && self.progress == BodyProgress::End
    }
}

impl<F: BodyProducer> BodyProducer for Compressed<F> {
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress> {
        if self.work() == Work::Disk {
            self.read()?;
            return Ok(BodyProgress::More);
        }
        let Some(mut encoder) = self.encoder.take() else {
            return Ok(BodyProgress::End);
        };
        let progress = self.compress(&mut encoder)?;
        match progress {
            BodyProgress::More => {
                chunk.bytes().append(encoder.made());
                self.encoder = Some(encoder);
            }
            BodyProgress::End => chunk.bytes().append(&mut encoder.finish()?),
        }
        Ok(progress)
    }

    fn work(&self) -> Work {
        match self.buffer.is_empty() && !self.has_ended() {
            true => Work::Disk,
            false => Work::Processor,
        }
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
    use underpass::drive::tokio::is_cached;

    use super::*;

    fn file(content: &[u8]) -> Arc<SharedFile> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        SharedFile::new(file.into())
    }

    /// Compresses a file of `there` bytes that had `len` when it was opened.
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
    fn a_turn_that_is_over_ends_with_the_piece_and_a_disk_is_read_between_turns() {
        let folder = underpass_testkit::disk_folder();
        let path = folder.path().join("file");
        let content = b"one line of a long story, ".repeat(40_000);
        std::fs::write(&path, &content).unwrap();
        let open = std::fs::File::open(&path).unwrap();
        let pieces = content.len().div_ceil(READ_BYTES);
        // Once with the content in the page cache, and once on disk.
        for turn in [Duration::ZERO, Duration::MAX] {
            match turn {
                Duration::ZERO => assert_eq!(std::fs::read(&path).unwrap(), content),
                _ => underpass_testkit::cool(&open, |file, from, len| is_cached(file, from, len)),
            }
            let range = FileRange {
                file: SharedFile::new(open.try_clone().unwrap().into()),
                offset: 0,
                len: content.len() as u64,
            };
            let encoder = Encoder::new(Coding::Gzip, None, None).unwrap();
            let mut producer = Compressed::new(WholeFile(range), encoder);
            producer.turn = turn;
            let mut work = Vec::new();
            loop {
                work.push(producer.work());
                let before = producer.buffer.len();
                let progress = producer.next(&mut Chunk::new()).unwrap();
                if *work.last().unwrap() == Work::Disk {
                    assert!(before == 0 && producer.buffer.len() <= READ_BYTES);
                }
                if progress == BodyProgress::End {
                    break;
                }
            }
            assert_eq!(work[..2], [Work::Disk, Work::Processor]);
            let turns = work.iter().filter(|work| **work == Work::Processor).count();
            match turn {
                Duration::ZERO => assert!(turns >= pieces, "{turns} of {pieces}"),
                _ => assert!(turns <= pieces, "{turns} of {pieces}"),
            }
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
