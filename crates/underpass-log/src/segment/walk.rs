//! Walks over the headers of consecutive batches and verifies checksums.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use crate::batch::{BatchHeader, CRC_FROM, HEADER_BYTES};
use crate::files::disk::{self, DiskWait};
use crate::index::BatchPlace;

/// The buffer size for headers: usually enough for those between two index entries.
const READ_BYTES: usize = 4096 + HEADER_BYTES;

/// The buffer size for many small batches, as in recovery.
const READ_BYTES_MAX: usize = 64 << 10;

/// The number of bytes checked at a time.
const CHECKED_BYTES: usize = 64 << 10;

/// Whether the checksum of a batch is right.
///
/// # Errors
/// I/O errors.
pub(crate) fn is_intact_at(
    file: impl AsFd,
    place: &BatchPlace,
    header: &BatchHeader,
) -> io::Result<bool> {
    let mut piece = [0; CHECKED_BYTES];
    let (mut at, end) = (place.position + CRC_FROM, place.position + place.size);
    let mut crc = 0;
    while at < end {
        let len = (end - at).min(CHECKED_BYTES as u64) as usize;
        match disk::read_exact(&file, &mut piece[..len], at, DiskWait::Allowed) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        crc = crc32c::crc32c_append(crc, &piece[..len]);
        at += len as u64;
    }
    Ok(crc == header.crc)
}

/// Visits the headers of the batches from a position on, up to `limit`. Returns the end position:
/// after the last batch, at the first incomplete one, or at the one where the visitor stopped.
///
/// # Errors
/// `WouldBlock` if the read would wait for the disk; other I/O errors.
pub(crate) fn walk(
    file: impl AsFd,
    from: u64,
    limit: u64,
    wait: DiskWait,
    visit: &mut dyn FnMut(&BatchPlace, &BatchHeader) -> ControlFlow<()>,
) -> io::Result<u64> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut start, mut filled, mut position) = (from, 0, from);
    let mut read_bytes = READ_BYTES;
    while position + HEADER_BYTES as u64 <= limit {
        let at = usize::try_from(position - start).unwrap_or(usize::MAX);
        let header = match buffer[..filled].get(at..).and_then(BatchHeader::parse) {
            Some(header) => header,
            None if at.saturating_add(HEADER_BYTES) <= filled => return Ok(position),
            None => {
                buffer.resize(read_bytes, 0);
                let room = &mut buffer[..];
                filled = disk::read_at_least(&file, room, HEADER_BYTES, position, wait)?;
                start = position;
                match filled < HEADER_BYTES {
                    true => return Ok(position),
                    false => continue,
                }
            }
        };
        let place = BatchPlace::of(&header, position);
        if position + place.size > limit || visit(&place, &header).is_break() {
            return Ok(position);
        }
        position += place.size;
        // After a large batch read only the next header; after a small one read many at a time.
        read_bytes = match header.size < READ_BYTES {
            true => READ_BYTES_MAX,
            false => READ_BYTES,
        };
    }
    Ok(position)
}
