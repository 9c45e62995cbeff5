//! What changed between two runs, beyond what two runs of the same thing differ by.
//!
//! Rounds of two runs can't be paired: the machine did different things to them. There are few of
//! them, three to eleven, and hundreds of figures, so that what happens once in a hundred times by
//! chance happens in every comparison. And two runs drift against each other as wholes. A figure
//! is therefore called changed only if all of this holds, on a scale of logarithms:
//!
//! ```text
//!   before   ├──●────┤                       the rounds' ranges don't touch, and
//!   after                  ├────●─┤          the gap between them is wide enough
//!                    ◄─gap─►
//! ```
//!
//! - the gap is wider than the noise, times a factor that is larger the fewer rounds there are.
//!   The noise is the widest of three: either range, and the median range of all figures of that
//!   metric in that experiment in both runs. The last guards against rounds that lie close to
//!   each other by luck, which few rounds often do;
//! - the gap is wider than 5 %, which stands for drift.
//!
//! The factors were found by simulating pairs of equal runs with 200 figures each: noise of 1 to
//! 20 %, log-normal or to one side, and figures that drift by 2 % between the runs. Less than one
//! pair in 200 then reports anything at all; a test holds that, without the drift. What it costs is
//! sensitivity: with six rounds or more, a change has to be somewhat more than twice as large as
//! the range of the rounds.
//!
//! Metrics of which neither way is better are not judged, nor are figures of 0.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use crate::document::{Better, Case, Document, Experiment, Figures, Measured, RunOutcome, Unit};
use crate::machine::Machine;
use crate::render::{escaped, figure, paragraph, range as range_text, ratio};
use crate::stats::Spread;

/// Gaps below this are drift.
const DRIFT: f64 = 1.05;
/// Fewer rounds than this tell nothing.
const ROUNDS_MIN: usize = 3;

/// How many times the noise the gap must be, for the smaller number of rounds of both runs.
fn margin(rounds: usize) -> f64 {
    match rounds {
        ..=3 => 5.0,
        4 => 2.5,
        5 => 1.5,
        _ => 1.0,
    }
}

/// What two runs differ in.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// The earlier one.
    pub before: RunIdentity,
    /// The later one.
    pub after: RunIdentity,
    /// What makes the comparison doubtful, in plain words.
    pub doubts: Vec<String>,
    /// The largest change first.
    pub worse: Vec<Change>,
    /// The largest change first.
    pub better: Vec<Change>,
    /// Figures of both runs that differ by no more than noise.
    pub unchanged: usize,
    /// Figures of both runs with fewer than three rounds in one of them.
    pub too_few_rounds: usize,
    /// Figures of both runs that no verdict is made of: neither way is better, or they are 0.
    pub not_judged: usize,
    /// What only the earlier run has.
    pub only_before: Vec<String>,
    /// What only the later run has.
    pub only_after: Vec<String>,
}

/// Which run it was.
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
    /// What sets it apart from others of its name.
    pub variant: String,
    /// Label of the case.
    pub case: String,
    /// The metric, for programs.
    pub metric: String,
    /// The metric, for people.
    pub label: String,
    /// What it counts.
    pub unit: Unit,
    /// Who changed.
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
        before: run(before),
        after: run(after),
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
    changes.worse.sort_by(|a, b| size(b).total_cmp(&size(a)));
    changes.better.sort_by(|a, b| size(b).total_cmp(&size(a)));
    changes
}

/// What may be said of one figure in two runs.
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
        for name in metrics(old) {
            let noise = typical_range(name, old, new);
            for old_case in &old.cases {
                let Some(new_case) = same_case(new, old_case) else {
                    continue;
                };
                let both = metric(old_case, name).zip(metric(new_case, name));
                let Some((was, is)) = both else { continue };
                for contender in &old.contenders {
                    let earlier = figures(old, was, &contender.name);
                    let later = figures(new, is, &contender.name);
                    let Some((earlier, later)) = earlier.zip(later) else {
                        continue;
                    };
                    let make = |factor| Change {
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
                    self.count(is.better, judge(is.better, earlier, later, noise), make);
                }
            }
        }
    }

    fn count(
        &mut self,
        better: Option<Better>,
        judgement: FigureChange,
        make: impl FnOnce(f64) -> Change,
    ) {
        match judgement {
            FigureChange::Unchanged => self.unchanged += 1,
            FigureChange::TooFewRounds => self.too_few_rounds += 1,
            FigureChange::NotJudged => self.not_judged += 1,
            FigureChange::Changed(factor) => match (better == Some(Better::Higher), factor > 1.0) {
                (true, true) | (false, false) => self.better.push(make(factor)),
                _ => self.worse.push(make(factor)),
            },
        }
    }

    fn judged(&self) -> usize {
        self.worse.len() + self.better.len() + self.unchanged
    }
}

