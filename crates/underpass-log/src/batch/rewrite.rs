//! Removes records from a batch. The rest keeps its offsets, its sequence numbers and its codec.
//!
//! ```text
//!  0  1  2  3  4       base offset and last offset delta stay, so that the next offset and the
//!  k1 k2 k1 k3 k1      next sequence number do
//!     k2    k3 k1
//! ```

use std::io::{self, Read};

use crate::batch::codec::{compress, damaged, decompressor};
use crate::batch::framing::{FramedRecord, NO_TIMESTAMP};
use crate::batch::header::{BatchHeader, Codec, HEADER_BYTES, encoded};

/// A record, as far as compaction depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedRecord<'a> {
    pub(crate) offset: i64,
    pub(crate) key: Option<&'a [u8]>,
    /// Whether the record deletes its key.
    pub(crate) is_tombstone: bool,
}

/// The result of removing records from a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rewritten {
    /// The batch stays as it is.
    Unchanged,
    /// The batch was written again, without this number of records.
    Changed(usize),
    /// No record is left.
    Emptied,
}

/// Buffers that are used for one batch after another.
#[derive(Debug, Default)]
pub(crate) struct RewriteBuffers {
    uncompressed: Vec<u8>,
    kept: Vec<u8>,
    /// The batch that was written again.
    pub(crate) batch: Vec<u8>,
}

