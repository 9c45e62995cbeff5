//! Reads the timestamps of the records of a segment.

use std::io;
use std::ops::ControlFlow;

use crate::batch::BatchHeader;
use crate::batch::records::{self, RecordOffsets};
use crate::files::disk::{self, DiskWait};
use crate::index::BatchPlace;
use crate::segment::OpenSegment;
use crate::segment::damage::{Search, walk_intact};

impl OpenSegment {
    pub(super) fn first_since(
        &self,
        from: u64,
        (timestamp, start): (i64, i64),
        limit: u64,
    ) -> io::Result<Option<(i64, i64)>> {
        let mut found = Ok(None);
        walk_intact(
            &*self.file,
            from,
            &Search::of((self.base, self.numbering), limit, None),
            &mut |place, header| {
                let has_none = header.count == 0 || header.latest_timestamp() < timestamp;
                if has_none || header.last_offset() < start {
                    return ControlFlow::Continue(());
                }
                found = self.first_of_batch(place, header, (start, timestamp));
                match found {
                    Ok(None) => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            },
        )?;
        found
    }

    pub(super) fn latest_record(&self, limit: u64, unreadable: i64) -> io::Result<i64> {
        let (mut latest, mut failure) = (i64::MIN, None);
        let search = Search::of((self.base, self.numbering), limit, None);
        walk_intact(&*self.file, 0, &search, &mut |place, header| match self
            .read_batch(place, header)
        {
            Ok(batch) => {
                let form = (BATCH_RECORDS_BYTES_MAX, RecordOffsets::Rising);
                let of_records =
                    batch.and_then(|batch| records::summary(&batch, header, form).ok());
                latest = latest.max(of_records.map_or(unreadable, |found| found.latest));
                ControlFlow::Continue(())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })?;
        // Records without timestamps are as old as their file.
        let latest = if latest < 0 { unreadable } else { latest };
        failure.map_or(Ok(latest), Err)
    }

    /// Reads a batch; `None` if it is too large for memory.
    fn read_batch(&self, place: &BatchPlace, header: &BatchHeader) -> io::Result<Option<Vec<u8>>> {
        if header.size > BATCH_BYTES_MAX {
            return Ok(None);
        }
        let mut batch = vec![0; header.size];
        disk::read_exact(&*self.file, &mut batch, place.position, DiskWait::Allowed)?;
        Ok(Some(batch))
    }

    fn first_of_batch(
        &self,
        place: &BatchPlace,
        header: &BatchHeader,
        (start, timestamp): (i64, i64),
    ) -> io::Result<Option<(i64, i64)>> {
        let offset = header.base_offset;
        let Some(batch) = self.read_batch(place, header)? else {
            return Ok(Some((offset.max(start), header.max_timestamp)));
        };
        match records::first_since(&batch, header, (start, timestamp)) {
            // The header may state a timestamp that no record has.
            Ok(found) if found.is_some() || offset < start => Ok(found),
            Ok(_) => Ok(Some((offset, header.max_timestamp))),
            Err(error) => {
                tracing::debug!("batch with offset {offset}: {error}");
                Ok(Some((offset.max(start), header.max_timestamp)))
            }
        }
    }
}

/// The largest batch that is read as a whole, in bytes.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// The largest uncompressed size of the records of a batch that is read, in bytes.
const BATCH_RECORDS_BYTES_MAX: u64 = 1 << 30;
