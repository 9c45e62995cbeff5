//! Changes between two runs beyond the differences between two runs of the same program.
//!
//! Rounds of two runs can't be paired, because the machine disturbed them in different ways. There
//! are few rounds, three to eleven, and hundreds of figures, so an event with a probability of one
//! in a hundred happens in every comparison. And all figures of a run drift together. A figure
//! therefore counts as changed only if all of this holds, on a logarithmic scale:
//!
//! ```text
//!   before   ├──●────┤                       the rounds' ranges don't touch, and
//!   after                  ├────●─┤          the gap between them is wide enough
//!                    ◄─gap─►
//! ```
//!
//! - the gap is wider than the noise, times a factor that is larger for fewer rounds. The noise is
//!   the widest of three: either range, and the median range of all figures of that metric in that
//!   experiment in both runs. The last one matters where a few rounds are close to each other by
//!   chance;
//! - the gap is wider than 5 %, an allowance for drift.
//!
//! The factors were found by simulating pairs of equal runs with 200 figures each: noise of 1 to
//! 20 %, log-normal or to one side, and figures that drift by 2 % between the runs. Less than one
//! pair in 200 then reports any change; a test checks that, without the drift. The price is
//! sensitivity: with six rounds or more, a change has to be a little more than twice as large as
//! the range of the rounds.
//!
//! Metrics without a better direction are not judged, nor are figures of 0.

use std::fmt::Write as _;

use serde::Serialize;

use crate::document::{
    Better, Case, Contender, Document, Experiment, Figures, Measured, RunOutcome, Unit,
};
use crate::machine::Machine;
use crate::render::{figure, paragraph, range as range_text, ratio};
use crate::stats::Spread;

/// Gaps below this are drift.
const DRIFT: f64 = 1.05;
/// Fewer rounds than this are not judged.
const ROUNDS_MIN: usize = 3;

/// The required width of the gap in multiples of the noise, by the smaller number of rounds.
fn margin(rounds: usize) -> f64 {
    match rounds {
        ..=3 => 5.0,
        4 => 2.5,
        5 => 1.5,
        _ => 1.0,
    }
}

/// The differences between two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// The earlier one.
    pub before: RunIdentity,
    /// The later one.
    pub after: RunIdentity,
    /// Reasons to doubt the comparison.
    pub doubts: Vec<String>,
    /// The largest change first.
    pub worse: Vec<Change>,
    /// The largest change first.
    pub better: Vec<Change>,
    /// Figures of both runs that differ by no more than noise.
    pub unchanged: usize,
    /// Figures of both runs with fewer than three rounds in one of them.
    pub too_few_rounds: usize,
    /// Figures of both runs that are not judged: no direction is better, or they are 0.
    pub not_judged: usize,
    /// Items that only the earlier run has.
    pub only_before: Vec<String>,
    /// Items that only the later run has.
    pub only_after: Vec<String>,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct RunIdentity {
    /// The version of the tool.
    pub version: String,
    /// The day.
    pub date: String,
    /// The command line.
    pub command: String,
}

/// One figure that changed.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Name of the experiment.
    pub experiment: String,
    /// Distinguishes it from others of its name.
    pub variant: String,
    /// Label of the case.
    pub case: String,
    /// The metric, for programs.
    pub metric: String,
    /// The metric, for people.
    pub label: String,
    /// The unit of the figures.
    pub unit: Unit,
    /// The contender.
    pub contender: String,
    /// Median of the later run divided by that of the earlier one.
    pub factor: f64,
    /// The earlier run's rounds.
    pub before: Spread,
    /// The later run's rounds.
    pub after: Spread,
}

