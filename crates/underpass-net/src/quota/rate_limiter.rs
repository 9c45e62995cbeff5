//! Rate limits for several connections together: for all, or for one client, on any worker.
//!
//! Time is reserved: at R bytes per second a byte takes 1/R of a second, and each turn reserves the
//! next free interval and waits for its start. So turns are served in order, without needless
//! wake-ups; unused time is refunded. The workers share only one atomic word.
//!
//! ```text
//!  reserved up to ──────────┐
//!  ── time ──► [turn][turn][turn]│ free from here on; at most BURST of the past is ever reserved
//! ```

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A rate that connections share.
pub(crate) struct RateLimiter {
    bytes_per_second: NonZeroU64,
    began: Instant,
    /// The end of the reserved time, in nanoseconds since `began`.
    reserved: AtomicU64,
}

/// The position of a reservation within a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reservation {
    /// The first one. Unreserved time before it was idle.
    First,
    /// A later one. Unreserved time before it is due to a late timer.
    Next,
}

/// The limiters of a connection, at least one: its client's, and that of all connections. The
/// client's is first: while a connection waits for it, it has no reservation of the shared rate.
pub(crate) struct RateLimiters(Box<[Arc<RateLimiter>]>);

/// Unused time is lost after this long: idle seconds do not add up to a burst.
const BURST: Duration = Duration::from_millis(100);

/// The longest delay that is made up for if timers and workers are late, as on a busy machine.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// The bytes of one reservation: fifty reservations per second, but neither so small that calls
/// cost more than bytes, nor so large that one peer occupies the line for long.
const RESERVATIONS_PER_SECOND: u64 = 50;
const RESERVATION_BYTES_MIN: u64 = 4 << 10;
const RESERVATION_BYTES_MAX: u64 = 256 << 10;

impl RateLimiter {
    pub(crate) fn new(bytes_per_second: NonZeroU64) -> RateLimiter {
        RateLimiter {
            bytes_per_second,
            began: Instant::now(),
            reserved: AtomicU64::new(0),
        }
    }

    /// Reserves the next free interval for `bytes`, and returns the time to wait for it.
    pub(crate) fn reserve(&self, bytes: u64, reservation: Reservation) -> Duration {
        let now = nanoseconds(self.began.elapsed());
        self.reserve_at(now, bytes, reservation)
    }

    /// Returns the end of the reserved time, after which no state is needed.
    pub(crate) fn reserved_until(&self) -> Instant {
        self.began + Duration::from_nanos(self.reserved.load(Ordering::Relaxed))
    }