/// Calls `visit` for each record of a batch.
///
/// # Errors
/// The records cannot be read. `FileTooLarge` if they have more than `bytes_max` bytes
/// uncompressed.
pub(crate) fn visit_records(
    batch: &[u8],
    header: &BatchHeader,
    (buffers, bytes_max): (&mut RewriteBuffers, u64),
    visit: &mut dyn FnMut(KeyedRecord<'_>),
) -> io::Result<()> {
    let records = uncompressed(batch, header, (&mut buffers.uncompressed, bytes_max))?;
    each(records, header, &mut |_, record| visit(record))
}

/// Writes a batch again with the records for which `is_kept` holds. If tombstones are left and the
/// batch has no delete horizon, it gets `horizon`.
///
/// # Errors
/// Those of [`visit_records`].
pub(crate) fn rewrite(
    batch: &[u8],
    header: &BatchHeader,
    (buffers, bytes_max): (&mut RewriteBuffers, u64),
    horizon: i64,
    is_kept: &mut dyn FnMut(KeyedRecord<'_>) -> bool,
) -> io::Result<Rewritten> {
    let records = uncompressed(batch, header, (&mut buffers.uncompressed, bytes_max))?;
    let mut kept = Vec::new();
    let (mut latest, mut has_tombstones) = (NO_TIMESTAMP, false);
    let mut is_overflowing = false;
    each(records, header, &mut |framed, record| {
        if !is_kept(record) {
            return;
        }
        has_tombstones |= record.is_tombstone;
        let timestamp = header.base_timestamp.checked_add(framed.timestamp_delta);
        is_overflowing |= timestamp.and_then(|it| it.checked_sub(horizon)).is_none();
        latest = latest.max(timestamp.unwrap_or(NO_TIMESTAMP));
        kept.push(framed);
    })?;
    if is_overflowing {
        return Err(damaged());
    }
    let removed = header.count.unsigned_abs() as usize - kept.len();
    let gets_horizon = has_tombstones && header.delete_horizon().is_none();
    if removed == 0 && !gets_horizon {
        return Ok(Rewritten::Unchanged);
    }
    if kept.is_empty() {
        return Ok(Rewritten::Emptied);
    }
    let mut changed = match gets_horizon {
        true => header.with_delete_horizon(horizon),
        false => *header,
    };
    let before = header.base_timestamp;
    buffers.kept.clear();
    for record in &kept {
        match gets_horizon {
            true => {
                let delta = before + record.timestamp_delta - horizon;
                record.put_with_timestamp(delta, &mut buffers.kept);
            }
            false => buffers.kept.extend_from_slice(record.bytes),
        }
    }
    changed.count = kept.len() as i32;
    if !header.has_append_time() {
        changed.max_timestamp = latest;
    }
    buffers.batch.clear();
    buffers.batch.resize(HEADER_BYTES, 0);
    let compressed = &batch[HEADER_BYTES..];
    compress(&buffers.kept, header, compressed, &mut buffers.batch)?;
    i32::try_from(buffers.batch.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    seal(changed, &mut buffers.batch);
    Ok(Rewritten::Changed(removed))
}

/// Returns a batch without records in place of one with this header.
pub(crate) fn emptied(header: &BatchHeader) -> Vec<u8> {
    let mut batch = vec![0; HEADER_BYTES];
    seal(header.without_records(), &mut batch);
    batch
}

/// Writes the header of a batch whose records are complete, with its size and its checksum.
fn seal(header: BatchHeader, batch: &mut [u8]) {
    let size = batch.len();
    batch[..HEADER_BYTES].copy_from_slice(&encoded(&BatchHeader { size, ..header }));
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Returns the records of a batch, from the batch itself if it is not compressed.
fn uncompressed<'b>(
    batch: &'b [u8],
    header: &BatchHeader,
    (buffer, bytes_max): (&'b mut Vec<u8>, u64),
) -> io::Result<&'b [u8]> {
    if header.codec() == Codec::None {
        return batch.get(HEADER_BYTES..).ok_or_else(damaged);
    }
    buffer.clear();
    decompressor(batch, header, bytes_max)?.read_to_end(buffer)?;
    Ok(buffer)
}

/// Visits all records. Their offsets must rise within those of the batch, and nothing may follow.
fn each<'r>(
    mut records: &'r [u8],
    header: &BatchHeader,
    visit: &mut dyn FnMut(FramedRecord<'r>, KeyedRecord<'r>),
) -> io::Result<()> {
    let mut next = 0;
    for _ in 0..header.count {
        let (framed, rest) = FramedRecord::split(records).ok_or_else(damaged)?;
        let delta = framed.offset_delta;
        if !(next..=i64::from(header.last_offset_delta)).contains(&delta) {
            return Err(damaged());
        }
        next = delta + 1;
        records = rest;
        let record = KeyedRecord {
            offset: header.base_offset + delta,
            key: framed.key,
            is_tombstone: framed.is_tombstone,
        };
        visit(framed, record);
    }
    match records.is_empty() {
        true => Ok(()),
        false => Err(damaged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::{batch_of_records, seal as seal_test};
    use crate::batch::{BatchRecord, is_intact, records};

    /// A batch of records with these keys; every third is a tombstone.
    fn batch(codec: i16, keys: &[&str]) -> Vec<u8> {
        let mut records = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let value = vec![number as u8; 1 + 50 * number];
            let record = BatchRecord {
                offset_delta: number as i64,
                key: Some(key.as_bytes()),
                value: Some(&value[..]).filter(|_| number % 3 != 2),
            };
            record.put(&mut records);
        }
        let plain = batch_of_records(keys.len() as i32, &records, 1_700_000_000_000);
        let mut header = BatchHeader::parse(&plain).unwrap();
        header.attributes = codec;
        let mut batch = vec![0; HEADER_BYTES];
        compress(&records, &header, b"", &mut batch).unwrap();
        seal(header, &mut batch);
        batch
    }

    #[test]
    fn the_rest_keeps_its_offsets_and_times_in_every_codec() {
        for codec in 0..5 {
            let keys = ["a", "b", "c", "d", "e", "f"];
            let bytes = batch(codec, &keys);
            let header = BatchHeader::parse(&bytes).unwrap();
            let mut buffers = RewriteBuffers::default();
            let mut rewrite = |horizon, kept: &[i64]| {
                let kept = &mut |record: KeyedRecord<'_>| kept.contains(&record.offset);
                let outcome = rewrite(&bytes, &header, (&mut buffers, 1 << 20), horizon, kept);
                (outcome.unwrap(), buffers.batch.clone())
            };
            assert_eq!(rewrite(0, &[]).0, Rewritten::Emptied);
            // Records with values only.
            let (outcome, rest) = rewrite(0, &[1, 4]);
            assert_eq!(outcome, Rewritten::Changed(4), "{codec}");
            let of_rest = BatchHeader::parse(&rest).unwrap();
            assert!(is_intact(&rest, &of_rest));
            let expected = BatchHeader {
                count: 2,
                size: rest.len(),
                crc: of_rest.crc,
                ..header
            };
            assert_eq!(of_rest, expected, "{codec}");
            // With tombstones, it gets a delete horizon, and the timestamps stay.
            for horizon in [0, 1_800_000_000_000] {
                let (outcome, rest) = rewrite(horizon, &[0, 1, 2, 3, 4, 5]);
                assert_eq!(outcome, Rewritten::Changed(0), "{codec}");
                let of_rest = BatchHeader::parse(&rest).unwrap();
                assert_eq!(of_rest.delete_horizon(), Some(horizon));
                assert_eq!(of_rest.codec(), header.codec());
                assert!(is_intact(&rest, &of_rest));
                let first = records::first_since(&rest, &of_rest, (2, 0)).unwrap();
                assert_eq!(first, Some((2, 1_700_000_000_000)), "{codec}");
                let mut found = Vec::new();
                let buffers = (&mut RewriteBuffers::default(), 1 << 20);
                visit_records(&rest, &of_rest, buffers, &mut |record| {
                    let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                    found.push((record.offset, key, record.is_tombstone));
                })
                .unwrap();
                let all = keys.iter().zip(0..).map(|(key, offset)| {
                    let is_tombstone = offset % 3 == 2;
                    (offset, (*key).to_owned(), is_tombstone)
                });
                assert_eq!(found, Vec::from_iter(all), "{codec}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let bytes = batch(0, &["a", "b"]);
        let read = |bytes: &[u8], bytes_max| {
            let header = BatchHeader::parse(bytes).unwrap();
            let buffers = (&mut RewriteBuffers::default(), bytes_max);
            visit_records(bytes, &header, buffers, &mut |_| ())
        };
        assert!(read(&bytes, 1000).is_ok());
        for (at, value) in [(57, 1), (57, 3), (HEADER_BYTES, 1), (23, 0), (22, 7)] {
            let mut wrong = bytes.clone();
            match at {
                57 | 23 => wrong[at + 3] = value,
                _ => wrong[at] = value,
            }
            seal_test(&mut wrong);
            assert!(read(&wrong, 1000).is_err(), "{at}");
        }
        for codec in 1..5 {
            let bytes = batch(codec, &["a"; 20]);
            let kind = read(&bytes, 100).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::FileTooLarge, "{codec}");
        }
    }

    #[test]
    fn an_emptied_batch_keeps_offsets_and_producer() {
        let mut bytes = crate::batch::tests::batch_of(7, 2, 100, 5);
        crate::batch::tests::put_place(&mut bytes, 1000, 3);
        let header = BatchHeader::parse(&bytes).unwrap();
        let empty = emptied(&header);
        let found = BatchHeader::parse(&empty).unwrap();
        assert!(is_intact(&empty, &found));
        assert_eq!((found.size, found.count), (HEADER_BYTES, 0));
        assert_eq!((found.base_offset, found.next_offset()), (1000, 1005));
        assert_eq!((found.leader_epoch, found.last_sequence()), (3, 104));
        assert_eq!((found.producer_id, found.producer_epoch), (7, 2));
        assert_eq!((found.max_timestamp, found.latest_timestamp()), (7, -1));
    }
}
