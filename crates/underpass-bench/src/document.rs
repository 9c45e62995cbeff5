//! The result of a run: one document, the source of every table, chart and comparison.
//!
//! ```text
//!  Document ─┬─ machine, tool, warnings
//!            └─ experiments ─┬─ contenders              the measured programs
//!                            └─ cases                   sizes, loads …
//!                               └─ metrics              throughput, processor time …
//!                                  └─ figures           by contender: all rounds
//! ```
//!
//! `docs/bench-format.md` describes the JSON for programs. A field that is removed or changes its
//! meaning raises [`SCHEMA`]; new fields don't.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::machine::trace;
use crate::stats::{RatioEstimate, Spread};

/// The version of the JSON. Version 2 had two more fields, which are ignored.
pub const SCHEMA: u32 = 3;

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program that measured.
    pub tool: Tool,
    /// The day on which it began, in UTC, in the format of RFC 3339.
    pub date: String,
    /// The command line, without the program's path.
    pub command: String,
    /// Its duration in seconds.
    pub seconds: f64,
    /// Whether it is complete.
    pub outcome: RunOutcome,
    /// The machine that was measured.
    pub machine: Machine,
    /// Reasons to doubt the figures.
    pub warnings: Vec<String>,
    /// The results.
    pub experiments: Vec<Experiment>,
}

impl Document {
    /// The names of all that was left out, each once; `None` where nothing was.
    pub fn left_out(&self) -> Option<String> {
        let names = self.experiments.iter().flat_map(|one| &one.left_out);
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then_some(names)
    }

    /// Appends the experiments of another run. If it ran on another machine, a warning says so.
    #[must_use]
    pub fn followed_by(mut self, other: Document) -> Document {
        let (here, there) = (self.machine.describe(), other.machine.describe());
        if here != there {
            self.warnings
                .push(format!("a part was measured on another machine: {there}"));
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

/// Whether a run is complete.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// All requested experiments are there.
    Complete,
    /// It was interrupted, and has only the complete parts.
    Interrupted,
}

/// Contenders at several cases of one kind. By default it has no words and one case to come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Experiment {
    /// `socket`, `copy`, `http`, `small`, `cold`, `many`, `log`, `tree`.
    pub name: String,
    /// Distinguishes it from others of its name: `receiver copies`, `on ext4`; or empty.
    pub variant: String,
    /// A heading.
    pub title: String,
    /// A description of the measurement, in a sentence or two.
    pub measured: String,
    /// How to read its charts and tables, in a sentence or two.
    pub reading: String,
    /// The quantity that differs between cases.
    pub axis: Axis,
    /// Rounds that were requested, without the warm-up.
    pub rounds: usize,
    /// The measured programs. The first one is compared with each of the others.
    pub contenders: Vec<Contender>,
    /// In the order of their `x`.
    pub cases: Vec<Case>,
    /// Notes on the figures.
    pub notes: Vec<String>,
    /// The names of contenders that are missing, have failed or delivered wrong bytes.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// The quantity that differs between the cases of an experiment. By default there is one case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Axis {
    /// `file size`, `body size`; empty where there is one case.
    pub label: String,
    /// The unit of the cases' `x`.
    pub unit: Unit,
}

/// The unit of a number.
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

/// A measured program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contender {
    /// Unique within the experiment.
    pub name: String,
    /// As the program prints it.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Variables that were added to its environment.
    pub environment: Vec<(String, String)>,
    /// Its configuration file, if it has one.
    pub configuration: Option<String>,
}

/// One size or load, with all contenders.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Case {
    /// `7 MB`, `30 connections`; unique within the experiment.
    pub label: String,
    /// Its value on the axis.
    pub x: f64,
    /// The load in words.
    pub load: String,
    /// The metrics, the most important first.
    pub metrics: Vec<Measured>,
    /// By which mechanisms payload was moved, for contenders that count.
    pub travelled: Vec<PayloadPath>,
    /// System calls by name, counted in a pass that was not timed.
    pub calls: Vec<SystemCalls>,
    /// Notes on the figures.
    pub notes: Vec<String>,
}

/// One metric of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// For programs: `cpu_per_gib`, `wall`.
    pub metric: String,
    /// For people: `processor time per GiB`.
    pub label: String,
    /// The unit of the figures.
    pub unit: Unit,
    /// The better direction, if there is one.
    pub better: Option<Better>,
    /// In the order of the contenders; `None` for one without such figures.
    pub figures: Vec<Option<Figures>>,
    /// The first contender's figures divided by each one's; `None` without a ratio.
    pub comparisons: Vec<Option<RatioEstimate>>,
}

/// The better direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower figures are better.
    Lower,
    /// Higher figures are better.
    Higher,
}

/// The figures of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Median and extremes of the rounds.
    pub spread: Spread,
    /// By round; an index means the same round for all contenders of a case.
    pub rounds: Vec<f64>,
}

/// Bytes that one mechanism moved for a contender, from the results of its calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PayloadPath {
    /// Its index among the contenders.
    pub contender: usize,
    /// `sendfile`, `read_write` …
    pub mechanism: String,
    /// Bytes that arrived by it.
    pub bytes: u64,
    /// Calls it took.
    pub calls: u64,
    /// Number of rejections by the kernel.
    pub refusals: u64,
}

/// System calls of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemCalls {
    /// Its index among the contenders.
    pub contender: usize,
    /// The number of requests or transfers during which they were counted.
    pub operations: u64,
    /// By name, the most frequent first.
    pub by_name: Vec<(String, u64)>,
}

impl SystemCalls {
    /// Calls that were counted during this many operations.
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
