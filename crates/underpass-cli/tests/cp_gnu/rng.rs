//! Chance that can be repeated: SplitMix64, one stream for each case.

#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut rng = Self(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        rng
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

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// One of those whose weight stands beside it.
    pub(crate) fn weighted<T: Copy>(&mut self, from: &[(u32, T)]) -> T {
        let all: u32 = from.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(all as usize) as u32;
        for (weight, choice) in from {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("the weights add up to their sum")
    }
}