/// Compares two runs, figure by figure; experiments, cases, metrics and contenders are matched by
/// name. Runs that were interrupted are compared as far as they go.
pub fn compare(before: &Document, after: &Document) -> Changes {
    let mut changes = Changes {
        before: RunIdentity::of(before),
        after: RunIdentity::of(after),
        doubts: doubts(before, after),
        worse: Vec::new(),
        better: Vec::new(),
        unchanged: 0,
        too_few_rounds: 0,
        not_judged: 0,
        only_before: only_in(before, after),
        only_after: only_in(after, before),
    };
    for old in &before.experiments {
        if let Some(new) = same_experiment(after, old) {
            changes.add(old, new);
        }
    }
    let size = |change: &Change| change.factor.ln().abs();
    for list in [&mut changes.worse, &mut changes.better] {
        list.sort_by(|a, b| size(b).total_cmp(&size(a)));
    }
    changes
}

enum FigureChange {
    Unchanged,
    TooFewRounds,
    NotJudged,
    /// By this factor.
    Changed(f64),
}

impl Changes {
    /// Whether anything got worse.
    pub fn is_worse(&self) -> bool {
        !self.worse.is_empty()
    }

    fn add(&mut self, old: &Experiment, new: &Experiment) {
        for old_case in &old.cases {
            let Some(new_case) = same_case(new, old_case) else {
                continue;
            };
            for was in &old_case.metrics {
                let Some(is) = metric(new_case, &was.metric) else {
                    continue;
                };
                let noise = typical_range(&was.metric, old, new);
                for contender in &old.contenders {
                    let earlier = figures(old, was, &contender.name);
                    let later = figures(new, is, &contender.name);
                    let Some((earlier, later)) = earlier.zip(later) else {
                        continue;
                    };
                    let change = |factor| Change {
                        experiment: old.name.clone(),
                        variant: old.variant.clone(),
                        case: old_case.label.clone(),
                        metric: was.metric.clone(),
                        label: was.label.clone(),
                        unit: was.unit,
                        contender: contender.name.clone(),
                        factor,
                        before: earlier.spread,
                        after: later.spread,
                    };
                    match judge(is.better, earlier, later, noise) {
                        FigureChange::Unchanged => self.unchanged += 1,
                        FigureChange::TooFewRounds => self.too_few_rounds += 1,
                        FigureChange::NotJudged => self.not_judged += 1,
                        FigureChange::Changed(factor) => {
                            match (is.better == Some(Better::Higher)) == (factor > 1.0) {
                                true => self.better.push(change(factor)),
                                false => self.worse.push(change(factor)),
                            }
                        }
                    }
                }
            }
        }
    }

    fn judged(&self) -> usize {
        self.worse.len() + self.better.len() + self.unchanged
    }
}

fn judge(better: Option<Better>, old: &Figures, new: &Figures, noise: f64) -> FigureChange {
    let (Some(_), Some(old_range), Some(new_range)) = (better, range(old), range(new)) else {
        return FigureChange::NotJudged;
    };
    let rounds = old.rounds.len().min(new.rounds.len());
    if rounds < ROUNDS_MIN {
        return FigureChange::TooFewRounds;
    }
    let (old, new) = (&old.spread, &new.spread);
    let gap = (new.min / old.max).max(old.min / new.max).ln();
    let widest = noise.max(old_range).max(new_range);
    match gap > DRIFT.ln() && gap > margin(rounds) * widest {
        true => FigureChange::Changed(new.median / old.median),
        false => FigureChange::Unchanged,
    }
}

/// The logarithm of the greatest divided by the least; `None` if it is not finite.
fn range(figures: &Figures) -> Option<f64> {
    let Spread { min, max, .. } = figures.spread;
    (min > 0.0 && max.is_finite()).then(|| (max / min).ln())
}

/// The median range of a metric's figures in both runs of an experiment.
fn typical_range(name: &str, old: &Experiment, new: &Experiment) -> f64 {
    let cases = old.cases.iter().chain(&new.cases);
    let all = cases.filter_map(|case| metric(case, name));
    let all = all.flat_map(|metric| metric.figures.iter().flatten());
    let mut ranges: Vec<f64> = all.filter_map(range).collect();
    ranges.sort_by(f64::total_cmp);
    ranges.get(ranges.len() / 2).copied().unwrap_or(0.0)
}

