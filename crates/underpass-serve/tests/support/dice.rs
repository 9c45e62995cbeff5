//! Chance that can be repeated: SplitMix64, one stream for each case. What is repeated is said by
//! environment variables: `UNDERPASS_SERVE_SEED` (1 where it isn't set), `UNDERPASS_SERVE_CASE` for
//! one case, `UNDERPASS_SERVE_CASES` for more or fewer.

use std::env;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn of(seed: u64, number: u64) -> Dice {
        let mut dice = Dice(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

pub(crate) fn seed() -> u64 {
    number("UNDERPASS_SERVE_SEED").unwrap_or(1)
}

/// The numbers of the cases to play, `count` of them where nobody asked for others.
pub(crate) fn numbers(count: u64) -> Range<u64> {
    match number("UNDERPASS_SERVE_CASE") {
        Some(number) => number..number + 1,
        None => 0..number("UNDERPASS_SERVE_CASES").unwrap_or(count),
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}