    fn reserve_at(&self, now: u64, bytes: u64, reservation: Reservation) -> Duration {
        let cost = self.cost(bytes);
        let unused = match reservation {
            Reservation::First => BURST,
            Reservation::Next => CATCH_UP_MAX,
        };
        let earliest = now.saturating_sub(nanoseconds(unused));
        let from = |reserved: u64| reserved.max(earliest);
        let reserved = self
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                Some(from(reserved).saturating_add(cost))
            })
            .unwrap_or_else(|reserved| reserved);
        Duration::from_nanos(from(reserved).saturating_sub(now))
    }

    /// Settles a reservation of `reserved_bytes` with the bytes sent: charges the excess, or
    /// refunds the rest.
    pub(crate) fn settle(&self, reserved_bytes: u64, sent: u64) {
        match sent.checked_sub(reserved_bytes) {
            Some(more) => self.reserved.fetch_add(self.cost(more), Ordering::Relaxed),
            None => self
                .reserved
                .fetch_sub(self.cost(reserved_bytes - sent), Ordering::Relaxed),
        };
    }

    fn reservation_bytes(&self) -> u64 {
        (self.bytes_per_second.get() / RESERVATIONS_PER_SECOND)
            .clamp(RESERVATION_BYTES_MIN, RESERVATION_BYTES_MAX)
    }

    fn cost(&self, bytes: u64) -> u64 {
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

impl RateLimiters {
    /// Collects the limiters that exist; `None` if no rate is limited.
    pub(crate) fn of(limiters: [Option<&Arc<RateLimiter>>; 2]) -> Option<RateLimiters> {
        let limiters: Box<[_]> = limiters.into_iter().flatten().map(Arc::clone).collect();
        (!limiters.is_empty()).then_some(RateLimiters(limiters))
    }

    /// Returns the bytes of a reservation: the minimum of the limiters, which bounds each turn.
    pub(crate) fn reservation_bytes(&self) -> u64 {
        let each = self.each().map(RateLimiter::reservation_bytes);
        each.min().unwrap_or(u64::MAX)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &RateLimiter> {
        self.0.iter().map(Arc::as_ref)
    }

    /// Settles the bytes that a turn sent.
    pub(crate) fn settle(&self, reserved_bytes: u64, sent: u64) {
        self.each()
            .for_each(|limiter| limiter.settle(reserved_bytes, sent));
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limiter(rate: u64) -> RateLimiter {
        RateLimiter::new(NonZeroU64::new(rate).unwrap())
    }

    /// Returns the bytes sent within `seconds` to a peer that always accepts everything
    /// immediately, with timers late by `late` nanoseconds.
    fn sent_within(rate: u64, seconds: u64, late: u64, used: impl Fn(u64) -> u64) -> u64 {
        let limiter = limiter(rate);
        let (mut now, mut sent) = (SECOND, 0);
        let mut reservation = Reservation::First;
        loop {
            let reserved_bytes = limiter.reservation_bytes();
            let wait = nanoseconds(limiter.reserve_at(now, reserved_bytes, reservation));
            reservation = Reservation::Next;
            now += if wait > 0 { wait + late } else { 0 };
            if now > (1 + seconds) * SECOND {
                return sent;
            }
            let bytes = used(reserved_bytes);
            limiter.settle(reserved_bytes, bytes);
            sent += bytes;
        }
    }

    #[test]
    fn the_rate_holds_over_seconds_whatever_turns_use_of_their_reservations() {
        for rate in [100_000, 1 << 20, 300 << 20] {
            let whole = sent_within(rate, 3, 1_000_000, |bytes| bytes);
            let half = sent_within(rate, 3, 1_000_000, |bytes| bytes / 2);
            let twice = sent_within(rate, 3, 1_000_000, |bytes| bytes * 2);
            for sent in [whole, half, twice] {
                let off = sent.abs_diff(3 * rate) as f64 / (3 * rate) as f64;
                assert!(off < 0.07, "{sent} of {}", 3 * rate);
            }
        }
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let limiter = limiter(1 << 20);
        let hour = 3_600 * SECOND;
        let mut free = 0;
        let bytes = limiter.reservation_bytes();
        while limiter.reserve_at(hour, bytes, Reservation::First) == Duration::ZERO {
            free += bytes;
        }
        assert!(free <= (1 << 20) / 8, "{free}");
    }

    #[test]
    fn waiting_turns_get_intervals_one_after_another() {
        let limiter = limiter(RESERVATION_BYTES_MIN);
        let waits: Vec<_> = (0..4)
            .map(|_| limiter.reserve_at(SECOND, RESERVATION_BYTES_MIN, Reservation::First))
            .collect();
        let second = Duration::from_secs(1);
        assert_eq!(waits[1] + second, waits[2]);
        assert_eq!(waits[2] + second, waits[3]);
    }

    #[test]
    fn two_limiters_reserve_what_the_smaller_one_allows() {
        let (client, all) = (Arc::new(limiter(1 << 20)), Arc::new(limiter(300 << 20)));
        let limiters = RateLimiters::of([Some(&client), Some(&all)]).unwrap();
        let reserved_bytes = limiters.reservation_bytes();
        assert_eq!(reserved_bytes, (1 << 20) / RESERVATIONS_PER_SECOND);
        for limiter in limiters.each() {
            let _wait = limiter.reserve_at(SECOND, reserved_bytes, Reservation::First);
        }
        let reserved = |limiter: &RateLimiter| limiter.reserved.load(Ordering::Relaxed);
        let before = (reserved(&client), reserved(&all));
        limiters.settle(reserved_bytes, 0);
        assert_eq!(before.0 - reserved(&client), client.cost(reserved_bytes));
        assert_eq!(before.1 - reserved(&all), all.cost(reserved_bytes));
        assert!(RateLimiters::of([None, None]).is_none());
    }
}
