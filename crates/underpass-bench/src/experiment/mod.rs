//! The experiments. Each has an `Options`, says beforehand how long it will take, and makes
//! [`Experiment`](crate::document::Experiment)s of the document by playing its cases.

use crate::machine::Machine;
use crate::process::Seats;
use crate::scratch::Scratch;

/// How much work a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Enough for figures worth keeping.
    Full,
    /// All experiments in a minute.
    Quick,
}

/// What all experiments stand on.
pub(crate) struct Ground<'a> {
    pub(crate) scratch: &'a Scratch,
    pub(crate) seats: Seats,
    pub(crate) machine: &'a Machine,
    pub(crate) scale: Scale,
}

impl Scale {
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Quick => quick,
        }
    }
}
