//! The charts of an experiment, and the texts around each.

use std::collections::BTreeMap;

use maud::Markup;

use super::chart::{AxisScale, Bar, BarChart, ChartText, MarkChart, Point, Series, ends};
use super::figure::{direction, figure};
use super::table::{Importance, TableGroup, find, groups};
use crate::document::{Case, Experiment, Measured};
use crate::stats::Spread;

/// The size of a chart over the whole page, in pixels.
const WHOLE: (f64, f64) = (900.0, 380.0);

/// The width of a bar chart, in pixels: legible on a phone, and in half of the page.
const BARS_WIDE: f64 = 390.0;
/// The maximum number of bar charts of a case; the table has the other metrics.
const BARS_MAX: usize = 6;
/// A chart with the texts around it.
pub(super) struct Plot {
    pub(super) words: ChartText,
    /// The title of the tables it belongs to.
    pub(super) group: String,
    pub(super) svg: Markup,
    /// The places of the contenders in the legend; `None` if the chart has the names.
    pub(super) legend: Option<Vec<usize>>,
    pub(super) is_small: bool,
}

/// The ranges of the axes: each metric has the same axis in all charts of a report.
pub(super) struct MetricScales(BTreeMap<String, Vec<f64>>);

impl MetricScales {
    pub(super) fn of(experiments: &[Experiment]) -> MetricScales {
        let mut values = BTreeMap::<String, Vec<f64>>::new();
        for case in experiments.iter().flat_map(|experiment| &experiment.cases) {
            for measured in &case.metrics {
                let spreads = measured.figures.iter().flatten().map(|one| one.spread);
                let ends = spreads.flat_map(|spread| [spread.min, spread.max]);
                values
                    .entry(measured.metric.clone())
                    .or_default()
                    .extend(ends);
            }
        }
        MetricScales(values)
    }

    fn ends(&self, metric: &str) -> (f64, f64) {
        self.0.get(metric).map_or((0.0, 1.0), |values| ends(values))
    }
}

/// All charts of an experiment. `id` begins the names of its parts on the page.
pub(super) fn plots(experiment: &Experiment, id: &str, scales: &MetricScales) -> Vec<Plot> {
    let mut plots = Vec::new();
    for group in groups(experiment) {
        match group.cases[..] {
            [case] => {
                let case = &experiment.cases[case];
                plots.extend(of_case(experiment, case, &group, (id, scales)));
            }
            _ if group.importance == Importance::Main => {
                plots.extend(over_cases(experiment, &group, (id, scales)));
            }
            _ => {}
        }
    }
    plots
}

/// The beginning of the names of parts, and the axes.
type On<'a> = (&'a str, &'a MetricScales);

fn spread_of(measured: &Measured, place: usize) -> Option<Spread> {
    Some(measured.figures.get(place)?.as_ref()?.spread)
}

/// A chart with the marks of each contender over the cases.
fn over_cases(
    experiment: &Experiment,
    group: &TableGroup<'_>,
    (id, scales): On<'_>,
) -> Option<Plot> {
    let name = group.metrics[0];
    let cases = group.cases.iter().map(|&index| &experiment.cases[index]);
    let cases: Vec<&Case> = cases.collect();
    let any = find(cases.first()?, name)?;
    let point = |(x, case): (f64, &Case), place: usize| {
        let Spread { median, min, max } = spread_of(find(case, name)?, place)?;
        Some(Point {
            x,
            y: median,
            range: Some((min, max)),
        })
    };
    let numbered: Vec<_> = (0..).map(f64::from).zip(cases.iter().copied()).collect();
    let series = (0..experiment.contenders.len()).map(|place| Series {
        place,
        points: numbered
            .iter()
            .filter_map(|case| point(*case, place))
            .collect(),
    });
    let lines = MarkChart {
        words: ChartText {
            id: format!("{id}-{name}"),
            title: titled(any),
            description: format!(
                "A mark is the median of {} rounds, the stroke through it goes from the least to \
                 the greatest.",
                experiment.rounds
            ),
        },
        x: axis_of(experiment, &cases),
        x_label: experiment.axis.label.clone(),
        label: any.label.clone(),
        unit: any.unit,
        ends: scales.ends(name),
        series: series.filter(|one| !one.points.is_empty()).collect(),
    };
    Some(of_lines(lines, group.title.clone()))
}

/// The cases, without repeating the axis's name in labels such as `10 connections`.
fn axis_of(experiment: &Experiment, cases: &[&Case]) -> AxisScale {
    let name = &experiment.axis.label;
    let short = |case: &&Case| {
        let short = case.label.strip_suffix(name.as_str()).map(str::trim_end);
        let short = short.filter(|short| !short.is_empty());
        short.unwrap_or(&case.label).to_owned()
    };
    AxisScale::of_cases(cases.iter().map(short))
}

fn of_lines(mut lines: MarkChart, group: String) -> Plot {
    lines.words.description.push_str(lines.axes());
    Plot {
        svg: lines.draw(WHOLE),
        legend: Some(lines.series.iter().map(|one| one.place).collect()),
        words: lines.words,
        group,
        is_small: false,
    }
}

/// Bars for the metrics that only one case has.
fn of_case(experiment: &Experiment, case: &Case, group: &TableGroup<'_>, on: On<'_>) -> Vec<Plot> {
    let metrics = group.metrics.iter();
    let shown = metrics.filter_map(|name| find(case, name)).take(BARS_MAX);
    shown.map(|one| bars(experiment, one, group, on)).collect()
}

fn bars(
    experiment: &Experiment,
    measured: &Measured,
    group: &TableGroup<'_>,
    (id, scales): On<'_>,
) -> Plot {
    let contenders = experiment.contenders.iter().enumerate();
    let bars = contenders.filter_map(|(place, contender)| {
        let spread = spread_of(measured, place)?;
        Some(Bar {
            name: contender.name.clone(),
            place,
            spread,
            figure: figure(spread.median, measured.unit),
        })
    });
    let chart = BarChart {
        words: ChartText {
            id: format!("{id}-{}", measured.metric),
            title: titled(measured),
            description: format!(
                "Medians of {} rounds, with a stroke from the least to the greatest.",
                experiment.rounds
            ),
        },
        label: measured.label.clone(),
        unit: measured.unit,
        reach: scales.ends(&measured.metric).1,
        bars: bars.collect(),
    };
    Plot {
        svg: chart.draw(BARS_WIDE),
        words: chart.words,
        group: group.title.clone(),
        legend: None,
        is_small: true,
    }
}

fn titled(measured: &Measured) -> String {
    let mut label = measured.label.clone();
    if let Some(first) = label.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    match direction(measured.better) {
        "" => label,
        direction => format!("{label} ({direction})"),
    }
}
