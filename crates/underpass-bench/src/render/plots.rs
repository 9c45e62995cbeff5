//! Which charts an experiment gets, and what is said beside each.

use super::chart::{Bar, BarChart, ChartText, LineChart, Point, Series};
use super::figure::{direction, figure};
use super::table::{Importance, ReportTable, TableCell, TableGroup, TableRow, find, groups};
use crate::document::{Case, Experiment, Latencies, Measured, Unit};
use crate::stats::Spread;

/// Pixels: over the whole page, half of it, and on a phone.
const WHOLE: (i32, i32) = (900, 380);
const HALF: (i32, i32) = (440, 270);
const NARROW: (i32, i32) = (350, 300);

/// Of a chart of bars, in pixels: legible on a phone, and in half of the page.
const BARS_WIDE: i32 = 390;
/// Charts of bars beside each other tell enough at this number; the rest stands in the table.
const BARS_MAX: usize = 4;
/// Cases that differ by more than this factor get a chart of multiples as well.
const STEEP: f64 = 20.0;
/// Shown as one curve, not as bars.
const LATENCIES: [&str; 5] = ["p50", "p90", "p99", "p999", "worst"];
/// Shown as one bar with parts.
const TIMES: [&str; 3] = ["wall", "user", "system"];

/// A chart with what stands around it.
pub(super) struct Plot {
    words: ChartText,
    /// The title of the tables it belongs to; empty where it has numbers of its own.
    pub(super) group: String,
    pub(super) svg: String,
    /// For phones, where the other one's letters would be too small.
    pub(super) narrow: Option<String>,
    pub(super) legend: Legend,
    pub(super) numbers: Option<ReportTable>,
    width: PlotWidth,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlotWidth {
    Whole,
    Half,
}

/// What colours and marks stand for.
pub(super) enum Legend {
    /// Names stand in the chart.
    None,
    /// Places of contenders.
    LineChart(Vec<usize>),
    /// Parts of bars.
    Parts(Vec<(usize, String)>),
}

impl Plot {
    pub(super) fn words(&self) -> &ChartText {
        &self.words
    }

    /// Two of them fit beside each other.
    pub(super) fn is_small(&self) -> bool {
        self.width == PlotWidth::Half
    }
}

/// All charts of an experiment. `id` begins the names of its parts on the page.
pub(super) fn plots(experiment: &Experiment, id: &str) -> Vec<Plot> {
    let mut plots = Vec::new();
    for group in groups(experiment) {
        match group.cases[..] {
            [case] => plots.extend(of_case(experiment, &experiment.cases[case], &group, id)),
            _ if group.importance == Importance::MetricsMode => {
                plots.extend(over_cases(experiment, &group, id, Against::Nothing));
                if is_steep(experiment, &group) {
                    plots.extend(over_cases(experiment, &group, id, Against::First));
                }
            }
            _ => {}
        }
    }
    for (index, case) in experiment.cases.iter().enumerate() {
        let id = format!("{id}c{index}");
        plots.extend(latencies(experiment, case, &id));
        plots.extend(timelines(experiment, case, &id));
    }
    plots
}

/// What figures are divided by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Against {
    Nothing,
    /// The first contender's median in the same case.
    First,
}

/// Whether cases differ so much that contenders lie on each other.
fn is_steep(experiment: &Experiment, group: &TableGroup<'_>) -> bool {
    let cases = group.cases.iter().map(|&index| &experiment.cases[index]);
    let found = cases.filter_map(|case| find(case, group.metrics.first()?));
    let firsts = found.filter_map(|measured| measured.figures.first()?.as_ref());
    let medians: Vec<f64> = firsts.map(|figures| figures.spread.median).collect();
    let low = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let high = medians.iter().copied().fold(0.0, f64::max);
    experiment.contenders.len() > 1 && low > 0.0 && high / low > STEEP
}

/// A line for each contender, over the cases.
fn over_cases(
    experiment: &Experiment,
    group: &TableGroup<'_>,
    id: &str,
    against: Against,
) -> Option<Plot> {
    let cases: Vec<&Case> = group
        .cases
        .iter()
        .map(|&index| &experiment.cases[index])
        .collect();
    let name = *group.metrics.first()?;
    let any = find(cases.first()?, name)?;
    let point = |case: &Case, place: usize| {
        let figures = &find(case, name)?.figures;
        let Spread { median, min, max } = figures.get(place)?.as_ref()?.spread;
        let by = match against {
            Against::Nothing => 1.0,
            Against::First => figures.first()?.as_ref()?.spread.median,
        };
        Some(Point {
            x: case.x,
            y: median / by,
            range: Some((min / by, max / by)),
        })
    };
    let series: Vec<Series> = (0..experiment.contenders.len())
        .map(|place| {
            let points = cases.iter().filter_map(|case| point(case, place)).collect();
            Series { place, points }
        })
        .filter(|one: &Series| !one.points.is_empty())
        .collect();
    let legend = Legend::LineChart(series.iter().map(|one| one.place).collect());
    let mut words = ChartText {
        id: format!("{id}-{name}"),
        title: titled(any),
        description: format!(
            "A mark is the median of {} rounds, the stroke through it goes from the least to the \
             greatest.",
            experiment.rounds
        ),
    };
    let mut axis = (any.label.clone(), any.unit);
    if against == Against::First {
        let first = &experiment.contenders.first()?.name;
        words.id.push_str("-relative");
        words.title = format!("{}, as a multiple of {first}", titled(any));
        words
            .description
            .push_str(" All are divided by the median of the first one.");
        axis = (format!("{}, {first} = 1", any.label), Unit::Count);
    }
    let axis = (axis.0.as_str(), axis.1);
    let lines = LineChart::over_cases(words, (&experiment.axis, &cases), axis, series);
    Some(of_lines(
        lines,
        PlotWidth::Whole,
        legend,
        group.title.clone(),
        None,
    ))
}

