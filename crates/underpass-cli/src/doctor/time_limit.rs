//! Time limits for work that may never end: a dead network mount, a file that blocks on reading.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The limit for inspecting one path, and for one trial.
pub(super) const TRIAL_TIME_MAX: Duration = Duration::from_secs(5);

/// The limit for all trials together.
pub(super) const TRIALS_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs the work on a separate thread and returns its result, or `None` after the limit or a panic.
/// A thread over the limit is abandoned; it ends with the process.
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
