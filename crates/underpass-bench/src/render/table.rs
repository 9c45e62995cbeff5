//! The tables of an experiment, before anyone lays them out: what stands in which cell.
//!
//! A metric of several cases gets a table with a column for each case. Metrics that only one case
//! has share a table with a column for each of them.

use super::figure::{direction, figure, interval, range, ratio};
use crate::document::{Better, Case, Contender, Experiment, Measured, Unit};
use crate::stats::{RatioEstimate, RatioVerdict, Spread};

/// How many metrics of several cases come first, with charts.
const MAIN_MAX: usize = 2;

/// Figures, and what may be said of their ratios.
pub(super) struct TableGroup<'a> {
    /// The metric's label, or the case's.
    pub(super) title: String,
    pub(super) importance: Importance,
    /// Indices of cases; one for a table of metrics.
    pub(super) cases: Vec<usize>,
    /// The metrics shown, by name.
    pub(super) metrics: Vec<&'a str>,
    pub(super) figures: ReportTable,
    pub(super) ratios: Option<Ratios>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Importance {
    /// Worth a chart, and the terminal's few lines.
    Main,
    /// For those who ask.
    Further,
}

pub(super) enum Ratios {
    Table(ReportTable),
    /// No cell could hold one.
    TooFewRounds,
}

pub(super) struct ReportTable {
    pub(super) caption: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<TableRow>,
}

pub(super) struct TableRow {
    pub(super) name: String,
    pub(super) cells: Vec<TableCell>,
}

pub(super) enum TableCell {
    /// It can't be read off this contender.
    Absent,
    Figure {
        median: String,
        range: String,
        /// Half of the range, as a share of the median.
        half_range: Option<f64>,
    },
    Ratio {
        ratio: String,
        interval: String,
    },
    /// No ratio, for this reason.
    Withheld(RatioVerdict),
    /// A figure without a spread.
    Plain(String),
}

/// All tables of an experiment, the most telling first.
pub(super) fn groups(experiment: &Experiment) -> Vec<TableGroup<'_>> {
    let mut groups = Vec::new();
    let mut done: Vec<&str> = Vec::new();
    for name in metric_names(experiment) {
        if done.contains(&name) {
            continue;
        }
        let cases = cases_with(experiment, name);
        let group = match cases[..] {
            [case] => {
                let alike = metric_names(experiment)
                    .into_iter()
                    .filter(|other| cases_with(experiment, other) == [case]);
                by_metric(experiment, case, alike.collect())
            }
            _ => by_case(experiment, name, cases),
        };
        done.extend(&group.metrics);
        groups.push(group);
    }
    let of_cases = groups.iter_mut().filter(|group| group.cases.len() > 1);
    for group in of_cases.skip(MAIN_MAX) {
        group.importance = Importance::Further;
    }
    groups
}

/// The metric of that name in a case.
pub(super) fn find<'a>(case: &'a Case, name: &str) -> Option<&'a Measured> {
    case.metrics.iter().find(|measured| measured.metric == name)
}

/// In the order of their first appearance.
fn metric_names(experiment: &Experiment) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for measured in experiment.cases.iter().flat_map(|case| &case.metrics) {
        if !names.contains(&measured.metric.as_str()) {
            names.push(&measured.metric);
        }
    }
    names
}

fn cases_with(experiment: &Experiment, name: &str) -> Vec<usize> {
    let cases = experiment.cases.iter().enumerate();
    let having = cases.filter(|(_, case)| find(case, name).is_some());
    having.map(|(index, _)| index).collect()
}

fn by_case<'a>(experiment: &'a Experiment, name: &'a str, cases: Vec<usize>) -> TableGroup<'a> {
    let chosen: Vec<&Case> = cases
        .iter()
        .map(|&index| &experiment.cases[index])
        .collect();
    let measured: Vec<&Measured> = chosen.iter().filter_map(|case| find(case, name)).collect();
    let columns = chosen.iter().map(|case| case.label.clone()).collect();
    let (label, better) = (measured[0].label.as_str(), measured[0].better);
    TableGroup {
        title: label.to_owned(),
        importance: Importance::Main,
        figures: figures(
            experiment,
            &cases,
            joined(label, direction(better)),
            columns,
            &measured,
        ),
        ratios: ratios(
            experiment,
            &cases,
            &format!(" in {label}"),
            better,
            &measured,
            |index| chosen[index].label.clone(),
        ),
        metrics: vec![name],
        cases,
    }
}

