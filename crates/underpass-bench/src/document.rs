//! The result of a run: one document, from which every table, chart and comparison is made.
//!
//! ```text
//!  Document ─┬─ machine, tool, warnings
//!            └─ experiments ─┬─ contenders              who was measured
//!                            └─ cases                   at which sizes, loads …
//!                               └─ metrics              what was read off
//!                                  └─ figures           by contender: every round
//! ```
//!
//! `docs/bench-format.md` describes the JSON for programs. A field that is removed or changes its
//! meaning raises [`SCHEMA`]; new fields don't.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::machine::trace;
use crate::stats::{RatioEstimate, Spread};

/// The version of the JSON. 1 was that of a predecessor.
pub const SCHEMA: u32 = 2;

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What measured.
    pub tool: Tool,
    /// The day it began, in UTC, as RFC 3339 writes it.
    pub date: String,
    /// The command line, without the program's path.
    pub command: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Whether it came to its end.
    pub outcome: RunOutcome,
    /// Where it was measured.
    pub machine: Machine,
    /// What speaks against believing the figures, in plain words.
    pub warnings: Vec<String>,
    /// What was measured.
    pub experiments: Vec<Experiment>,
}

impl Document {
    /// This run and another one as if they had been one. The other one's machine is forgotten;
    /// where it was another, a warning says so.
    #[must_use]
    pub fn followed_by(mut self, other: Document) -> Document {
        let (here, there) = (self.machine.describe(), other.machine.describe());
        if here != there {
            self.warnings.push(format!(
                "some of it was measured on another machine: {there}"
            ));
        }
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        if other.outcome == RunOutcome::Interrupted {
            self.outcome = RunOutcome::Interrupted;
        }
        self.seconds += other.seconds;
        self.command = format!("{}; {}", self.command, other.command);
        self.experiments.extend(other.experiments);
        self
    }
}

/// The program that measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tool {
    /// `underpass`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Whether a run came to its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Everything that was asked for is there.
    Complete,
    /// It was interrupted: what was done by then is there.
    Interrupted,
}

/// Contenders at several cases of one kind. By default it has no words and one case to come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Experiment {
    /// `socket`, `copy`, `http`, `small`, `cold`, `many`, `tree`.
    pub name: String,
    /// What sets this one apart from others of its name: `receiver copies`, `on ext4`; or nothing.
    pub variant: String,
    /// A heading.
    pub title: String,
    /// What was measured, in a sentence or two for people.
    pub measured: String,
    /// How its charts and tables are to be read, likewise.
    pub reading: String,
    /// What the cases differ in.
    pub axis: Axis,
    /// Rounds that were asked for, the warm-up not counted.
    pub rounds: usize,
    /// Who was measured. The first one is compared with each of the others.
    pub contenders: Vec<Contender>,
    /// In the order of their `x`.
    pub cases: Vec<Case>,
    /// What has to be said beside the figures.
    pub notes: Vec<String>,
}

/// What the cases of an experiment differ in. By default there is one case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Axis {
    /// `file size`, `body size`; empty where there is one case.
    pub label: String,
    /// What the cases' `x` counts.
    pub unit: Unit,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Seconds of processor time for each GiB.
    SecondsPerGib,
    /// Bytes in a second.
    BytesPerSecond,
    /// Something in a second: requests, operations.
    PerSecond,
    /// A share of one processor, 1 is all of it.
    Share,
    /// A plain number.
    #[default]
    Count,
}

/// One of those measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contender {
    /// Unique within the experiment.
    pub name: String,
    /// As the program says it.
    pub version: String,
    /// How it was started.
    pub command: Vec<String>,
    /// What was added to its environment.
    pub environment: Vec<(String, String)>,
    /// Its configuration file, if it has one.
    pub configuration: Option<String>,
}

/// One size or load, all contenders. By default nothing was read off yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Case {
    /// `7 MB`, `30 connections`; unique within the experiment.
    pub label: String,
    /// Where it stands on the axis.
    pub x: f64,
    /// The load in words.
    pub load: String,
    /// What was read off, the most telling first.
    pub metrics: Vec<Measured>,
    /// How payload travelled, in all rounds together or in a pass that was not timed, for the
    /// contenders that tell.
    pub travelled: Vec<PayloadPath>,
    /// System calls by name, counted in a pass that was not timed.
    pub calls: Vec<SystemCalls>,
    /// How latencies were distributed in all rounds together.
    pub latencies: Vec<Latencies>,
    /// How something went over time, in one round.
    pub timelines: Vec<Timeline>,
    /// What has to be said beside the figures.
    pub notes: Vec<String>,
}

/// One metric of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// For programs: `cpu_per_gib`, `wall`.
    pub metric: String,
    /// For people: `processor time per GiB`.
    pub label: String,
    /// What the figures count.
    pub unit: Unit,
    /// Which way is better; none where neither is.
    pub better: Option<Better>,
    /// In the order of the contenders; none for one that this can't be read off.
    pub figures: Vec<Option<Figures>>,
    /// The first contender's figure divided by each contender's, in their order; none for the first
    /// itself, and where a ratio means nothing.
    pub comparisons: Vec<Option<RatioEstimate>>,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less is.
    Lower,
    /// More is.
    Higher,
}

/// The figures of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Median and extremes of the rounds.
    pub spread: Spread,
    /// By round; the same place is the same round for all contenders of a case.
    pub rounds: Vec<f64>,
}

/// How a contender's payload travelled by one mechanism, measured from returned counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PayloadPath {
    /// Its place among the contenders.
    pub contender: usize,
    /// `sendfile`, `read_write` …
    pub mechanism: String,
    /// Bytes that arrived by it.
    pub bytes: u64,
    /// Calls it took.
    pub calls: u64,
    /// How often it was refused.
    pub refusals: u64,
}

/// System calls of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemCalls {
    /// Its place among the contenders.
    pub contender: usize,
    /// Requests or transfers during which they were counted.
    pub operations: u64,
    /// By name, the most frequent first.
    pub by_name: Vec<(String, u64)>,
}

impl SystemCalls {
    /// What was counted during so many operations.
    pub(crate) fn of(contender: usize, operations: u64, counted: trace::CallCounts) -> SystemCalls {
        let mut by_name: Vec<(String, u64)> = counted.into_iter().collect();
        by_name.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        SystemCalls {
            contender,
            operations,
            by_name,
        }
    }
}

/// How the latencies of one contender were distributed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// Its place among the contenders.
    pub contender: usize,
    /// How many there were.
    pub count: u64,
    /// Share of the requests that took no longer, from 0 to 1, and how long, in seconds.
    pub quantiles: Vec<(f64, f64)>,
}

/// How something of one contender went over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timeline {
    /// Its place among the contenders.
    pub contender: usize,
    /// For people: `resident memory`.
    pub label: String,
    /// What the values count.
    pub unit: Unit,
    /// Seconds since the load began, and the value.
    pub points: Vec<(f64, f64)>,
}
