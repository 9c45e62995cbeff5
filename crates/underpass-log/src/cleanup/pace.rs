//! The pace of a compaction: it ends when the broker stops, and reads and writes no faster than it
//! may.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cleanup::error::CleanError;

/// The longest sleep until the next check whether to stop.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The pace of one pass.
#[derive(Debug)]
pub(crate) struct Pace<'p> {
    is_stopped: &'p AtomicBool,
    bytes_per_second_max: u64,
    began: Instant,
    /// Bytes read and written.
    pub(crate) bytes: u64,
}

impl<'p> Pace<'p> {
    pub(crate) fn new(is_stopped: &'p AtomicBool, bytes_per_second_max: u64) -> Pace<'p> {
        Pace {
            is_stopped,
            bytes_per_second_max,
            began: Instant::now(),
            bytes: 0,
        }
    }

    /// Counts bytes that were read or written, and sleeps while there were too many.
    ///
    /// # Errors
    /// [`CleanError::Interrupted`] if the broker stops.
    pub(crate) fn step(&mut self, bytes: usize) -> Result<(), CleanError> {
        self.bytes += bytes as u64;
        loop {
            if self.is_stopped.load(Ordering::Acquire) {
                return Err(CleanError::Interrupted);
            }
            let due = self.bytes as f64 / self.bytes_per_second_max as f64;
            let due = Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX);
            let early = due.saturating_sub(self.began.elapsed());
            if early.is_zero() {
                return Ok(());
            }
            thread::sleep(early.min(SLEEP_MAX));
        }
    }

    /// Returns the time since the start of the pass.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
