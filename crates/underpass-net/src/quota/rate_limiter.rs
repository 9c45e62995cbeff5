//! What several connections may send together: all of them, or those of one client, whatever worker
//! they are at.
//!
//! Time is sold: at R bytes per second a byte costs 1/R of a second, and each turn gets the next
//! stretch that nobody has. Whoever comes early waits for its stretch, so nobody is passed over and
//! nobody is woken in vain; what a turn did not use goes back to those who come next. One atomic
//! word is all that the workers share.
//!
//! ```text
//!  paid up to ──────────────┐
//!  ── time ──► [turn][turn][turn]│ free from here on; at most BURST of the past is ever sold
//! ```

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A rate that is shared.
pub(crate) struct Bandwidth {
    bytes_per_second: NonZeroU64,
    began: Instant,
    /// Nanoseconds since then that are sold.
    sold: AtomicU64,
}

/// Which slot of an answer is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Claim {
    /// Its first. Whatever time has passed unsold was idle.
    First,
    /// One more. Time has passed unsold because somebody was late.
    Next,
}

/// The bandwidths that a connection has its slots of: its client's, and that of all.
#[derive(Clone, Copy)]
pub(crate) struct Shares<'b>(pub(crate) [Option<&'b Bandwidth>; 2]);

/// What was not used for so long is lost: idle seconds don't add up to a flood.
const BURST: Duration = Duration::from_millis(100);

/// So much is made up for where timers and workers are late, as on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Bytes sold at once: fifty slots in a second, but neither so small that calls cost more than
/// bytes, nor so large that one peer has the line for long.
const SLOTS_PER_SECOND: u64 = 50;
const SLOT_BYTES_MIN: u64 = 4 << 10;
const SLOT_BYTES_MAX: u64 = 256 << 10;

impl Bandwidth {
    pub(crate) fn new(bytes_per_second: NonZeroU64) -> Bandwidth {
        Bandwidth {
            bytes_per_second,
            began: Instant::now(),
            sold: AtomicU64::new(0),
        }
    }

    /// Sells the next stretch that is free to somebody who wants to send so many bytes, and says
    /// how long to wait for it.
    pub(crate) fn sell(&self, bytes: u64, claim: Claim) -> Duration {
        let now = nanoseconds(self.began.elapsed());
        self.sell_at(now, bytes, claim)
    }

    /// Until when all is sold. From then on there is nothing to remember.
    pub(crate) fn sold_until(&self) -> Instant {
        self.began + Duration::from_nanos(self.sold.load(Ordering::Relaxed))
    }

    fn sell_at(&self, now: u64, bytes: u64, claim: Claim) -> Duration {
        let cost = self.cost(bytes);
        let unsold = match claim {
            Claim::First => BURST,
            Claim::Next => LATE_MAX,
        };
        let earliest = now.saturating_sub(nanoseconds(unsold));
        let from = |sold: u64| sold.max(earliest);
        let sold = self
            .sold
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sold| {
                Some(from(sold).saturating_add(cost))
            })
            .unwrap_or_else(|sold| sold);
        Duration::from_nanos(from(sold).saturating_sub(now))
    }

    /// Settles what a turn has sent that has `paid` for so many bytes: more costs more, what is
    /// left goes back.
    pub(crate) fn settle(&self, paid: u64, sent: u64) {
        match sent.checked_sub(paid) {
            Some(more) => self.sold.fetch_add(self.cost(more), Ordering::Relaxed),
            None => self
                .sold
                .fetch_sub(self.cost(paid - sent), Ordering::Relaxed),
        };
    }

    fn slot_bytes(&self) -> u64 {
        (self.bytes_per_second.get() / SLOTS_PER_SECOND).clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX)
    }

    fn cost(&self, bytes: u64) -> u64 {
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

impl<'b> Shares<'b> {
    /// What a slot has; none where no bandwidth is limited. The smallest: nobody should pay for
    /// what it may not send anyway.
    pub(crate) fn slot_bytes(&self) -> Option<u64> {
        self.each().map(Bandwidth::slot_bytes).min()
    }

    /// Those that are limited. The client's comes first: who waits for that one has nothing of
    /// what is everybody's meanwhile.
    pub(crate) fn each(&self) -> impl Iterator<Item = &'b Bandwidth> + use<'b> {
        self.0.into_iter().flatten()
    }

    /// Settles what a turn has sent.
    pub(crate) fn settle(&self, paid: u64, sent: u64) {
        self.each()
            .for_each(|bandwidth| bandwidth.settle(paid, sent));
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bandwidth(rate: u64) -> Bandwidth {
        Bandwidth::new(NonZeroU64::new(rate).unwrap())
    }

    /// What is sent within `seconds` by somebody who always sends at once, timers being late by
    /// `late` nanoseconds.
    fn sent_within(rate: u64, seconds: u64, late: u64, used: impl Fn(u64) -> u64) -> u64 {
        let bandwidth = bandwidth(rate);
        let (mut now, mut sent) = (SECOND, 0);
        let mut claim = Claim::First;
        loop {
            let paid = bandwidth.slot_bytes();
            let wait = nanoseconds(bandwidth.sell_at(now, paid, claim));
            claim = Claim::Next;
            now += if wait > 0 { wait + late } else { 0 };
            if now > (1 + seconds) * SECOND {
                return sent;
            }
            let bytes = used(paid);
            bandwidth.settle(paid, bytes);
            sent += bytes;
        }
    }

    #[test]
    fn the_rate_holds_over_seconds_whatever_turns_use_of_their_slots() {
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
        let bandwidth = bandwidth(1 << 20);
        let hour = 3_600 * SECOND;
        let mut free = 0;
        let bytes = bandwidth.slot_bytes();
        while bandwidth.sell_at(hour, bytes, Claim::First) == Duration::ZERO {
            free += bytes;
        }
        assert!(free <= (1 << 20) / 8, "{free}");
    }

    #[test]
    fn who_waits_gets_stretches_one_after_the_other() {
        let bandwidth = bandwidth(SLOT_BYTES_MIN);
        let waits: Vec<_> = (0..4)
            .map(|_| bandwidth.sell_at(SECOND, SLOT_BYTES_MIN, Claim::First))
            .collect();
        let second = Duration::from_secs(1);
        assert_eq!(waits[1] + second, waits[2]);
        assert_eq!(waits[2] + second, waits[3]);
    }

    #[test]
    fn who_has_two_shares_pays_both_for_what_the_smaller_one_sells() {
        let (client, all) = (bandwidth(1 << 20), bandwidth(300 << 20));
        let shares = Shares([Some(&client), Some(&all)]);
        let paid = shares.slot_bytes().unwrap();
        assert_eq!(paid, (1 << 20) / SLOTS_PER_SECOND);
        for bandwidth in shares.each() {
            let _wait = bandwidth.sell_at(SECOND, paid, Claim::First);
        }
        let sold = |bandwidth: &Bandwidth| bandwidth.sold.load(Ordering::Relaxed);
        let before = (sold(&client), sold(&all));
        shares.settle(paid, 0);
        assert_eq!(before.0 - sold(&client), client.cost(paid));
        assert_eq!(before.1 - sold(&all), all.cost(paid));
        assert_eq!(Shares([None, None]).slot_bytes(), None);
    }
}
