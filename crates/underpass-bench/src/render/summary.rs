//! The result of a run in one screen: the best of each experiment by its most telling figure, by
//! how much, and whether that is sure.

use super::figure::{interval, ratio};
use super::table::{ReportTable, TableCell, TableRow, find};
use crate::document::{Better, Case, Document, Experiment, Measured};
use crate::stats::{RatioEstimate, RatioVerdict};

/// An experiment whose best differs more often between its cases has one line that says so.
const LINES_MAX: usize = 3;
/// More of them are counted and not named.
const NAMES_MAX: usize = 2;

/// A line of the summary: the cases of an experiment with the same best contender.
pub(super) struct SummaryLine {
    /// The experiment and its metric; empty where the line before has the same.
    pub(super) question: String,
    pub(super) cases: String,
    pub(super) best: String,
    /// How many times as good as the next, as far as that is known.
    pub(super) ratio: String,
    pub(super) sure: String,
}

impl SummaryLine {
    pub(super) fn sentence(&self) -> String {
        let SummaryLine {
            cases,
            best,
            ratio,
            sure,
            ..
        } = self;
        format!("{cases}: {best}; {ratio}; sure: {sure}")
    }
}

/// What one case shows.
struct Ranking<'a> {
    case: &'a str,
    best: String,
    /// The best contender, compared with the best of those that differ from it beyond the noise.
    next: Option<(&'a str, RatioEstimate)>,
    sure: String,
}

pub(super) fn summary(document: &Document) -> Vec<SummaryLine> {
    document.experiments.iter().flat_map(lines).collect()
}

/// The same as a table; `None` where nothing was compared.
pub(super) fn summary_table(document: &Document) -> Option<ReportTable> {
    let lines = summary(document).into_iter();
    let row = |line: SummaryLine| TableRow {
        name: line.question,
        cells: [line.cases, line.best, line.ratio, line.sure]
            .map(TableCell::Plain)
            .into(),
    };
    let rows: Vec<_> = lines.map(row).collect();
    let columns = ["case", "best", "by how much (95 % interval)", "sure?"];
    (!rows.is_empty()).then(|| ReportTable {
        caption: "The result: who is best by the most telling figure of each experiment".into(),
        head: "question",
        columns: columns.map(str::to_owned).into(),
        rows,
    })
}

fn lines(experiment: &Experiment) -> Vec<SummaryLine> {
    let metrics = experiment.cases.iter().flat_map(|case| &case.metrics);
    let Some(telling) = metrics.into_iter().find(|one| one.better.is_some()) else {
        return Vec::new();
    };
    let measured = |case| Some((case, find(case, &telling.metric)?));
    let cases = experiment.cases.iter().filter_map(measured);
    let rankings = cases.filter_map(|(case, metric)| ranking(experiment, case, metric));
    let rankings: Vec<_> = rankings.collect();
    let is_same = |a: &Ranking<'_>, b: &Ranking<'_>| (&a.best, &a.sure) == (&b.best, &b.sure);
    let groups: Vec<_> = rankings.chunk_by(is_same).collect();
    let mut lines: Vec<SummaryLine> = match groups.len() {
        ..=LINES_MAX => groups.into_iter().map(line).collect(),
        _ => vec![SummaryLine {
            question: String::new(),
            cases: first_to_last(&rankings),
            best: "differs from case to case".into(),
            ratio: "by different factors".into(),
            sure: "see its table".into(),
        }],
    };
    if let Some(first) = lines.first_mut() {
        first.question = format!("{}: {}", experiment.heading(), telling.label);
    }
    lines
}

/// `None` where fewer than two contenders have figures.
fn ranking<'a>(
    experiment: &'a Experiment,
    case: &'a Case,
    metric: &'a Measured,
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
    let compared = others
        .iter()
        .map(|(name, one)| (*name, beside_best(&one.rounds)));
    let compared: Vec<_> = compared.collect();
    let has = |verdict| {
        move |one: &&(&str, Option<RatioEstimate>)| {
            one.1.is_some_and(|estimate| estimate.verdict == verdict)
        }
    };
    let next = compared.iter().find(has(RatioVerdict::Different));
    let as_good = compared
        .iter()
        .filter(|one| !has(RatioVerdict::Different)(one));
    let mut names: Vec<&str> = as_good.map(|(name, _)| *name).collect();
    names.insert(0, best.0);
    let has_too_few = compared
        .iter()
        .any(|one| has(RatioVerdict::TooFewRounds)(&one));
    let (best, sure) = match (&names[..], has_too_few) {
        ([best, ..], true) => ((*best).to_owned(), "no, too few rounds"),
        ([best], false) => ((*best).to_owned(), "yes"),
        ([..], false) if names.len() <= NAMES_MAX => {
            (names.join(" or "), "no, these differ within the spread")
        }
        ([best, others @ ..], false) => (
            format!("{best} or one of {} more", others.len()),
            "no, these differ within the spread",
        ),
        ([], _) => return None,
    };
    Some(Ranking {
        case: &case.label,
        best,
        next: next.and_then(|(name, estimate)| Some((*name, (*estimate)?))),
        sure: sure.to_owned(),
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
    SummaryLine {
        question: String::new(),
        cases: first_to_last(group),
        best: group[0].best.clone(),
        ratio: match (&next[..], least, greatest) {
            ([(_, one)], ..) => {
                format!(
                    "{} times as good as {name} ({})",
                    ratio(one.ratio),
                    interval(one)
                )
            }
            (_, Some(least), Some(greatest)) => {
                format!(
                    "{} to {} times as good as {name}",
                    ratio(least),
                    ratio(greatest)
                )
            }
            _ => "as good as the others".into(),
        },
        sure: group[0].sure.clone(),
    }
}

fn first_to_last(rankings: &[Ranking<'_>]) -> String {
    match rankings {
        [first, .., last] => format!("{} to {}", first.case, last.case),
        [one] => one.case.to_owned(),
        [] => String::new(),
    }
}
