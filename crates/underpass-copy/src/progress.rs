//! How far a copy has come, for whoever looks from another thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that only grow. Read them whenever you like; they say nothing of each other's order.
#[derive(Debug, Default)]
pub struct Progress {
    /// Regular files met so far.
    pub files_found: AtomicU64,
    /// Regular files done with.
    pub files_done: AtomicU64,
    /// Bytes of the files met so far.
    pub bytes_found: AtomicU64,
    /// Bytes of them that are where they should be, holes included.
    pub bytes_done: AtomicU64,
    /// Not 0 once the walk has ended: nothing more will be found.
    pub all_found: AtomicU64,
}

impl Progress {
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

    pub(crate) fn walked(&self) {
        self.all_found.store(1, Relaxed);
    }
}
