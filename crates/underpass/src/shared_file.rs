//! An open file whose ranges are sent to many sockets, and cached facts about it.
//!
//! A server sends a popular file to many peers concurrently. Its kind never changes while it is
//! open, and pages that were cached a moment ago mostly still are: both are looked up once, not for
//! every response.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use crate::vocabulary::endpoint::Endpoint;

#[cfg(feature = "tokio")]
use {crate::vocabulary::limits::CACHED_KEPT, std::sync::Mutex, std::time::Instant};

/// An open file, shared by all outboxes that hold a range of it. Its position is neither used nor
/// moved.
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    end: OnceLock<Endpoint>,
    #[cfg(feature = "tokio")]
    cached: Mutex<Option<Cached>>,
}

/// A range that was in the page cache.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cached {
    from: u64,
    until: u64,
    /// The time at which its oldest part was found cached.
    at: Instant,
}

impl SharedFile {
    /// Shares an open descriptor.
    pub fn new(fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            fd,
            end: OnceLock::new(),
            #[cfg(feature = "tokio")]
            cached: Mutex::new(None),
        })
    }

    /// Returns the endpoint; calls `look` the first time.
    pub(crate) fn end_or(
        &self,
        look: impl FnOnce(BorrowedFd<'_>) -> Result<Endpoint, Errno>,
    ) -> Result<Endpoint, Errno> {
        if let Some(end) = self.end.get() {
            return Ok(*end);
        }
        let end = look(self.fd.as_fd())?;
        Ok(*self.end.get_or_init(|| end))
    }

    /// Returns whether a range was in the page cache less than [`CACHED_KEPT`] before `now`.
    #[cfg(feature = "tokio")]
    pub(crate) fn was_cached(&self, from: u64, until: u64, now: Instant) -> bool {
        let cached = self.cached.lock().ok().and_then(|cached| *cached);
        cached.is_some_and(|cached| {
            cached.is_fresh(now) && cached.from <= from && until <= cached.until
        })
    }

    /// Records that a range is in the page cache at `now`.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_cached(&self, from: u64, until: u64, now: Instant) {
        let Ok(mut cached) = self.cached.lock() else {
            return;
        };
        let new = Cached {
            from,
            until,
            at: now,
        };
        *cached = Some(match *cached {
            Some(old) if old.is_fresh(now) && old.touches(&new) => Cached {
                from: old.from.min(from),
                until: old.until.max(until),
                at: old.at,
            },
            _ => new,
        });
    }
}

#[cfg(feature = "tokio")]
impl Cached {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < CACHED_KEPT
    }

    fn touches(&self, other: &Self) -> bool {
        self.from <= other.until && other.from <= self.until
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_cached_adds_up_while_it_is_fresh_and_is_forgotten_together() {
        let file = SharedFile::new(tempfile::tempfile().expect("a file").into());
        let start = Instant::now();
        assert!(!file.was_cached(0, 1, start));
        file.is_cached(100, 200, start);
        file.is_cached(200, 300, start + CACHED_KEPT / 2);
        file.is_cached(50, 100, start + CACHED_KEPT / 2);
        let soon = start + CACHED_KEPT / 2;
        assert!(file.was_cached(50, 300, soon));
        assert!(!file.was_cached(49, 60, soon) && !file.was_cached(290, 301, soon));
        assert!(!file.was_cached(250, 260, start + CACHED_KEPT));
    }

    #[test]
    fn ranges_apart_do_not_make_one() {
        let file = SharedFile::new(tempfile::tempfile().expect("a file").into());
        let now = Instant::now() + Duration::from_secs(1);
        file.is_cached(0, 100, now);
        file.is_cached(101, 200, now);
        assert!(file.was_cached(101, 200, now) && !file.was_cached(0, 100, now));
    }
}