/// Draws for the page and for phones, where identities must differ.
fn of_lines(
    mut lines: LineChart,
    width: PlotWidth,
    legend: Legend,
    group: String,
    numbers: Option<ReportTable>,
) -> Plot {
    let axes = lines.axes();
    if !axes.is_empty() {
        lines.words.description.push(' ');
        lines.words.description.push_str(axes);
    }
    let svg = lines.draw(match width {
        PlotWidth::Whole => WHOLE,
        PlotWidth::Half => HALF,
    });
    let id = lines.words.id.clone();
    lines.words.id = format!("{id}-narrow");
    let narrow = Some(lines.draw(NARROW));
    Plot {
        words: lines.words,
        group,
        svg,
        narrow,
        legend,
        numbers,
        width,
    }
}

/// Bars for what only one case has.
fn of_case(experiment: &Experiment, case: &Case, group: &TableGroup<'_>, id: &str) -> Vec<Plot> {
    let mut plots = Vec::new();
    let times = times(experiment, case, group, id);
    let is_in_times = |name: &str| times.is_some() && TIMES.contains(&name);
    let is_latency = |name: &str| !case.latencies.is_empty() && LATENCIES.contains(&name);
    let telling = group
        .metrics
        .iter()
        .filter(|name| !is_in_times(name) && !is_latency(name));
    for measured in telling.filter_map(|name| find(case, name)).take(BARS_MAX) {
        plots.push(bars(experiment, measured, group, id));
    }
    plots.splice(0..0, times);
    plots
}

fn bars(experiment: &Experiment, measured: &Measured, group: &TableGroup<'_>, id: &str) -> Plot {
    let shown = experiment
        .contenders
        .iter()
        .zip(&measured.figures)
        .enumerate();
    let bars = shown.filter_map(|(place, (contender, figures))| {
        let spread = figures.as_ref()?.spread;
        Some(Bar {
            name: contender.name.clone(),
            parts: vec![(place, spread.median)],
            range: Some((spread.min, spread.max)),
            stroke: None,
            figure: figure(spread.median, measured.unit),
        })
    });
    let words = ChartText {
        id: format!("{id}-{}", measured.metric),
        title: titled(measured),
        description: format!(
            "Medians of {} rounds, with a stroke from the least to the greatest.",
            experiment.rounds
        ),
    };
    let (label, unit) = (measured.label.clone(), measured.unit);
    of_bars(
        BarChart {
            words,
            label,
            unit,
            bars: bars.collect(),
        },
        Legend::None,
        &group.title,
    )
}

/// Processor time in user space and in the kernel, and how long it took.
fn times(experiment: &Experiment, case: &Case, group: &TableGroup<'_>, id: &str) -> Option<Plot> {
    let own = |name| group.metrics.contains(&name);
    if !own("user") || !own("system") {
        return None;
    }
    let (user, system) = (find(case, "user")?, find(case, "system")?);
    let wall = find(case, "wall");
    let median = |of: &Measured, place: usize| {
        of.figures
            .get(place)?
            .as_ref()
            .map(|figures| figures.spread.median)
    };
    let bars = experiment
        .contenders
        .iter()
        .enumerate()
        .filter_map(|(place, contender)| {
            let parts = vec![(0, median(user, place)?), (1, median(system, place)?)];
            let wall = wall.and_then(|wall| median(wall, place));
            let behind = wall.map_or(String::new(), |wall| figure(wall, Unit::Seconds));
            let name = contender.name.clone();
            Some(Bar {
                name,
                parts,
                range: None,
                stroke: wall,
                figure: behind,
            })
        });
    let words = ChartText {
        id: format!("{id}-times"),
        title: format!("{}: where the time went (lower is better)", case.label),
        description:
            "The bar is processor time in user space and in the kernel, the stroke across \
                      and the figure are the time that passed; medians."
                .into(),
    };
    let mut parts = vec![(0, user.label.clone()), (1, system.label.clone())];
    parts.dedup();
    let (label, unit) = ("time".to_owned(), Unit::Seconds);
    let bars = BarChart {
        words,
        label,
        unit,
        bars: bars.collect(),
    };
    Some(of_bars(bars, Legend::Parts(parts), &group.title))
}