fn same_experiment<'a>(document: &'a Document, like: &Experiment) -> Option<&'a Experiment> {
    let mut all = document.experiments.iter();
    all.find(|one| one.name == like.name && one.variant == like.variant)
}

fn same_case<'a>(experiment: &'a Experiment, like: &Case) -> Option<&'a Case> {
    let mut all = experiment.cases.iter();
    all.find(|case| case.label == like.label)
}

fn metric<'a>(case: &'a Case, name: &str) -> Option<&'a Measured> {
    case.metrics.iter().find(|metric| metric.metric == name)
}

fn figures<'a>(
    experiment: &Experiment,
    measured: &'a Measured,
    contender: &str,
) -> Option<&'a Figures> {
    let mut contenders = experiment.contenders.iter();
    let place = contenders.position(|one| one.name == contender)?;
    measured.figures.get(place)?.as_ref()
}

/// Differences that make the figures of both runs less comparable.
fn doubts(before: &Document, after: &Document) -> Vec<String> {
    let differs = |what: &str, old: &str, new: &str| {
        (old != new).then(|| format!("{what}: {old} before, {new} after"))
    };
    let runs = [(before, after, "earlier"), (after, before, "later")];
    let interrupted = runs.into_iter();
    let interrupted = interrupted.filter(|(run, ..)| run.outcome == RunOutcome::Interrupted);
    let interrupted = interrupted
        .map(|(_, _, which)| format!("the {which} run was interrupted: only its part is compared"));
    let machines = properties(&before.machine)
        .into_iter()
        .zip(properties(&after.machine));
    let machines = machines.filter_map(|((what, old), (_, new))| differs(what, &old, &new));
    let mut versions: Vec<String> = Vec::new();
    for old in &before.experiments {
        let new = same_experiment(after, old).map_or(&[][..], |new| &new.contenders);
        // Different versions of our own are what users compare.
        let others = old.contenders.iter();
        for was in others.filter(|one| !one.name.starts_with(&before.tool.name)) {
            let is = new.iter().find(|one| one.name == was.name);
            let what = format!("version of {}", was.name);
            versions.extend(is.and_then(|is| differs(&what, &was.version, &is.version)));
        }
    }
    versions.sort();
    versions.dedup();
    let warnings = runs.into_iter().rev().flat_map(|(run, other, which)| {
        let others = || other.warnings.iter().map(|one| without_numbers(one));
        let alone = run.warnings.iter();
        let alone = alone.filter(move |one| !others().any(|other| other == without_numbers(one)));
        alone.map(move |warning| format!("only the {which} run warned: {warning}"))
    });
    interrupted
        .chain(machines)
        .chain(versions)
        .chain(warnings)
        .collect()
}

/// The same warning has other numbers in each run.
fn without_numbers(warning: &str) -> String {
    let is_kept = |letter: &char| !letter.is_ascii_digit() && *letter != '.';
    warning.chars().filter(is_kept).collect()
}

