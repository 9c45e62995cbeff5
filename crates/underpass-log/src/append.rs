//! Appends to a partition, done by one thread.

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

/// The outcomes of a round of appends, in the order of the appends.
pub(crate) type AppendOutcomes = Vec<Result<Appended, AppendError>>;

impl PartitionLog {
    /// Appends checked batches in order and publishes the new end of the log.
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
            // The original of this duplicate is still pending, and its write may fail.
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

    /// Writes the pending batches and publishes them. On failure none is kept, and all get errors.
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
            // Cut off partial writes past the published end, so that no reader finds them.
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

    /// Starts a new segment, unless the active one is empty, as after a failed write: the new
    /// segment would have the same name.
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

    /// Syncs everything written so far and returns the position of its end. Does nothing for a
    /// deleted partition.
    ///
    /// # Errors
    /// Kernel errors. The state of the data on disk is then unknown.
    pub(crate) fn sync(&self) -> io::Result<LogPosition> {
        let _files = lock(&self.files);
        if self.is_deleted() {
            return Ok(lock(&self.appender).end());
        }
        if self.has_failed() {
            // Bytes after a possible loss would be lost as well.
            return Err(io::Error::other("an earlier sync of it has failed"));
        }
        self.sync_files().inspect_err(|_| self.set_failed())
    }

    /// Does the work of `sync` while `files` is locked.
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

    /// Writes the indexes and snapshots of full segments, and the checkpoint of the active one; all
    /// are synced. What cannot be written is kept for [`finish_rest`](Self::finish_rest).
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

    /// Retries the writes of `finish_sealed` that failed. Returns whether there were any.
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

    /// Writes the indexes and the snapshot of a full segment while `files` is locked.
    fn finish(&self, one: &SealedSegment) -> io::Result<()> {
        let segments = self.published().segments.clone();
        let is_there = segments.iter().any(|it| Arc::ptr_eq(it, &one.segment));
        if is_there {
            // Release the blocks reserved past the end.
            disk::truncate(&*one.open.file, one.segment.size())?;
            // A full index does not change, so clone it instead of locking it during system calls.
            let index = lock(&one.index).clone();
            one.segment.write_index(&index)?;
            one.segment.set_sealed(&one.open)?;
        }
        // If the segment was deleted meanwhile, the log may start at this snapshot.
        write_snapshot(&self.folder, one.next_offset, &one.snapshot)?;
        disk::remove_if_there(&one.segment.path(CHECKPOINT))
    }
}
