//! The tables of an experiment before they are laid out: what each cell shows.
//!
//! A metric of several cases has a table with a column for each case. Metrics that only one case
//! has share a table with a column for each of them.

use super::figure::{direction, figure, interval, range, ratio};
use crate::document::{Case, Contender, Experiment, Measured, Unit};
use crate::stats::{RatioEstimate, RatioVerdict};

const CONTENDER: &str = "contender";

/// The number of metrics of several cases that come first, with charts.
const MAIN_MAX: usize = 2;

/// Figures, and their ratios as far as they are known.
pub(super) struct TableGroup<'a> {
    /// The metric's label, or the case's.
    pub(super) title: String,
    pub(super) importance: Importance,
    /// Indices of cases; one for a table of metrics.
    pub(super) cases: Vec<usize>,
    pub(super) metrics: Vec<&'a str>,
    pub(super) figures: ReportTable,
    pub(super) ratios: Option<Ratios>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Importance {
    /// With a chart, and on the terminal.
    Main,
    /// On demand.
    Further,
}

pub(super) enum Ratios {
    Table(ReportTable),
    /// All ratios need more rounds.
    TooFewRounds,
}

pub(super) struct ReportTable {
    pub(super) caption: String,
    /// The heading of the rows' names.
    pub(super) head: &'static str,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<TableRow>,
}

pub(super) struct TableRow {
    pub(super) name: String,
    pub(super) cells: Vec<TableCell>,
}

pub(super) enum TableCell {
    /// This contender has no such figure.
    Absent,
    Figure {
        median: String,
        range: String,
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

/// All tables of an experiment, the most important first.
pub(super) fn groups(experiment: &Experiment) -> Vec<TableGroup<'_>> {
    let mut groups: Vec<TableGroup<'_>> = Vec::new();
    let names = metric_names(experiment);
    let mut of_cases = 0;
    for &name in &names {
        if groups.iter().any(|group| group.metrics.contains(&name)) {
            continue;
        }
        let cases = cases_with(experiment, name);
        groups.push(match cases[..] {
            [case] => {
                let mut alike = names.clone();
                alike.retain(|other| cases_with(experiment, other) == [case]);
                by_metric(experiment, case, alike)
            }
            _ => {
                of_cases += 1;
                let importance = match of_cases > MAIN_MAX {
                    true => Importance::Further,
                    false => Importance::Main,
                };
                by_case(experiment, name, cases, importance)
            }
        });
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

fn by_case<'a>(
    experiment: &'a Experiment,
    name: &'a str,
    cases: Vec<usize>,
    importance: Importance,
) -> TableGroup<'a> {
    let chosen = cases.iter().map(|&index| &experiment.cases[index]);
    let column = |case: &'a Case| Some((case.label.clone(), find(case, name)?));
    let columns: Vec<_> = chosen.filter_map(column).collect();
    let (label, better) = (&columns[0].1.label, columns[0].1.better);
    let caption = joined(label, direction(better));
    TableGroup {
        title: label.clone(),
        importance,
        figures: figures(experiment, caption, &columns),
        ratios: ratios(experiment, &format!(" in {label}"), &columns),
        metrics: vec![name],
        cases,
    }
}

fn by_metric<'a>(experiment: &'a Experiment, case: usize, names: Vec<&'a str>) -> TableGroup<'a> {
    let of = &experiment.cases[case];
    let column = |measured: &'a Measured| {
        let heading = joined(&measured.label, direction(measured.better));
        (heading, measured)
    };
    let measured = names.iter().filter_map(|name| find(of, name));
    let columns: Vec<_> = measured.map(column).collect();
    TableGroup {
        title: of.label.clone(),
        importance: Importance::Main,
        figures: figures(experiment, of.label.clone(), &columns),
        ratios: ratios(experiment, "", &columns),
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

/// A heading and the figures below it.
type Column<'a> = (String, &'a Measured);

/// A row for each contender that has figures in the cases of these columns. One that failed has
/// none.
fn rows<'a>(
    experiment: &'a Experiment,
    columns: &[Column<'a>],
    cell: impl Fn(&'a Measured, usize) -> Option<TableCell>,
) -> Vec<(usize, TableRow)> {
    let is_shown = |case: &&Case| {
        let mut metrics = case.metrics.iter();
        metrics.any(|one| columns.iter().any(|(_, shown)| std::ptr::eq(*shown, one)))
    };
    let cases: Vec<&Case> = experiment.cases.iter().filter(is_shown).collect();
    let has_figures = |place: usize| {
        let mut metrics = cases.iter().flat_map(|case| &case.metrics);
        metrics.any(|metric| matches!(metric.figures.get(place), Some(Some(_))))
    };
    let row = |(place, contender): (usize, &Contender)| {
        let cells = columns.iter().map(|(_, measured)| cell(measured, place));
        let cells = cells.map(|cell| cell.unwrap_or(TableCell::Absent));
        let row = TableRow {
            name: contender.name.clone(),
            cells: cells.collect(),
        };
        (place, row)
    };
    let contenders = experiment.contenders.iter().enumerate();
    let standing = contenders.filter(|(place, _)| has_figures(*place));
    standing.map(row).collect()
}

fn table(caption: String, columns: &[Column<'_>], rows: Vec<(usize, TableRow)>) -> ReportTable {
    ReportTable {
        caption,
        head: CONTENDER,
        columns: columns.iter().map(|(heading, _)| heading.clone()).collect(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    }
}

fn figures(experiment: &Experiment, caption: String, columns: &[Column<'_>]) -> ReportTable {
    let rows = rows(experiment, columns, |measured, place| {
        let spread = &measured.figures.get(place)?.as_ref()?.spread;
        let unit = match measured.unit {
            // The heading has the rest of the unit.
            Unit::SecondsPerGib if measured.label.contains("GiB") => Unit::Seconds,
            unit => unit,
        };
        Some(TableCell::Figure {
            median: figure(spread.median, unit),
            range: range(spread, unit),
        })
    });
    table(caption, columns, rows)
}

fn ratios(experiment: &Experiment, of_what: &str, columns: &[Column<'_>]) -> Option<Ratios> {
    let mut columns = columns.to_vec();
    columns.retain(|(_, measured)| measured.comparisons.iter().any(Option::is_some));
    let first = &experiment.contenders.first()?.name;
    let all = columns
        .iter()
        .flat_map(|(_, measured)| measured.comparisons.iter().flatten());
    let mut verdicts = all.map(|comparison| comparison.verdict).peekable();
    verdicts.peek()?;
    if verdicts.all(|verdict| verdict == RatioVerdict::TooFewRounds) {
        return Some(Ratios::TooFewRounds);
    }
    let mut rows = rows(experiment, &columns, |measured, place| {
        let comparison = measured.comparisons.get(place)?.as_ref()?;
        Some(ratio_cell(&comparison.times_as_good(measured.better)))
    });
    rows.retain(|(place, _)| *place > 0);
    let caption = format!("how many times as good {first} is as each of the others{of_what}");
    Some(Ratios::Table(table(caption, &columns, rows)))
}

/// A ratio within its spread is never printed: that is a promise.
fn ratio_cell(comparison: &RatioEstimate) -> TableCell {
    match comparison.verdict {
        RatioVerdict::Different => TableCell::Ratio {
            ratio: ratio(comparison.ratio),
            interval: interval(comparison),
        },
        withheld => TableCell::Withheld(withheld),
    }
}