fn by_metric<'a>(experiment: &'a Experiment, case: usize, names: Vec<&'a str>) -> TableGroup<'a> {
    let of = &experiment.cases[case];
    let measured: Vec<&Measured> = names.iter().filter_map(|name| find(of, name)).collect();
    let heading = |measured: &Measured| joined(&measured.label, direction(measured.better));
    let columns = measured.iter().map(|measured| heading(measured)).collect();
    TableGroup {
        title: of.label.clone(),
        importance: Importance::Main,
        figures: figures(experiment, &[case], of.label.clone(), columns, &measured),
        ratios: ratios(experiment, &[case], "", None, &measured, |index| {
            heading(measured[index])
        }),
        metrics: names,
        cases: vec![case],
    }
}

fn joined(label: &str, direction: &str) -> String {
    match (label, direction) {
        (label, "") => label.to_owned(),
        (label, direction) => format!("{label}, {direction}"),
    }
}

/// The contenders that have any figures in these cases, with their places; one that failed has
/// none.
fn standing<'a>(
    experiment: &'a Experiment,
    cases: &'a [usize],
) -> impl Iterator<Item = (usize, &'a Contender)> {
    let has_figures = move |place: usize| {
        let cases = cases.iter().map(|&case| &experiment.cases[case]);
        let mut metrics = cases.flat_map(|case| &case.metrics);
        metrics.any(|metric| matches!(metric.figures.get(place), Some(Some(_))))
    };
    let all = experiment.contenders.iter().enumerate();
    all.filter(move |(place, _)| has_figures(*place))
}

fn figures(
    experiment: &Experiment,
    cases: &[usize],
    caption: String,
    columns: Vec<String>,
    measured: &[&Measured],
) -> ReportTable {
    let rows = standing(experiment, cases).map(|(index, contender)| {
        let cells = measured.iter().map(|measured| {
            let figures = measured.figures.get(index).and_then(Option::as_ref);
            figures.map_or(TableCell::Absent, |figures| {
                figure_cell(&figures.spread, measured)
            })
        });
        let cells = cells.collect();
        TableRow {
            name: contender.name.clone(),
            cells,
        }
    });
    ReportTable {
        caption,
        columns,
        rows: rows.collect(),
    }
}

fn figure_cell(spread: &Spread, measured: &Measured) -> TableCell {
    let unit = match measured.unit {
        // The heading says per what, the cells need not.
        Unit::SecondsPerGib if measured.label.contains("GiB") => Unit::Seconds,
        unit => unit,
    };
    TableCell::Figure {
        median: figure(spread.median, unit),
        range: range(spread, unit),
        half_range: spread.half_range(),
    }
}

fn ratios(
    experiment: &Experiment,
    cases: &[usize],
    of_what: &str,
    better: Option<Better>,
    measured: &[&Measured],
    heading: impl Fn(usize) -> String,
) -> Option<Ratios> {
    let is_compared = |one: &&Measured| one.comparisons.iter().any(Option::is_some);
    let compared: Vec<usize> = (0..measured.len())
        .filter(|&index| is_compared(&measured[index]))
        .collect();
    let first = &experiment.contenders.first()?.name;
    let all = compared
        .iter()
        .flat_map(|&index| measured[index].comparisons.iter().flatten());
    let mut verdicts = all.map(|comparison| comparison.verdict).peekable();
    verdicts.peek()?;
    if verdicts.all(|verdict| verdict == RatioVerdict::TooFewRounds) {
        return Some(Ratios::TooFewRounds);
    }
    let side = match better {
        Some(Better::Lower) => format!("; below 1 {first} is better"),
        Some(Better::Higher) => format!("; above 1 {first} is better"),
        None => String::new(),
    };
    let others = standing(experiment, cases).filter(|&(index, _)| index > 0);
    let rows = others.map(|(index, contender)| {
        let cell = |&at: &usize| {
            let comparison = measured[at].comparisons.get(index).and_then(Option::as_ref);
            comparison.map_or(TableCell::Absent, ratio_cell)
        };
        TableRow {
            name: contender.name.clone(),
            cells: compared.iter().map(cell).collect(),
        }
    });
    Some(Ratios::Table(ReportTable {
        caption: format!("{first} divided by each of the others{of_what}{side}"),
        columns: compared.iter().map(|&index| heading(index)).collect(),
        rows: rows.collect(),
    }))
}

/// A ratio whose spread swallows it is not printed: that is a promise.
fn ratio_cell(comparison: &RatioEstimate) -> TableCell {
    match comparison.verdict {
        RatioVerdict::Different => TableCell::Ratio {
            ratio: ratio(comparison.ratio),
            interval: interval(comparison),
        },
        withheld => TableCell::Withheld(withheld),
    }
}
