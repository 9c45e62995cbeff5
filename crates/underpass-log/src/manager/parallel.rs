//! Work on many partitions at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `work` for each item on `threads` threads, including the calling one. Returns when all
/// calls have returned.
pub(crate) fn for_each<T: Sync>(items: &[T], threads: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            // If a thread cannot be started, the others do its work.
            let _ = thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}
