//! How far a copy has come, for whoever looks from another thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::Stat;

use crate::fs::stat::{is_regular, size};

/// Counters that only grow. Read them whenever you like; they say nothing of each other's order.
#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Regular files that a [`survey`](crate::survey) has found so far.
    pub files_found: AtomicU64,
    /// Regular files done with.
    pub files_done: AtomicU64,
    /// Bytes of these files.
    pub bytes_found: AtomicU64,
    /// Bytes that are where they should be, holes included.
    pub bytes_done: AtomicU64,
    /// Not 0 once a survey has seen all there is: nothing more will be found.
    pub all_found: AtomicU64,
}

impl CopyProgress {
    pub(crate) fn found(&self, bytes: u64) {
        self.files_found.fetch_add(1, Relaxed);
        self.bytes_found.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn advanced(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn file_done(&self) {
        self.files_done.fetch_add(1, Relaxed);
    }

    /// A file whose destination stays: nothing of it is left to do.
    pub(crate) fn passed_over(&self, file: &Stat) {
        if is_regular(file) {
            self.advanced(size(file));
            self.file_done();
        }
    }

    pub(crate) fn walked(&self) {
        self.all_found.store(1, Relaxed);
    }
}