fn of_bars(bars: BarChart, legend: Legend, group: &str) -> Plot {
    let svg = bars.draw(BARS_WIDE);
    Plot {
        words: bars.words,
        group: group.to_owned(),
        svg,
        narrow: None,
        legend,
        numbers: None,
        width: PlotWidth::Half,
    }
}

/// How long the slow ones took.
fn latencies(experiment: &Experiment, case: &Case, id: &str) -> Option<Plot> {
    let of = |latencies: &Latencies| Series {
        place: latencies.contender,
        points: latencies
            .quantiles
            .iter()
            .filter(|(share, _)| is_told(*share, latencies.count))
            .map(|&(x, y)| Point { x, y, range: None })
            .collect(),
    };
    let series: Vec<Series> = case.latencies.iter().map(of).collect();
    if series.iter().all(|one| one.points.is_empty()) {
        return None;
    }
    let words = ChartText {
        id: format!("{id}-latencies"),
        title: format!("Latency: {} (lower is better)", case.label),
        description: "How long a request took at the most, over the share of requests; each nine \
                      is as wide as the one before. All rounds together."
            .into(),
    };
    let legend = Legend::LineChart(series.iter().map(|one| one.place).collect());
    let numbers = table_of_latencies(experiment, case);
    let lines = LineChart::over_shares(words, series);
    Some(of_lines(
        lines,
        PlotWidth::Whole,
        legend,
        String::new(),
        Some(numbers),
    ))
}

/// Whether so many requests can tell this share: ten of them must lie beyond.
fn is_told(share: f64, count: u64) -> bool {
    share < 1.0 && (1.0 - share) * count as f64 >= 10.0 - 1e-6
}

fn table_of_latencies(experiment: &Experiment, case: &Case) -> ReportTable {
    let mut shares: Vec<f64> = Vec::new();
    for (share, _) in case.latencies.iter().flat_map(|one| &one.quantiles) {
        if *share >= 0.5 && !shares.contains(share) {
            shares.push(*share);
        }
    }
    shares.sort_by(f64::total_cmp);
    let rows = case.latencies.iter().map(|latencies| {
        let cell = |share: &f64| {
            let found = latencies.quantiles.iter().find(|(at, _)| at == share);
            found.map_or(TableCell::Absent, |(_, took)| {
                TableCell::Plain(figure(*took, Unit::Seconds))
            })
        };
        let count = TableCell::Plain(figure(latencies.count as f64, Unit::Count));
        TableRow {
            name: experiment.contenders[latencies.contender].name.clone(),
            cells: shares.iter().map(cell).chain([count]).collect(),
        }
    });
    let column = |share: &f64| match share {
        1.0.. => "worst".to_owned(),
        share => {
            let percent = format!("{:.4}", share * 100.0);
            format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
        }
    };
    ReportTable {
        caption: "latency that this share of requests did not exceed".into(),
        columns: shares
            .iter()
            .map(column)
            .chain(["requests".into()])
            .collect(),
        rows: rows.collect(),
    }
}

/// One chart for each thing that was watched over time.
fn timelines(experiment: &Experiment, case: &Case, id: &str) -> Vec<Plot> {
    let mut labels: Vec<(&str, Unit)> = Vec::new();
    for timeline in &case.timelines {
        if !labels.contains(&(timeline.label.as_str(), timeline.unit)) {
            labels.push((&timeline.label, timeline.unit));
        }
    }
    let plot = |(index, &(label, unit)): (usize, &(&str, Unit))| {
        let own = || {
            case.timelines
                .iter()
                .filter(|one| (&*one.label, one.unit) == (label, unit))
        };
        let series = own().map(|one| Series {
            place: one.contender,
            points: one
                .points
                .iter()
                .map(|&(x, y)| Point { x, y, range: None })
                .collect(),
        });
        let series: Vec<Series> = series.filter(|one| !one.points.is_empty()).collect();
        let words = ChartText {
            id: format!("{id}-t{index}"),
            title: format!("Over time: {label}"),
            description: format!("One round, {}. Marks tell the lines apart.", case.label),
        };
        let rows = own().filter(|one| !one.points.is_empty()).map(|one| {
            let values = || one.points.iter().map(|(_, value)| *value);
            let ends = [
                values().next(),
                values().min_by(f64::total_cmp),
                values().max_by(f64::total_cmp),
                values().next_back(),
            ];
            let cell = |end: Option<f64>| {
                end.map_or(TableCell::Absent, |end| TableCell::Plain(figure(end, unit)))
            };
            let name = experiment.contenders[one.contender].name.clone();
            TableRow {
                name,
                cells: ends.map(cell).into(),
            }
        });
        let numbers = ReportTable {
            caption: format!("{label} over time"),
            columns: ["first", "least", "greatest", "last"]
                .map(str::to_owned)
                .into(),
            rows: rows.collect(),
        };
        let legend = Legend::LineChart(series.iter().map(|one| one.place).collect());
        let lines = LineChart::over_time(words, (label, unit), series);
        of_lines(lines, PlotWidth::Half, legend, String::new(), Some(numbers))
    };
    labels.iter().enumerate().map(plot).collect()
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
