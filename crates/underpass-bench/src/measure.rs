//! A whole run: all requested experiments, one after the other, into one document.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::contender::process::{self, Processors};
use crate::contender::scratch::Scratch;
use crate::document::{Document, Experiment, RunOutcome, SCHEMA, Tool};
use crate::error::Result;
use crate::experiment::{ExperimentContext, Measurable, RunScale};
use crate::machine::{self, Machine};
use crate::rounds::metric::{has_too_few_rounds, warn_of_noise};
use crate::rounds::progress::RunProgress;
use crate::rounds::runner::RoundRunner;

const ROUNDS_FULL: usize = 7;

/// The fewest rounds that can show a ratio (see [`stats`](crate::stats)).
const ROUNDS_QUICK: usize = 6;

/// How long a case waits for a quiet machine by default.
const PATIENCE_FULL: Duration = Duration::from_secs(10);

/// An experiment with its options.
pub struct Benchmark(Box<dyn Measurable>);

impl<E: Measurable + 'static> From<E> for Benchmark {
    fn from(options: E) -> Benchmark {
        Benchmark(Box::new(options))
    }
}

/// How to measure all experiments of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// How much work a round is.
    pub scale: RunScale,
    /// Rounds that count; 7 by default, 6 in a quick run.
    pub rounds: Option<usize>,
    /// How long a case may wait for a quiet machine and repeat disturbed rounds; 10 s by default, 0
    /// in a quick run.
    pub patience: Option<Duration>,
    /// Where to create the test files; cold files need a disk.
    pub scratch: PathBuf,
    /// The congestion control that was set up, if it differs from the machine's.
    pub congestion: Option<String>,
    /// The command line for the report.
    pub command: String,
}

/// Runs the experiments one after the other. Once `stop` is set, the current round is abandoned
/// and the document holds what was complete before.
///
/// # Errors
/// The machine can't do what is needed, one of our own contenders delivers wrong bytes before
/// anything is measured, or all contenders of an experiment fail. A single contender that fails is
/// left out from then on, with a note.
pub fn measure(
    benchmarks: &[Benchmark],
    settings: &RunSettings,
    stop: &AtomicBool,
) -> Result<Document> {
    let start = Instant::now();
    let date = machine::today();
    let mut warnings = machine::warnings();
    let scratch = Scratch::create(&settings.scratch)?;
    let experiments = run_all(benchmarks, settings, stop, &scratch);
    let machine = settings.machine(&scratch);
    scratch.finish()?;
    let experiments = experiments?;
    let cases = experiments.iter().map(|experiment| &experiment.cases);
    let noise = cases.clone().filter_map(|cases| warn_of_noise(cases));
    warnings.extend(noise.max_by_key(String::len));
    if cases.clone().any(|cases| has_too_few_rounds(cases)) {
        warnings.push("fewer than 6 rounds can't show a ratio; see --rounds".to_owned());
    }
    let outcome = match stop.load(Ordering::Relaxed) {
        true => RunOutcome::Interrupted,
        false => RunOutcome::Complete,
    };
    Ok(Document {
        schema: SCHEMA,
        tool: Tool {
            name: "underpass".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        },
        date,
        command: settings.command.clone(),
        seconds: start.elapsed().as_secs_f64(),
        outcome,
        machine,
        warnings,
        experiments,
    })
}

fn run_all(
    benchmarks: &[Benchmark],
    settings: &RunSettings,
    stop: &AtomicBool,
    scratch: &Scratch,
) -> Result<Vec<Experiment>> {
    let processors = Processors::find();
    if let Some(processor) = processors.bench {
        process::bind_to(processor)?;
    }
    let scale = settings.scale;
    let usual = scale.pick(ROUNDS_FULL, ROUNDS_QUICK);
    let rounds = settings.rounds.unwrap_or(usual).max(1);
    let benchmarks = benchmarks.iter().map(|Benchmark(one)| one);
    let weights = benchmarks.clone().map(|one| one.weight(scale, rounds));
    let progress = RunProgress::of(weights.sum());
    let patience = scale.pick(PATIENCE_FULL, Duration::ZERO);
    let setting = ExperimentContext {
        scratch,
        processors,
        machine: &settings.machine(scratch),
        scale,
        runner: RoundRunner {
            rounds,
            patience: settings.patience.unwrap_or(patience),
            stop,
            progress: &progress,
        },
    };
    let mut experiments = Vec::new();
    for benchmark in benchmarks {
        if !setting.runner.is_stopped() {
            experiments.extend(benchmark.run(&setting)?);
        }
    }
    progress.finish();
    Ok(experiments)
}

impl RunSettings {
    fn machine(&self, scratch: &Scratch) -> Machine {
        let mut machine = Machine::look(scratch.path());
        if let Some(congestion_control) = &self.congestion {
            machine.congestion_control.clone_from(congestion_control);
        }
        machine
    }
}
