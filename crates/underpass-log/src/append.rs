//! Appends to a partition, by the one thread that does.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::appender::{
    AppendError, Appended, Appender, PendingWrite, SealedSegment, checked, write_snapshot,
};
use crate::batch::{self, BatchBytes};
use crate::config::TopicConfig;
use crate::files::disk;
use crate::partition::PartitionLog;
use crate::position::LogPosition;
use crate::segment::{CHECKPOINT, Segment, lock};

/// What became of the appends of a round, in their order.
pub(crate) type AppendOutcomes = Vec<Result<Appended, AppendError>>;

impl PartitionLog {
    /// Appends batches, in order, and publishes their end. They were checked.
    pub(crate) fn append_all(&self, batches: &[BatchBytes]) -> AppendOutcomes {
        let config = self.config();
        let mut appender = lock(&self.appender);
        if self.is_deleted() {
            let closed = batches.iter().map(|_| Err(AppendError::Closed));
            return closed.collect();
        }
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
        batches: &[BatchBytes],
        number: usize,
        (pending, outcomes, config): (&mut PendingWrite, &mut AppendOutcomes, &TopicConfig),
    ) -> Result<Appended, AppendError> {
        let header = checked(&batches[number], config)?;
        if appender.may_fill_indexes(pending, config) {
            self.write(appender, batches, pending, outcomes, config);
        }
        if appender.is_full(&header, pending, config) {
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
            None => pending.add(appender, number, header),
        })
    }

    /// Writes what is pending and publishes it; or nothing of it, and its outcomes are errors.
    fn write(
        &self,
        appender: &mut Appender,
        batches: &[BatchBytes],
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
        let headers = pending.placed.iter().map(|(_, it)| batch::written(it));
        let headers: Vec<_> = headers.collect();
        let placed = headers.iter().zip(&pending.placed);
        let buffers = placed.flat_map(|(header, (number, _))| {
            [&header[..], &batches[*number][batch::WRITTEN_BYTES..]]
        });
        let buffers: Vec<&[u8]> = buffers.collect();
        let file = &*appender.open.file;
        if let Err(error) = disk::write_all(file, &buffers, position) {
            // What lies behind the published end is cut off, so that nobody finds it there.
            let cut = disk::truncate(file, position);
            if let Err(error) = cut {
                tracing::warn!("{}: the end cannot be cut off: {error}", self.name());
            }
            appender.next_offset = first.base_offset;
            appender.producers.undo(pending.producers);
            let error = Arc::new(error);
            for (number, _) in pending.placed {
                outcomes[number] = Err(AppendError::Disk(Arc::clone(&error)));
            }
            return;
        }
        appender.record(&pending, position, config);
        let mut published = self.published();
        appender.active.set_size(position + pending.bytes);
        published.end = appender.end();
    }

    /// Begins another segment, unless the active one is empty, as after a write that failed:
    /// another one would have its name.
    pub(crate) fn roll(&self, appender: &mut Appender) -> io::Result<()> {
        let next = appender.next_offset;
        if next == appender.active.base {
            return Ok(());
        }
        let (segment, open, index) = Segment::create(&self.folder, next)?;
        let segment = Arc::new(segment);
        lock(&appender.index).seal();
        let sealed = SealedSegment {
            segment: std::mem::replace(&mut appender.active, Arc::clone(&segment)),
            open: std::mem::replace(&mut appender.open, open),
            index: std::mem::replace(&mut appender.index, index),
            next_offset: next,
            snapshot: appender.producers.snapshot(),
        };
        appender.sealed.push(sealed);
        appender.first_timestamp = None;
        appender.active_since = Instant::now();
        appender.checkpointed = 0;
        appender.reserved = 0;
        appender.folder_changed = true;
        let mut published = self.published();
        published.segments.push(segment);
        published.end = appender.end();
        Ok(())
    }

    /// Brings what is written to the disk, and returns up to where. Nothing is written of a
    /// partition that is deleted.
    ///
    /// # Errors
    /// Of the kernel: what is on the disk is not known any more.
    pub(crate) fn sync(&self) -> io::Result<LogPosition> {
        let _files = lock(&self.files);
        if self.is_deleted() {
            return Ok(lock(&self.appender).end());
        }
        if self.has_failed() {
            // What is behind what may be lost is lost with it.
            return Err(io::Error::other("an earlier sync of it has failed"));
        }
        self.sync_files().inspect_err(|_| self.set_failed())
    }

    /// The same, while the files are locked.
    fn sync_files(&self) -> io::Result<LogPosition> {
        let segment_bytes = self.config().segment_bytes;
        let (segments, end, folder_changed) = {
            let mut appender = lock(&self.appender);
            appender.unsynced_records = 0;
            if appender.is_checkpoint_due(segment_bytes) {
                appender.checkpointed = appender.active.size();
                appender.state = appender.state();
            }
            let segments = std::mem::take(&mut appender.unsynced);
            let folder_changed = std::mem::take(&mut appender.folder_changed);
            (segments, appender.end(), folder_changed)
        };
        if folder_changed {
            disk::sync_folder(&self.folder)?;
        }
        for (_, open) in segments {
            disk::sync(&*open.file)?;
        }
        let mut published = self.published();
        published.synced = published.synced.max(end);
        Ok(end)
    }

    /// Writes what has to be written about full segments and the active one. They are synced first.
    /// What cannot be written is kept for [`finish_rest`](Self::finish_rest).
    pub(crate) fn finish_sealed(&self) -> io::Result<()> {
        let _files = lock(&self.files);
        let (sealed, state) = {
            let mut appender = lock(&self.appender);
            let active = appender.active.base;
            let state = appender.state.take();
            let state = state.filter(|state| state.base == active);
            (std::mem::take(&mut appender.sealed), state)
        };
        if self.is_deleted() {
            return Ok(());
        }
        let finished = self.finish_each(sealed);
        match state {
            Some(state) => finished.and(state.write(&self.folder)),
            None => finished,
        }
    }

    /// Writes about full segments what could not be written before. Returns whether there was any.
    pub(crate) fn finish_rest(&self) -> io::Result<bool> {
        let _files = lock(&self.files);
        let unfinished = std::mem::take(&mut lock(&self.appender).unfinished);
        if unfinished.is_empty() || self.is_deleted() {
            return Ok(false);
        }
        self.finish_each(unfinished).map(|()| true)
    }

    fn finish_each(&self, sealed: Vec<SealedSegment>) -> io::Result<()> {
        let mut outcome = Ok(());
        for one in sealed {
            if let Err(error) = self.finish(&one) {
                lock(&self.appender).unfinished.push(one);
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Writes what has to be written about a full segment, while the files are locked.
    fn finish(&self, one: &SealedSegment) -> io::Result<()> {
        let segments = self.published().segments.clone();
        let is_there = segments.iter().any(|it| Arc::ptr_eq(it, &one.segment));
        if is_there {
            // Blocks behind the end are given back.
            disk::truncate(&*one.open.file, one.segment.size())?;
            // Nothing is added to it any more: the lock is not held over a system call.
            let index = lock(&one.index).clone();
            one.segment.write_index(&index)?;
            one.segment.set_sealed(&one.open)?;
        }
        // Where that one was deleted meanwhile, the log may begin here.
        write_snapshot(&self.folder, one.next_offset, &one.snapshot)?;
        disk::remove_if_there(&one.segment.path(CHECKPOINT))
    }
}
