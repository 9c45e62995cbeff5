//! Decompression of the records of a batch, as a stream, and compression.

use std::io::{self, BufReader, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::batch::header::{BatchHeader, Codec, HEADER_BYTES};

/// The largest Snappy block that is decompressed; blocks are decompressed as a whole.
const SNAPPY_BLOCK_MAX: u64 = 64 << 20;

/// The magic that Java's Snappy library writes first, followed by two version numbers.
pub(super) const SNAPPY_JAVA: &[u8] = b"\x82SNAPPY\0";
const SNAPPY_JAVA_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const SNAPPY_JAVA_HEADER_BYTES: usize = SNAPPY_JAVA.len() + SNAPPY_JAVA_VERSIONS.len();

/// The number of bytes that Java's Snappy library compresses at a time.
const SNAPPY_JAVA_BLOCK_BYTES: usize = 32 << 10;

/// A reader of uncompressed records that returns at most `left` more bytes.
pub(super) struct Limited<'a> {
    records: Box<dyn Read + 'a>,
    left: u64,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.records.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}

/// Returns a reader of the records of a batch, which fails with `FileTooLarge` after `bytes_max`
/// bytes.
///
/// # Errors
/// The records cannot be read.
pub(super) fn decompressor<'a>(
    batch: &'a [u8],
    header: &BatchHeader,
    bytes_max: u64,
) -> io::Result<Limited<'a>> {
    let compressed = batch.get(HEADER_BYTES..).ok_or_else(damaged)?;
    let records: Box<dyn Read + 'a> = match header.codec() {
        Codec::None => Box::new(compressed),
        Codec::Gzip => Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(
            compressed,
        ))),
        Codec::Snappy => Box::new(io::Cursor::new(unsnap(
            compressed,
            bytes_max.min(SNAPPY_BLOCK_MAX),
        )?)),
        Codec::Lz4 => Box::new(FrameDecoder::new(compressed)),
        Codec::Zstd => Box::new(BufReader::new(zstd::Decoder::with_buffer(compressed)?)),
        Codec::Unknown => return Err(damaged()),
    };
    Ok(Limited {
        records,
        left: bytes_max,
    })
}

/// Appends the compressed form of `records` to `out`, in the codec of a batch with this header and
/// these compressed bytes.
///
/// # Errors
/// The codec is unknown.
pub(super) fn compress(
    records: &[u8],
    header: &BatchHeader,
    before: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    match header.codec() {
        Codec::None => out.extend_from_slice(records),
        Codec::Gzip => {
            let level = flate2::Compression::default();
            let mut to = flate2::write::GzEncoder::new(out, level);
            to.write_all(records)?;
            to.finish()?;
        }
        Codec::Snappy if before.starts_with(SNAPPY_JAVA) => snap_as_java(records, out)?,
        Codec::Snappy => out.extend(snap::raw::Encoder::new().compress_vec(records)?),
        Codec::Lz4 => {
            // Java rejects frames whose blocks depend on each other.
            let form = FrameInfo::new()
                .block_mode(BlockMode::Independent)
                .block_size(BlockSize::Max64KB);
            let mut to = FrameEncoder::with_frame_info(form, out);
            to.write_all(records)?;
            to.finish().map_err(io::Error::other)?;
        }
        Codec::Zstd => {
            let level = zstd::DEFAULT_COMPRESSION_LEVEL;
            zstd::stream::copy_encode(records, out, level)?;
        }
        Codec::Unknown => return Err(damaged()),
    }
    Ok(())
}

/// Compresses length-prefixed blocks as Java's Snappy library does.
fn snap_as_java(records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(SNAPPY_JAVA);
    out.extend_from_slice(&SNAPPY_JAVA_VERSIONS);
    for piece in records.chunks(SNAPPY_JAVA_BLOCK_BYTES) {
        let block = snap::raw::Encoder::new().compress_vec(piece)?;
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend(block);
    }
    Ok(())
}

/// Decompresses length-prefixed blocks as written by Java's Snappy library, or one raw block, up to
/// `bytes_max` uncompressed bytes in total.
fn unsnap(compressed: &[u8], bytes_max: u64) -> io::Result<Vec<u8>> {
    let block = |block: &[u8], whole: &mut Vec<u8>| {
        let length = snap::raw::decompress_len(block)?;
        if (whole.len() + length) as u64 > bytes_max {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        whole.extend(snap::raw::Decoder::new().decompress_vec(block)?);
        Ok(())
    };
    let mut whole = Vec::new();
    if !compressed.starts_with(SNAPPY_JAVA) {
        block(compressed, &mut whole)?;
        return Ok(whole);
    }
    let mut rest = compressed
        .get(SNAPPY_JAVA_HEADER_BYTES..)
        .ok_or_else(damaged)?;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let (one, behind) = behind.split_at_checked(length).ok_or_else(damaged)?;
        block(one, &mut whole)?;
        rest = behind;
    }
    Ok(whole)
}

pub(super) fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the records of a batch cannot be read",
    )
}
