//! A whole run: all requested experiments, one after the other, into one document.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::contender::process::{self, Processors};
use crate::contender::scratch::Scratch;
use crate::document::{Document, Experiment, RunOutcome, SCHEMA, Tool};
use crate::error::Result;
use crate::experiment::{ExperimentContext, Measurable, RunScale};
use crate::machine::{self, Machine, network};
use crate::rounds::metric::{has_too_few_rounds, warn_of_noise};
use crate::rounds::progress::RunProgress;
use crate::rounds::runner::RoundRunner;

const ROUNDS_FULL: usize = 7;

/// The fewest rounds that can show a ratio (see [`stats`](crate::stats)).
const ROUNDS_QUICK: usize = 6;

/// The default time for which a case waits for a quiet machine.
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
    /// The amount of work in a round.
    pub scale: RunScale,
    /// Rounds that count; 7 by default, 6 in a quick run.
    pub rounds: Option<usize>,
    /// The time in which a case may wait for a quiet machine and repeat disturbed rounds; 10 s by
    /// default, 0 in a quick run.
    pub patience: Option<Duration>,
    /// The directory for the test files; cold files need a disk.
    pub scratch: PathBuf,
    /// The congestion controls of TCP under each of which everything is measured, as root. By
    /// default the machine's, and for large files over HTTP bbr and cubic where that is possible.
    pub congestion: Vec<String>,
    /// The command line for the report.
    pub command: String,
}

/// Runs the experiments one after the other. Once `stop` is set, the current round is abandoned
/// and the document holds the complete ones.
///
/// # Errors
/// The machine can't do what is needed, or one of our own contenders delivers wrong bytes before
/// anything is measured. A contender that fails is left out from then on, with a note; where all
/// fail, the experiment has the cases before.
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
    let planned = benchmarks.iter().map(|Benchmark(one)| {
        let controls = NetworkControls::plan(one.usual_controls(scale), &settings.congestion);
        (one, controls)
    });
    let planned: Vec<_> = planned.collect();
    let weights = planned
        .iter()
        .map(|(one, controls)| one.weight(scale, rounds) * controls.each.len() as u64);
    let progress = RunProgress::of(weights.sum());
    let patience = scale.pick(PATIENCE_FULL, Duration::ZERO);
    let mut setting = ExperimentContext {
        scratch,
        processors,
        machine: &settings.machine(scratch),
        scale,
        control: None,
        runner: RoundRunner {
            rounds,
            patience: settings.patience.unwrap_or(patience),
            stop,
            progress: &progress,
        },
    };
    let mut experiments = Vec::new();
    for (benchmark, controls) in &planned {
        for &control in controls
            .each
            .iter()
            .filter(|_| !stop.load(Ordering::Relaxed))
        {
            setting.control = control;
            let mut measured = match control {
                None => benchmark.run(&setting)?,
                Some(control) => network::under(control, || benchmark.run(&setting))?,
            };
            measured
                .iter_mut()
                .for_each(|one| controls.mark(one, control));
            experiments.extend(measured);
        }
    }
    progress.finish();
    Ok(experiments)
}

/// Under which congestion controls an experiment is measured; `None` stands for the machine's.
struct NetworkControls<'a> {
    each: Vec<Option<&'a str>>,
    /// Why not under all that are usual.
    lack: Option<String>,
}

impl<'a> NetworkControls<'a> {
    fn plan(usual: Option<&'a [&'a str]>, requested: &'a [String]) -> NetworkControls<'a> {
        let mut controls = match (usual, requested) {
            (None, _) => Vec::new(),
            (Some(usual), []) => usual.to_vec(),
            (Some(_), requested) => requested.iter().map(String::as_str).collect(),
        };
        let mut lack = None;
        if requested.is_empty() {
            let mut tried = controls.iter();
            let refused = tried.find_map(|control| network::under(control, || Ok(())).err());
            if let Some(error) = refused {
                let (missed, own) = (controls.join(" and "), network::machines_control());
                let only = format!("only under the machine's congestion control, {own}");
                lack = Some(format!("not measured under {missed}, {only}: {error}"));
                controls.clear();
            }
        }
        let machines = controls.is_empty().then_some(None);
        let each = controls.into_iter().map(Some).chain(machines).collect();
        NetworkControls { each, lack }
    }

    fn mark(&self, experiment: &mut Experiment, control: Option<&str>) {
        experiment.notes.extend(self.lack.clone());
        if let Some(control) = control.filter(|_| self.each.len() > 1) {
            experiment.title += &format!(" under {control}");
            experiment.variant += &format!(", under {control}");
        }
    }
}

impl RunSettings {
    fn machine(&self, scratch: &Scratch) -> Machine {
        let mut machine = Machine::look(scratch.path());
        if !self.congestion.is_empty() {
            machine.congestion_control = self.congestion.join(", ");
        }
        machine
    }
}
