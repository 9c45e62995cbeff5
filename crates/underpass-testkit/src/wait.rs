//! Bounded waits.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The time after which a wait fails: long enough for a busy machine.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// The pause between two checks for something that no event reports.
const PAUSE: Duration = Duration::from_millis(1);

/// Polls `look` until it returns a value.
///
/// # Panics
///
/// Panics with `what` after [`WAIT_MAX`].
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what} after {WAIT_MAX:?}");
        thread::sleep(PAUSE);
    }
}

/// Polls until a condition holds.
///
/// # Panics
///
/// Panics with `what` after [`WAIT_MAX`].
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Runs `test` on a separate thread, so that a hanging test fails.
///
/// # Panics
///
/// Panics after [`WAIT_MAX`], and with the panic of `test`.
#[track_caller]
pub fn within<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    let thread = thread::spawn(move || {
        let value = test();
        let _abandoned = done.send(());
        value
    });
    match outcome.recv_timeout(WAIT_MAX) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done after {WAIT_MAX:?}"),
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_returns_what_it_finds() {
        let mut looks = 0;
        let found = wait_for("third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    fn a_bounded_test_returns_its_value() {
        assert_eq!(within(|| 7), 7);
    }

    #[test]
    #[should_panic(expected = "of the test")]
    fn a_bounded_test_passes_its_panic_on() {
        within(|| panic!("of the test"));
    }
}
