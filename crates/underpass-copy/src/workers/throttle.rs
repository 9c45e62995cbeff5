//! A limit on the copying rate (`--bwlimit`), for all files together.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fs::fifo::NAP;

/// Spreads bytes over time.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: u64,
    /// The time at which all bytes so far would be done at the limited rate.
    due: Mutex<Instant>,
}

impl Throttle {
    pub(crate) fn to(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            due: Mutex::new(Instant::now()),
        }
    }

    /// Returns the maximum size of one call, so that ten of them take a second.
    pub(crate) fn call_bytes_max(&self) -> u64 {
        (self.bytes_per_second / 10).clamp(4096, underpass::limits::FILE_CALL_BYTES_MAX)
    }

    /// Blocks until `bytes` more are due, or the copy is stopped.
    pub(crate) fn spend(&self, bytes: u64, stop: &AtomicBool) {
        let due = self.book(bytes, Instant::now());
        while !stop.load(Relaxed) {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    /// Returns the time at which `bytes` more are due. Idle time is not made up for.
    fn book(&self, bytes: u64, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let more = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        *due = now.max(*due) + more;
        *due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_evenly_and_idle_time_is_not_made_up_for() {
        let throttle = Throttle::to(1000);
        let now = Instant::now();
        assert_eq!(throttle.book(500, now), now + Duration::from_millis(500));
        assert_eq!(throttle.book(500, now), now + Duration::from_secs(1));
        let later = now + Duration::from_secs(60);
        assert_eq!(
            throttle.book(100, later),
            later + Duration::from_millis(100)
        );
    }
}
