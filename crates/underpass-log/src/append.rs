//! Appends to a partition, by the one thread that does.

use std::io;
use std::sync::Arc;

use crate::appender::{
    AppendError, Appended, Appender, PendingWrite, SealedSegment, checked, write_snapshot,
};
use crate::config::TopicConfig;
use crate::files::disk;
use crate::partition::PartitionLog;
use crate::position::LogPosition;
use crate::segment::{Segment, lock};

/// What became of the appends of a round, in their order.
pub(crate) type AppendOutcomes = Vec<Result<Appended, AppendError>>;

impl PartitionLog {
    /// Appends batches, in order, and publishes their end. They were checked.
    pub(crate) fn append_all(&self, batches: &mut [Vec<u8>]) -> AppendOutcomes {
        let config = self.config();
        let mut appender = lock(&self.appender);
        let mut outcomes: AppendOutcomes = Vec::with_capacity(batches.len());
        let mut pending = PendingWrite::default();
        for number in 0..batches.len() {
            let round = (&mut pending, &mut outcomes, &*config);
            let outcome = self.append_one(&mut appender, batches, number, round);
            outcomes.push(outcome);
        }
        self.write(&mut appender, batches, &mut pending, &mut outcomes, &config);
        outcomes
    }

    fn append_one(
        &self,
        appender: &mut Appender,
        batches: &mut [Vec<u8>],
        number: usize,
        (pending, outcomes, config): (&mut PendingWrite, &mut AppendOutcomes, &TopicConfig),
    ) -> Result<Appended, AppendError> {
        let header = checked(&batches[number], config)?;
        let size = pending.bytes + header.size as u64;
        if appender.is_full(&header, size, config) {
            self.write(appender, batches, pending, outcomes, config);
            let rolled = self.roll(appender);
            rolled.map_err(|error| AppendError::Disk(Arc::new(error)))?;
        }
        let before = match appender.judge(&header)? {
            // It repeats a batch that is not written yet, and perhaps never will be.
            Some(before) if pending.begins_before(before.next_offset) => {
                self.write(appender, batches, pending, outcomes, config);
                appender.judge(&header)?
            }
            before => before,
        };
        Ok(match before {
            Some(before) => before,
            None => pending.add(appender, number, &mut batches[number], header),
        })
    }

    /// Writes what is pending and publishes it; or nothing of it, and its outcomes are errors.
    fn write(
        &self,
        appender: &mut Appender,
        batches: &[Vec<u8>],
        pending: &mut PendingWrite,
        outcomes: &mut AppendOutcomes,
        config: &TopicConfig,
    ) {
        let pending = std::mem::take(pending);
        let Some((_, first)) = pending.placed.first() else {
            return;
        };
        let position = appender.active.size();
        appender.reserve(position + pending.bytes, config.segment_bytes);
        let buffers: Vec<&[u8]> = pending
            .placed
            .iter()
            .map(|(number, _)| &batches[*number][..])
            .collect();
        let file = &*appender.open.file;
        if let Err(error) = disk::write_all(file, &buffers, position) {
            // What lies behind the published end is cut off, so that nobody finds it there.
            let cut = disk::truncate(file, position);
            if let Err(error) = cut {
                tracing::warn!("{}: the end cannot be cut off: {error}", self.name());
            }
            appender.next_offset = first.base_offset;
            if let Some(producers) = pending.producers {
                appender.producers = producers;
            }
            let error = Arc::new(error);
            for (number, _) in pending.placed {
                outcomes[number] = Err(AppendError::Disk(Arc::clone(&error)));
            }
            return;
        }
        appender.record(&pending, position, config);
        let mut published = self.published();
        if published.epochs.latest() != Some(appender.epoch) {
            published.epochs.begin(appender.epoch, first.base_offset);
            appender.epochs_changed = true;
        }
        appender.active.set_size(position + pending.bytes);
        published.end = appender.end();
    }

    /// Begins another segment.
    pub(crate) fn roll(&self, appender: &mut Appender) -> io::Result<()> {
        let next = appender.next_offset;
        let segment = Arc::new(Segment::create(&self.folder, next)?);
        let open = segment.open()?;
        appender.open.index().seal();
        let sealed = SealedSegment {
            segment: std::mem::replace(&mut appender.active, Arc::clone(&segment)),
            open: std::mem::replace(&mut appender.open, open),
            next_offset: next,
            snapshot: appender.producers.snapshot(),
        };
        appender.sealed.push(sealed);
        appender.first_timestamp = None;
        appender.reserved = 0;
        appender.folder_changed = true;
        let mut published = self.published();
        published.segments.push(segment);
        published.end = appender.end();
        Ok(())
    }

    /// Brings what is written to the disk, and returns up to where.
    ///
    /// # Errors
    /// Of the kernel: what is on the disk is not known any more.
    pub(crate) fn sync(&self) -> io::Result<LogPosition> {
        let (segments, end, folder_changed, epochs_changed) = {
            let mut appender = lock(&self.appender);
            appender.unsynced_records = 0;
            let segments = std::mem::take(&mut appender.unsynced);
            let folder_changed = std::mem::take(&mut appender.folder_changed);
            let epochs_changed = std::mem::take(&mut appender.epochs_changed);
            (segments, appender.end(), folder_changed, epochs_changed)
        };
        if folder_changed {
            disk::sync_folder(&self.folder)?;
        }
        if epochs_changed {
            let epochs = self.published().epochs.clone();
            epochs.write(&self.folder)?;
        }
        for (_, open) in segments {
            disk::sync(&*open.file)?;
        }
        let mut published = self.published();
        published.synced = published.synced.max(end);
        Ok(end)
    }

    /// Writes what has to be written about full segments. They are synced first.
    pub(crate) fn finish_sealed(&self) -> io::Result<()> {
        let sealed = std::mem::take(&mut lock(&self.appender).sealed);
        for one in sealed {
            // Blocks behind the end are given back.
            disk::truncate(&*one.open.file, one.segment.size())?;
            let index = one.open.index().clone();
            one.segment.write_index(&index)?;
            write_snapshot(&self.folder, one.next_offset, &one.snapshot)?;
        }
        Ok(())
    }
}
