//! The experiments. Each one is its options, which estimate how long it takes and make
//! [`Experiment`]s of the document.

pub(crate) mod closed;
pub(crate) mod cold;
pub(crate) mod copy;
pub(crate) mod folders;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod many;
pub(crate) mod sample;
pub(crate) mod serving;
pub(crate) mod sizes;
pub(crate) mod small;
pub(crate) mod socket;
pub(crate) mod transfer;
pub(crate) mod tree;

use crate::contender::process::Processors;
use crate::contender::scratch::Scratch;
use crate::document::Experiment;
use crate::error::Result;
use crate::machine::Machine;
use crate::rounds::runner::RoundRunner;

/// The amount of work in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunScale {
    /// Enough for figures worth keeping.
    Full,
    /// All experiments within a minute.
    Quick,
}

pub(crate) struct ExperimentContext<'a> {
    pub(crate) scratch: &'a Scratch,
    pub(crate) processors: Processors,
    pub(crate) machine: &'a Machine,
    pub(crate) scale: RunScale,
    /// The congestion control of this loopback; `None` where it is the machine's.
    pub(crate) control: Option<&'a str>,
    pub(crate) runner: RoundRunner<'a>,
}

pub(crate) trait Measurable {
    /// Estimates how many milliseconds it takes.
    fn weight(&self, scale: RunScale, rounds: usize) -> u64;

    /// Under which congestion controls it is measured unless others are requested; none stands for
    /// the machine's, and `None` for an experiment without a network.
    fn usual_controls(&self, _: RunScale) -> Option<&'static [&'static str]> {
        Some(&[])
    }

    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>>;
}

impl RunScale {
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            RunScale::Full => full,
            RunScale::Quick => quick,
        }
    }
}
