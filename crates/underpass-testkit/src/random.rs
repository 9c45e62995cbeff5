//! Reproducible random numbers: SplitMix64.

use std::env;
use std::fmt::{self, Debug, Display};
use std::ops::Range;

/// A generator; equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates the generator for a numbered case of a seeded run.
    pub fn of_case(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next_u64();
        random
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is positive.
    pub fn below<N>(&mut self, end: N) -> N
    where
        N: TryInto<u64, Error: Debug> + TryFrom<u64, Error: Debug>,
    {
        let end = end.try_into().expect("a positive bound");
        N::try_from(self.next_u64() % end).expect("less than the bound")
    }

    /// Returns true with a probability of `percent` in 100.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns an element of a slice that is not empty.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Returns one element, each with a probability proportional to its weight.
    pub fn weighted<T: Copy>(&mut self, from: &[(u32, T)]) -> T {
        let all: u32 = from.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(all);
        for (weight, choice) in from {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("the weights add up to their sum")
    }
}

/// A part of the cases of a run: `3/8` is the fourth of eight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sample {
    /// The index of the part, counted from 0.
    pub part: u64,
    /// The number of parts.
    pub parts: u64,
}

impl Sample {
    /// The environment variable that chooses one. Tests run all cases if it is not set.
    pub const VARIABLE: &str = "UNDERPASS_SAMPLE";

    /// Reads [`Sample::VARIABLE`].
    ///
    /// # Panics
    ///
    /// Panics if it is set and is not a valid sample.
    pub fn from_env() -> Option<Self> {
        let value = env::var(Self::VARIABLE).ok()?;
        let sample = Self::parse(&value);
        Some(sample.unwrap_or_else(|| panic!("{}={value}: expected K/N", Self::VARIABLE)))
    }

    fn parse(text: &str) -> Option<Self> {
        let (part, parts) = text.split_once('/')?;
        let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
        (part < parts).then_some(Self { part, parts })
    }

    /// Returns the cases of a matrix that belong to the part, each with its number. Neighbours in
    /// the matrix fall into different parts in no order.
    pub fn of<C>(self, cases: impl IntoIterator<Item = C>) -> Vec<(usize, C)> {
        let numbered = cases.into_iter().enumerate();
        let is_in = |number: usize| {
            let random = SeededRandom::of_case(0, number as u64).next_u64();
            random % self.parts == self.part
        };
        numbered.filter(|(number, _)| is_in(*number)).collect()
    }

    /// Returns the numbers of generated cases that belong to the part.
    fn numbers(self, count: u64) -> Range<u64> {
        let start = |part| count * part / self.parts;
        start(self.part)..start(self.part + 1)
    }
}

impl Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.parts)
    }
}

/// Returns the cases of a fault matrix that this run takes, each with its number.
pub fn sampled<C>(cases: impl IntoIterator<Item = C>) -> Vec<(usize, C)> {
    let all = Sample { part: 0, parts: 1 };
    Sample::from_env().unwrap_or(all).of(cases)
}

/// The cases of a run, chosen by environment variables: `PREFIX_SEED` (1 if not set), `PREFIX_CASE`
/// for one case, `PREFIX_CASES` for more or fewer, [`Sample::VARIABLE`] for a part of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cases {
    /// The seed of all cases.
    pub seed: u64,
    /// The numbers of the cases.
    pub numbers: Range<u64>,
}

impl Cases {
    /// Reads the variables of `prefix`; `count` cases unless they specify another number.
    ///
    /// # Panics
    ///
    /// Panics if a variable is not a number.
    pub fn from_env(prefix: &str, count: u64) -> Self {
        Self::chosen(count, Sample::from_env(), |name| {
            let variable = format!("{prefix}_{name}");
            let value = env::var(&variable).ok()?;
            let number = value.parse();
            Some(number.unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
        })
    }

    fn chosen(count: u64, sample: Option<Sample>, number: impl Fn(&str) -> Option<u64>) -> Self {
        let numbers = match (number("CASE"), number("CASES"), sample) {
            (Some(number), ..) => number..number + 1,
            (None, Some(count), _) => 0..count,
            (None, None, Some(sample)) => sample.numbers(count),
            (None, None, None) => 0..count,
        };
        let seed = number("SEED").unwrap_or(1);
        Self { seed, numbers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = SeededRandom::new(0);
        assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_case_is_repeated_by_its_number_and_no_other_is_like_it() {
        let first = |seed, number| SeededRandom::of_case(seed, number).next_u64();
        assert_eq!(first(1, 7), first(1, 7));
        assert_ne!(first(1, 7), first(1, 8));
        assert_ne!(first(1, 7), first(2, 7));
    }

    #[test]
    fn choices_keep_their_bounds_and_weights() {
        let mut random = SeededRandom::new(3);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            seen[random.below(3_usize)] += 1;
            assert_ne!(random.weighted(&[(1, 'a'), (0, 'b'), (2, 'c')]), 'b');
        }
        assert!(seen.iter().all(|&times| times > 200), "{seen:?}");
    }

    #[test]
    fn variables_choose_cases() {
        let of = |set: &[(&str, u64)]| {
            let cases = Cases::chosen(5, None, |name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, number)| *number)
            });
            (cases.seed, cases.numbers)
        };
        assert_eq!(of(&[]), (1, 0..5));
        assert_eq!(of(&[("SEED", 4), ("CASES", 9)]), (4, 0..9));
        assert_eq!(of(&[("CASE", 8), ("CASES", 9)]), (1, 8..9));
        let sampled = Cases::chosen(80, Sample::parse("3/8"), |_| None);
        assert_eq!(sampled.numbers, 30..40);
    }

    #[test]
    fn samples_are_disjoint_and_leave_no_case_out() {
        let mut seen = Vec::new();
        for part in 0..8 {
            let sample = Sample { part, parts: 8 };
            assert_eq!(Sample::parse(&sample.to_string()), Some(sample));
            let cases = sample.of(100..1100);
            assert!((80..170).contains(&cases.len()), "{}", cases.len());
            seen.extend(cases);
        }
        seen.sort_unstable();
        assert_eq!(seen, (100..1100).enumerate().collect::<Vec<_>>());
        assert_eq!(Sample::parse("8/8"), None);
        assert_eq!(Sample::parse("8"), None);
    }
}
