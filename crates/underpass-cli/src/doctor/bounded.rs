//! Work that may never end: a dead network mount, a file that blocks on reading.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What one look at a path, and one trial, may take.
pub(super) const TRIAL_TIME_MAX: Duration = Duration::from_secs(5);

/// What all trials together may take.
pub(super) const TRIALS_TIME_MAX: Duration = Duration::from_secs(60);

/// Does the work on a thread of its own, and waits no longer than the limit; the thread is then
/// left behind, to end with the process. `None` also where it panicked.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .spawn(move || sender.send(work()))
        .ok()?;
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ends_gives_its_result_and_other_work_none() {
        assert_eq!(within(TRIAL_TIME_MAX, || 7), Some(7));
        let (_kept, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(1), move || never.recv()), None);
    }
}
