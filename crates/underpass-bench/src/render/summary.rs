//! The result of a run in one screen: the best of each experiment by its most telling figure, the
//! contenders tied with it, and its lead over the next.

use super::facts::first_to_last;
use super::figure::{interval, ratio};
use super::table::{ReportTable, TableCell, TableRow, find};
use crate::document::{Better, Case, Document, Experiment, Measured};
use crate::stats::{RatioEstimate, RatioVerdict};

/// More of them are counted and not named.
const NAMES_MAX: usize = 2;
/// In place of a name or a ratio.
const NONE: &str = "–";

/// A line of the summary: the cases of an experiment with the same best contender.
pub(super) struct SummaryLine {
    /// The experiment and its metric; empty where the line before has the same.
    pub(super) question: String,
    pub(super) cases: String,
    pub(super) best: String,
    /// Contenders whose difference from the best is within the spread.
    pub(super) tied: String,
    /// The lead over the next that differs measurably.
    pub(super) ratio: String,
}

struct Ranking<'a> {
    case: &'a str,
    best: String,
    tied: String,
    /// The best contender compared with the next one that differs from it beyond the noise.
    next: Option<(&'a str, RatioEstimate)>,
}

pub(super) fn summary(document: &Document) -> Vec<SummaryLine> {
    document.experiments.iter().flat_map(lines).collect()
}

/// The same as a table; `None` where nothing was compared.
pub(super) fn summary_table(document: &Document) -> Option<ReportTable> {
    let lines = summary(document).into_iter();
    let row = |line: SummaryLine| TableRow {
        name: line.question,
        cells: [line.cases, line.best, line.tied, line.ratio]
            .map(TableCell::Plain)
            .into(),
    };
    let rows: Vec<_> = lines.map(row).collect();
    let columns = [
        "case",
        "best",
        "tied with",
        "compared with the next (95 % interval)",
    ];
    (!rows.is_empty()).then(|| ReportTable {
        caption: "The best by the most telling figure of each experiment".into(),
        head: "question",
        columns: columns.map(str::to_owned).into(),
        rows,
    })
}

/// The first metric of which one direction is better, in all cases that have it.
pub(super) fn telling(experiment: &Experiment) -> Vec<(&Case, &Measured)> {
    let cases = experiment.cases.iter();
    let mut metrics = cases.clone().flat_map(|case| &case.metrics);
    let telling = metrics.find(|one| one.better.is_some());
    let measured = |case| Some((case, find(case, &telling?.metric)?));
    cases.filter_map(measured).collect()
}

fn lines(experiment: &Experiment) -> Vec<SummaryLine> {
    let cases = telling(experiment);
    let rankings = cases.iter().filter_map(|one| ranking(experiment, *one));
    let rankings: Vec<_> = rankings.collect();
    let is_same = |a: &Ranking<'_>, b: &Ranking<'_>| (&a.best, &a.tied) == (&b.best, &b.tied);
    let mut lines: Vec<_> = rankings.chunk_by(is_same).map(line).collect();
    if let (Some(first), Some((_, telling))) = (lines.first_mut(), cases.first()) {
        first.question = format!("{}: {}", experiment.heading(), telling.label);
    }
    lines
}

/// `None` where fewer than two contenders have figures.
fn ranking<'a>(
    experiment: &'a Experiment,
    (case, metric): (&'a Case, &'a Measured),
) -> Option<Ranking<'a>> {
    let is_lower_better = metric.better == Some(Better::Lower);
    let named = experiment.contenders.iter().zip(&metric.figures);
    let mut ranked: Vec<_> = named
        .filter_map(|(contender, figures)| Some((&*contender.name, figures.as_ref()?)))
        .collect();
    ranked.sort_by(|(_, a), (_, b)| a.spread.median.total_cmp(&b.spread.median));
    if !is_lower_better {
        ranked.reverse();
    }
    let (best, others) = ranked
        .split_first()
        .filter(|(_, others)| !others.is_empty())?;
    let beside_best = |figures: &[f64]| match is_lower_better {
        true => RatioEstimate::of(figures, &best.1.rounds),
        false => RatioEstimate::of(&best.1.rounds, figures),
    };
    let (mut tied, mut next, mut has_too_few) = (Vec::new(), None, false);
    for (name, figures) in others {
        match beside_best(&figures.rounds) {
            Some(estimate) if estimate.verdict == RatioVerdict::Different => {
                next = next.or(Some((*name, estimate)));
            }
            estimate => {
                has_too_few |= estimate.is_some_and(|e| e.verdict == RatioVerdict::TooFewRounds);
                tied.push(*name);
            }
        }
    }
    let (best, tied) = match &tied[..] {
        _ if has_too_few => ("too few rounds to tell", NONE.to_owned()),
        [] => (best.0, NONE.to_owned()),
        names if names.len() <= NAMES_MAX => (best.0, names.join(", ")),
        names => (best.0, format!("{} others", names.len())),
    };
    Some(Ranking {
        case: &case.label,
        best: best.to_owned(),
        tied,
        next,
    })
}

fn line(group: &[Ranking<'_>]) -> SummaryLine {
    let next: Vec<_> = group.iter().filter_map(|one| one.next.as_ref()).collect();
    let ratios = next.iter().map(|(_, estimate)| estimate.ratio);
    let (least, greatest) = (ratios.clone().reduce(f64::min), ratios.reduce(f64::max));
    let name = match &next[..] {
        [(name, _), others @ ..] if others.iter().all(|(other, _)| other == name) => *name,
        _ => "the next",
    };
    let ratio = match (&next[..], least, greatest) {
        ([(_, one)], ..) => {
            let (times, interval) = (ratio(one.ratio), interval(one));
            format!("{times} times as good as {name} ({interval})")
        }
        (_, Some(least), Some(greatest)) => {
            let (least, greatest) = (ratio(least), ratio(greatest));
            format!("{least} to {greatest} times as good as {name}")
        }
        _ => NONE.into(),
    };
    SummaryLine {
        question: String::new(),
        cases: cases_of(group),
        best: group[0].best.clone(),
        tied: group[0].tied.clone(),
        ratio,
    }
}

fn cases_of(rankings: &[Ranking<'_>]) -> String {
    first_to_last(&rankings.iter().map(|one| one.case).collect::<Vec<_>>())
}