fn properties(machine: &Machine) -> [(&'static str, String); 7] {
    let kind = match machine.virtual_machine {
        true => "virtual",
        false => "physical",
    };
    let memory = format!("{} GiB", machine.memory_bytes.div_ceil(1 << 30));
    [
        ("machine", kind.to_owned()),
        ("processors", machine.processors.to_string()),
        ("memory", memory),
        ("processor", machine.processor_model.clone()),
        ("kernel", machine.kernel.clone()),
        ("TCP congestion control", machine.congestion_control.clone()),
        ("file system", machine.file_system.clone()),
    ]
}

/// Lists what `other` lacks: each item once, as the largest part that is missing.
fn only_in(one: &Document, other: &Document) -> Vec<String> {
    let mut only = Vec::new();
    for experiment in &one.experiments {
        let name = named(&experiment.name, &experiment.variant);
        let Some(theirs) = same_experiment(other, experiment) else {
            only.push(format!("experiment {name}"));
            continue;
        };
        let has = |contender: &&Contender| {
            theirs
                .contenders
                .iter()
                .any(|one| one.name == contender.name)
        };
        let missing = experiment.contenders.iter().filter(|one| !has(one));
        only.extend(missing.map(|contender| format!("{name}: contender {}", contender.name)));
        for case in &experiment.cases {
            let Some(their_case) = same_case(theirs, case) else {
                only.push(format!("{name}: case {}", case.label));
                continue;
            };
            for measured in &case.metrics {
                let at = format!("{name}, {}: {}", case.label, measured.label);
                let Some(is) = metric(their_case, &measured.metric) else {
                    only.push(at);
                    continue;
                };
                let missing = experiment.contenders.iter().filter(|contender| {
                    has(contender)
                        && figures(experiment, measured, &contender.name).is_some()
                        && figures(theirs, is, &contender.name).is_none()
                });
                only.extend(missing.map(|contender| format!("{at} of {}", contender.name)));
            }
        }
    }
    only
}

fn named(name: &str, variant: &str) -> String {
    match variant {
        "" => name.to_owned(),
        variant => format!("{name} ({variant})"),
    }
}

impl Changes {
    /// For a terminal of `width` columns: first what got worse.
    pub fn text(&self, width: usize) -> String {
        let mut out = String::new();
        for (which, run) in [("before", &self.before), ("after", &self.after)] {
            paragraph(&mut out, "", &format!("{which}: {}", run.describe()), width);
        }
        for doubt in &self.doubts {
            paragraph(&mut out, "! ", doubt, width);
        }
        out.push('\n');
        paragraph(&mut out, "", &self.summary(), width);
        for (heading, changes) in self.groups() {
            let _ = writeln!(out, "\n{heading}");
            for change in changes {
                let (factor, [before, after]) = (ratio(change.factor), change.sides());
                let what = format!("{}, {}", change.subject(), change.case);
                let line = format!("×{factor}  {what}: {before} → {after}");
                paragraph(&mut out, "  ", &line, width);
            }
        }
        for (heading, only) in self.unmatched() {
            let _ = writeln!(out, "\n{heading}");
            for line in only {
                paragraph(&mut out, "  - ", line, width);
            }
        }
        out
    }

    fn groups(&self) -> impl Iterator<Item = (&'static str, &[Change])> {
        let groups = [("Worse", &self.worse[..]), ("Better", &self.better[..])];
        let groups = groups.into_iter();
        groups.filter(|(_, changes)| !changes.is_empty())
    }

    fn unmatched(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        let lists = [
            ("Only in the earlier run:", &self.only_before[..]),
            ("Only in the later run:", &self.only_after[..]),
        ];
        lists.into_iter().filter(|(_, only)| !only.is_empty())
    }

    fn summary(&self) -> String {
        let mut text = match self.judged() {
            0 => "No figure could be judged".to_owned(),
            judged => format!(
                "Of {judged} figures {} got worse, {} got better, {} did not change beyond the \
                 noise",
                self.worse.len(),
                self.better.len(),
                self.unchanged
            ),
        };
        if self.too_few_rounds > 0 {
            let _ = write!(
                text,
                "; {} had fewer than three rounds",
                self.too_few_rounds
            );
        }
        if self.not_judged > 0 {
            let _ = write!(
                text,
                "; {} are of a kind that is not judged",
                self.not_judged
            );
        }
        text + "."
    }
}

impl RunIdentity {
    fn of(document: &Document) -> RunIdentity {
        RunIdentity {
            version: document.tool.version.clone(),
            date: document.date.clone(),
            command: document.command.clone(),
        }
    }

    fn describe(&self) -> String {
        format!("{} on {}, {}", self.version, self.date, self.command)
    }
}

impl Change {
    /// The contender, the metric and the experiment.
    fn subject(&self) -> String {
        let experiment = named(&self.experiment, &self.variant);
        format!("{}: {}, {experiment}", self.contender, self.label)
    }

    /// `109 ms (107–111)` before and after.
    fn sides(&self) -> [String; 2] {
        [&self.before, &self.after].map(|spread| {
            let median = figure(spread.median, self.unit);
            format!("{median} ({})", range_text(spread, self.unit))
        })
    }
}

#[cfg(test)]
mod tests;