fn judge(better: Option<Better>, old: &Figures, new: &Figures, noise: f64) -> FigureChange {
    if better.is_none() || range(old).is_none() || range(new).is_none() {
        return FigureChange::NotJudged;
    }
    let rounds = old.rounds.len().min(new.rounds.len());
    if rounds < ROUNDS_MIN {
        return FigureChange::TooFewRounds;
    }
    let (old, new) = (&old.spread, &new.spread);
    let gap = (new.min / old.max).max(old.min / new.max).ln();
    let widest = noise
        .max((old.max / old.min).ln())
        .max((new.max / new.min).ln());
    match gap > DRIFT.ln() && gap > margin(rounds) * widest {
        true => FigureChange::Changed(new.median / old.median),
        false => FigureChange::Unchanged,
    }
}

/// Logarithm of greatest over least; none where there is no such thing.
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

fn run(document: &Document) -> RunIdentity {
    RunIdentity {
        version: document.tool.version.clone(),
        date: document.date.clone(),
        command: document.command.clone(),
    }
}

fn same_experiment<'a>(document: &'a Document, like: &Experiment) -> Option<&'a Experiment> {
    let mut all = document.experiments.iter();
    all.find(|one| one.name == like.name && one.variant == like.variant)
}

fn same_case<'a>(experiment: &'a Experiment, like: &Case) -> Option<&'a Case> {
    experiment
        .cases
        .iter()
        .find(|case| case.label == like.label)
}

fn metric<'a>(case: &'a Case, name: &str) -> Option<&'a Measured> {
    case.metrics.iter().find(|metric| metric.metric == name)
}

fn metrics(experiment: &Experiment) -> BTreeSet<&str> {
    let all = experiment.cases.iter().flat_map(|case| &case.metrics);
    all.map(|metric| metric.metric.as_str()).collect()
}

fn figures<'a>(
    experiment: &Experiment,
    measured: &'a Measured,
    contender: &str,
) -> Option<&'a Figures> {
    let place = experiment
        .contenders
        .iter()
        .position(|one| one.name == contender)?;
    measured.figures.get(place)?.as_ref()
}

/// What makes figures of the two incomparable, or less comparable.
fn doubts(before: &Document, after: &Document) -> Vec<String> {
    let mut doubts = Vec::new();
    for (document, which) in [(before, "earlier"), (after, "later")] {
        if document.outcome == RunOutcome::Interrupted {
            doubts.push(format!(
                "the {which} run was interrupted: only its part is compared"
            ));
        }
    }
    let differing = of_machines(&before.machine, &after.machine).into_iter();
    let differing = differing.filter(|(_, old, new)| old != new);
    doubts.extend(differing.map(|(what, old, new)| differs(what, &old, &new)));
    let mut versions: Vec<String> = Vec::new();
    for old in &before.experiments {
        let Some(new) = same_experiment(after, old) else {
            continue;
        };
        for contender in &old.contenders {
            let is = new.contenders.iter().find(|one| one.name == contender.name);
            // That our own version changed is what one compares for.
            let own = contender.name.starts_with(&before.tool.name);
            let Some(is) = is.filter(|is| !own && is.version != contender.version) else {
                continue;
            };
            let what = format!("version of {}", contender.name);
            versions.push(differs(&what, &contender.version, &is.version));
        }
    }
    versions.sort();
    versions.dedup();
    doubts.extend(versions);
    for warning in &after.warnings {
        if !before.warnings.contains(warning) {
            doubts.push(format!("the later run alone warned: {warning}"));
        }
    }
    for warning in &before.warnings {
        if !after.warnings.contains(warning) {
            doubts.push(format!("the earlier run alone warned: {warning}"));
        }
    }
    doubts
}

fn differs(what: &str, old: &str, new: &str) -> String {
    format!("{what}: {old} before, {new} after")
}

fn of_machines(old: &Machine, new: &Machine) -> Vec<(&'static str, String, String)> {
    let kind = |machine: &Machine| match machine.virtual_machine {
        true => "virtual".to_owned(),
        false => "real".to_owned(),
    };
    let memory = |machine: &Machine| format!("{} GiB", machine.memory_bytes.div_ceil(1 << 30));
    let texts = [
        ("processor", &old.processor_model, &new.processor_model),
        ("kernel", &old.kernel, &new.kernel),
        (
            "TCP congestion control",
            &old.congestion_control,
            &new.congestion_control,
        ),
        ("file system", &old.file_system, &new.file_system),
    ];
    let texts = texts.map(|(what, old, new)| (what, old.clone(), new.clone()));
    let processors = [old, new].map(|machine| machine.processors.to_string());
    let [processors_before, processors_after] = processors;
    let mut all = vec![
        ("machine", kind(old), kind(new)),
        ("processors", processors_before, processors_after),
        ("memory", memory(old), memory(new)),
    ];
    all.extend(texts);
    all
}

