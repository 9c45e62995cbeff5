//! The experiments. Each has an `Options`, says beforehand how long it will take, and makes
//! [`Experiment`](crate::document::Experiment)s of the document by playing its cases.

pub(crate) mod closed;
pub mod cold;
pub mod copy;
pub mod http;
pub mod many;
pub(crate) mod observation;
pub(crate) mod serving;
pub mod small;
pub mod socket;
pub(crate) mod transfer;
pub mod tree;

use crate::contender::process::Processors;
use crate::contender::scratch::Scratch;
use crate::machine::Machine;

/// When a contender can fail in any of them outside of the rounds, as it goes on behind its name.
pub(crate) const TRACED: &str = "while its system calls were counted";

/// How much work a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunScale {
    /// Enough for figures worth keeping.
    Full,
    /// All experiments in a minute.
    Quick,
}

/// What all experiments stand on.
pub(crate) struct ExperimentContext<'a> {
    pub(crate) scratch: &'a Scratch,
    pub(crate) seats: Processors,
    pub(crate) machine: &'a Machine,
    pub(crate) scale: RunScale,
}

impl RunScale {
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            RunScale::Full => full,
            RunScale::Quick => quick,
        }
    }
}

/// The sizes of the cases: those asked for, or else the usual ones; each once, the smallest first.
pub(crate) fn sizes_of_cases(asked: &[u64], usual: &[u64]) -> Vec<u64> {
    let sizes = if asked.is_empty() { usual } else { asked };
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// `7 MB`, `10 KiB`, `1 GiB`: whole numbers of whichever unit fits, decimal or binary.
pub(crate) fn size_label(bytes: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
        (1000, "KB"),
    ];
    let whole = UNITS
        .iter()
        .find(|&&(unit, _)| bytes >= unit && bytes.is_multiple_of(unit));
    match whole {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_one_case_however_often_it_is_asked_for() {
        assert_eq!(sizes_of_cases(&[30, 10, 30], &[7]), [10, 30]);
        assert_eq!(sizes_of_cases(&[], &[7]), [7]);
    }

    #[test]
    fn sizes_are_named_by_the_unit_that_fits() {
        let sizes = [10_240, 7_000_000, 1 << 30, 1_000_000_000, 100 << 20, 1234];
        let labels = sizes.map(size_label);
        let expected = ["10 KiB", "7 MB", "1 GiB", "1 GB", "100 MiB", "1234 bytes"];
        assert_eq!(labels, expected);
    }
}
