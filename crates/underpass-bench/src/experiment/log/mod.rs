//! `bench log`: brokers for Kafka's clients compared with each other.

mod brokers;
mod fetch;
mod lifecycle;
mod options;
mod produce;
mod replay;

use super::{ExperimentContext, Measurable, RunScale};
use crate::document::Experiment;
use crate::error::Result;
use crate::load::allow_connections;
pub use options::LogBenchOptions;
use options::LogCase;

/// A broker has three files of each partition open.
const DESCRIPTORS: usize = 8000;

impl Measurable for LogBenchOptions {
    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let contenders = 1 + self.servers.len() as u64;
        let plays = self.cases().len() as u64 * (rounds as u64 + 3);
        contenders * plays * scale.pick(2500, 300)
    }

    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        allow_connections(DESCRIPTORS)?;
        let mut experiments = Vec::new();
        for case in self.cases() {
            if setting.runner.is_stopped() {
                break;
            }
            let measured = match case {
                LogCase::Fetch => fetch::fetch(self, setting),
                LogCase::Small => fetch::small(self, setting),
                LogCase::Produce => produce::produce(self, setting),
                LogCase::Durable => produce::durable(self, setting),
                LogCase::Replay => replay::replay(self, setting),
                LogCase::Start => lifecycle::start(self, setting),
                LogCase::Restart => lifecycle::restart(self, setting),
            };
            experiments.push(measured?);
        }
        Ok(experiments)
    }
}