/// What `one` has and `other` lacks: each thing once, by the largest part that is missing.
fn only_in(one: &Document, other: &Document) -> Vec<String> {
    let mut only = Vec::new();
    for experiment in &one.experiments {
        let name = named(&experiment.name, &experiment.variant);
        let Some(theirs) = same_experiment(other, experiment) else {
            only.push(format!("experiment {name}"));
            continue;
        };
        let has = |contender: &str| theirs.contenders.iter().any(|one| one.name == contender);
        let missing = experiment.contenders.iter().filter(|one| !has(&one.name));
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
                let shared = experiment.contenders.iter().filter(|one| has(&one.name));
                let missing = shared.filter(|contender| {
                    figures(experiment, measured, &contender.name).is_some()
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
    /// For a terminal of `width` columns: what got worse first.
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
            for group in by_subject(changes) {
                paragraph(&mut out, "  ", &group[0].subject(), width);
                let label = group
                    .iter()
                    .map(|one| one.case.chars().count())
                    .max()
                    .unwrap_or(0);
                for change in group {
                    let (case, detail) = (&change.case, change.detail());
                    let _ = writeln!(out, "    {case:<label$}  {detail}");
                }
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

    /// The same as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        for (which, run) in [("Before", &self.before), ("After", &self.after)] {
            let _ = writeln!(out, "- {which}: {}", escaped(&run.describe()));
        }
        for doubt in &self.doubts {
            let _ = writeln!(out, "- **Doubtful**, {}", escaped(doubt));
        }
        let _ = writeln!(out, "\n{}", self.summary());
        for (heading, changes) in self.groups() {
            let _ = writeln!(out, "\n## {heading}\n");
            let _ = writeln!(out, "| factor | what | case | before | after |");
            let _ = writeln!(out, "|---:|---|---|---:|---:|");
            for change in by_subject(changes).into_iter().flatten() {
                let [before, after] = change.sides();
                let _ = writeln!(
                    out,
                    "| **×{}** | {} | {} | {before} | {after} |",
                    ratio(change.factor),
                    escaped(&change.subject()),
                    escaped(&change.case)
                );
            }
        }
        for (heading, only) in self.unmatched() {
            let _ = writeln!(out, "\n{heading}\n");
            for line in only {
                let _ = writeln!(out, "- {}", escaped(line));
            }
        }
        out
    }

    fn groups(&self) -> impl Iterator<Item = (&'static str, &[Change])> {
        let groups = [("Worse", &self.worse), ("Better", &self.better)];
        let groups = groups.map(|(heading, changes)| (heading, &changes[..]));
        groups
            .into_iter()
            .filter(|(_, changes)| !changes.is_empty())
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
        for (count, why) in [
            (self.too_few_rounds, "had fewer than three rounds"),
            (self.not_judged, "are of a kind that is not judged"),
        ] {
            if count > 0 {
                let _ = write!(text, "; {count} {why}");
            }
        }
        text + "."
    }
}

impl RunIdentity {
    fn describe(&self) -> String {
        format!("{} on {}, {}", self.version, self.date, self.command)
    }
}

impl Change {
    /// What it is about, without the case.
    fn subject(&self) -> String {
        let experiment = named(&self.experiment, &self.variant);
        format!("{}: {}, {experiment}", self.contender, self.label)
    }

    /// `×1.50  109 ms (107–111) → 164 ms (160–169)`.
    fn detail(&self) -> String {
        let [before, after] = self.sides();
        format!("×{}  {before} → {after}", ratio(self.factor))
    }

    fn sides(&self) -> [String; 2] {
        [&self.before, &self.after].map(|spread| {
            let median = figure(spread.median, self.unit);
            format!("{median} ({})", range_text(spread, self.unit))
        })
    }
}

/// Changes of one contender in one metric of one experiment together, in the order in which the
/// first of each comes.
fn by_subject(changes: &[Change]) -> Vec<Vec<&Change>> {
    let mut groups: Vec<Vec<&Change>> = Vec::new();
    for change in changes {
        let subject = change.subject();
        match groups
            .iter_mut()
            .find(|group| group[0].subject() == subject)
        {
            Some(group) => group.push(change),
            None => groups.push(vec![change]),
        }
    }
    groups
}

#[cfg(test)]
mod tests;
