//! From what is wanted to a document: the order of everything.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::contender::process::{self, Processors};
use crate::contender::scratch::Scratch;
use crate::document::{Document, Experiment, RunOutcome, SCHEMA, Tool};
use crate::error::Result;
use crate::experiment::{ExperimentContext, RunScale, cold, copy, http, many, small, socket, tree};
use crate::machine::{self, Machine};
use crate::rounds::progress::RunProgress;
use crate::rounds::run::{RoundRunner, has_too_few_rounds, warn_of_noise};

const ROUNDS_FULL: usize = 7;

/// The fewest that let a ratio be told (see [`stats`](crate::stats)).
const ROUNDS_QUICK: usize = 6;

/// How long a case may wait for quiet, if nobody says otherwise. In a hurry: not at all.
const PATIENCE_FULL: Duration = Duration::from_secs(10);

/// An experiment with its options.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A file through a TCP socket.
    Socket(socket::SocketOptions),
    /// A file to a file.
    Copy(copy::FileCopyOptions),
    /// Connections that ask servers for files.
    Http(http::HttpOptions),
    /// Small bodies: in one write with their head, or by sendfile behind it.
    Small(small::SmallOptions),
    /// Hot requests while cold files stream.
    Cold(cold::ColdOptions),
    /// Many slow readers of one file.
    Many(many::ManyOptions),
    /// Whole trees and special files, by programs.
    Tree(tree::TreeOptions),
}

/// How all of it is measured.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Whether there is a hurry.
    pub scale: RunScale,
    /// Rounds that count; 7, or 6 in a hurry, if none.
    pub rounds: Option<usize>,
    /// How long a case may wait for a quiet machine and repeat disturbed rounds.
    pub patience: Option<Duration>,
    /// Where to make the files to move; has to be on a disk for cold ones.
    pub scratch: PathBuf,
    /// The congestion control that was set up, if it is not the machine's.
    pub congestion: Option<String>,
    /// What is told of the command line.
    pub command: String,
}

/// Plays all that is wanted, one after the other. Once `stop` is set the running round is broken
/// off, and what was complete by then is in the document.
///
/// # Errors
/// The machine can't do what is needed, or one of our own delivers wrong bytes before anything is
/// measured, or all contenders of an experiment fail. One that can't take part, or fails in the
/// middle, is none: it is left out from there on, with a note.
pub fn measure(wanted: &[Wanted], settings: &RunSettings, stop: &AtomicBool) -> Result<Document> {
    let start = Instant::now();
    let date = machine::today();
    let mut warnings = machine::warnings();
    let scratch = Scratch::create(&settings.scratch)?;
    let experiments = play_all(wanted, settings, stop, &scratch);
    let machine = settings.machine(&scratch);
    scratch.finish()?;
    let experiments = experiments?;
    let cases = experiments.iter().map(|experiment| &experiment.cases);
    let noise = cases.clone().filter_map(|cases| warn_of_noise(cases));
    warnings.extend(noise.max_by_key(String::len));
    if cases.clone().any(|cases| has_too_few_rounds(cases)) {
        warnings.push("fewer than 6 rounds can't tell a ratio; see --rounds".to_owned());
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

fn play_all(
    wanted: &[Wanted],
    settings: &RunSettings,
    stop: &AtomicBool,
    scratch: &Scratch,
) -> Result<Vec<Experiment>> {
    let seats = Processors::find();
    if let Some(processor) = seats.bench {
        process::bind_to(processor)?;
    }
    let scale = settings.scale;
    let rounds = settings.rounds().max(1);
    let weights = wanted.iter().map(|wanted| wanted.weight(scale, rounds));
    let progress = RunProgress::of(weights.sum());
    let machine = settings.machine(scratch);
    let ground = ExperimentContext {
        scratch,
        seats,
        machine: &machine,
        scale,
    };
    let run = RoundRunner {
        rounds,
        patience: settings.patience(),
        stop,
        progress: &progress,
    };
    let mut experiments = Vec::new();
    for wanted in wanted {
        if !run.is_stopped() {
            experiments.extend(wanted.play(&ground, &run)?);
        }
    }
    progress.finish();
    Ok(experiments)
}

impl Wanted {
    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        match self {
            Wanted::Socket(options) => socket::weight(options, scale, rounds),
            Wanted::Copy(options) => copy::weight(options, scale, rounds),
            Wanted::Http(options) => http::weight(options, scale, rounds),
            Wanted::Small(options) => small::weight(options, scale, rounds),
            Wanted::Cold(options) => cold::weight(options, scale, rounds),
            Wanted::Many(options) => many::weight(options, scale, rounds),
            Wanted::Tree(options) => tree::weight(options, scale, rounds),
        }
    }

    fn play(&self, ground: &ExperimentContext, run: &RoundRunner) -> Result<Vec<Experiment>> {
        match self {
            Wanted::Socket(options) => socket::run(options, ground, run),
            Wanted::Copy(options) => copy::run(options, ground, run),
            Wanted::Http(options) => http::run(options, ground, run),
            Wanted::Small(options) => small::run(options, ground, run),
            Wanted::Cold(options) => cold::run(options, ground, run),
            Wanted::Many(options) => many::run(options, ground, run),
            Wanted::Tree(options) => tree::run(options, ground, run),
        }
    }
}

impl RunSettings {
    fn rounds(&self) -> usize {
        let usual = self.scale.pick(ROUNDS_FULL, ROUNDS_QUICK);
        self.rounds.unwrap_or(usual)
    }

    fn patience(&self) -> Duration {
        let usual = self.scale.pick(PATIENCE_FULL, Duration::ZERO);
        self.patience.unwrap_or(usual)
    }

    fn machine(&self, scratch: &Scratch) -> Machine {
        let machine = Machine::look(scratch.path());
        match &self.congestion {
            Some(congestion_control) => Machine {
                congestion_control: congestion_control.clone(),
                ..machine
            },
            None => machine,
        }
    }
}
