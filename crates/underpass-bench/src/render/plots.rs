//! Which charts an experiment gets, and the texts around each.

use maud::Markup;

use super::chart::{AxisScale, Bar, BarChart, ChartText, LineChart, Marks, Point, Series, nines};
use super::figure::{direction, figure};
use super::table::{Importance, ReportTable, TableCell, TableGroup, TableRow, find, groups};
use crate::document::{Case, Experiment, Measured, Timeline, Unit};
use crate::stats::Spread;

/// Sizes in pixels: over the whole page, half of it, and on a phone.
const WHOLE: (f64, f64) = (900.0, 380.0);
const HALF: (f64, f64) = (440.0, 270.0);
const NARROW: (f64, f64) = (350.0, 300.0);

/// The width of a bar chart, in pixels: legible on a phone, and in half of the page.
const BARS_WIDE: f64 = 390.0;
/// The most bar charts beside each other; the table has the other metrics.
const BARS_MAX: usize = 4;
/// Cases that differ by more than this factor also get a chart of multiples.
const STEEP: f64 = 20.0;
/// Shown as one curve, not as bars.
const LATENCIES: [&str; 5] = ["p50", "p90", "p99", "p999", "worst"];
/// Shown as one bar with parts.
const TIMES: [&str; 3] = ["wall", "user", "system"];

/// A chart with the texts around it.
pub(super) struct Plot {
    pub(super) words: ChartText,
    /// The title of the tables it belongs to; empty where it has its own numbers.
    pub(super) group: String,
    pub(super) svg: Markup,
    /// For phones, where letters of the other one would be too small.
    pub(super) narrow: Option<Markup>,
    pub(super) legend: Legend,
    pub(super) numbers: Option<ReportTable>,
    /// Two of them fit beside each other.
    pub(super) is_small: bool,
}

/// What colours and marks stand for.
pub(super) enum Legend {
    /// The chart has the names.
    None,
    Lines(Vec<usize>),
    Parts(Vec<(usize, String)>),
}

/// All charts of an experiment. `id` begins the names of its parts on the page.
pub(super) fn plots(experiment: &Experiment, id: &str) -> Vec<Plot> {
    let mut plots = Vec::new();
    for group in groups(experiment) {
        match group.cases[..] {
            [case] => plots.extend(of_case(experiment, &experiment.cases[case], &group, id)),
            _ if group.importance == Importance::Main => {
                plots.extend(over_cases(experiment, &group, id));
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

fn spread_of(measured: &Measured, place: usize) -> Option<Spread> {
    Some(measured.figures.get(place)?.as_ref()?.spread)
}

/// A chart with a line for each contender over the cases; where cases differ so much that lines
/// coincide, also one of multiples of the first contender.
fn over_cases(experiment: &Experiment, group: &TableGroup<'_>, id: &str) -> Vec<Plot> {
    let name = group.metrics[0];
    let cases: Vec<&Case> = group
        .cases
        .iter()
        .map(|&index| &experiment.cases[index])
        .collect();
    let Some(any) = cases.first().and_then(|case| find(case, name)) else {
        return Vec::new();
    };
    let words = ChartText {
        id: format!("{id}-{name}"),
        title: titled(any),
        description: format!(
            "A mark is the median of {} rounds, the stroke through it goes from the least to the \
             greatest.",
            experiment.rounds
        ),
    };
    let first_median = |case: &Case| Some(spread_of(find(case, name)?, 0)?.median);
    let plot = |words, label, unit, divisor: &dyn Fn(&Case) -> Option<f64>| {
        let point = |case: &Case, place: usize| {
            let Spread { median, min, max } = spread_of(find(case, name)?, place)?;
            let by = divisor(case)?;
            Some(Point {
                x: case.x,
                y: median / by,
                range: Some((min / by, max / by)),
            })
        };
        let series = (0..experiment.contenders.len()).map(|place| Series {
            place,
            points: cases.iter().filter_map(|case| point(case, place)).collect(),
        });
        let lines = LineChart {
            words,
            x: axis_of(experiment, &cases),
            x_label: experiment.axis.label.clone(),
            label,
            unit,
            series: series.filter(|one| !one.points.is_empty()).collect(),
            marks: Marks::Every,
        };
        of_lines(lines, WHOLE, group.title.clone(), None)
    };
    let mut plots = vec![plot(words.clone(), any.label.clone(), any.unit, &|_| {
        Some(1.0)
    })];
    let firsts: Vec<f64> = cases.iter().filter_map(|case| first_median(case)).collect();
    let steep = Spread::of(&firsts).is_some_and(|all| all.min > 0.0 && all.max / all.min > STEEP);
    if let [first, _, ..] = &experiment.contenders[..]
        && steep
    {
        let first = &first.name;
        let words = ChartText {
            id: words.id + "-relative",
            title: format!("{}, as a multiple of {first}", words.title),
            description: words.description + " All are divided by the median of the first one.",
        };
        let label = format!("{}, {first} = 1", any.label);
        plots.push(plot(words, label, Unit::Count, &first_median));
    }
    plots
}

/// The cases, without repeating the axis's name in labels such as `10 connections`.
fn axis_of(experiment: &Experiment, cases: &[&Case]) -> AxisScale {
    let name = &experiment.axis.label;
    let short = |case: &&Case| {
        let short = case.label.strip_suffix(name.as_str()).map(str::trim_end);
        let short = short.filter(|short| !short.is_empty());
        (case.x, short.unwrap_or(&case.label).to_owned())
    };
    AxisScale::of_cases(cases.iter().map(short).collect())
}

/// Draws for the page and for phones, with different ids.
fn of_lines(
    mut lines: LineChart,
    size: (f64, f64),
    group: String,
    numbers: Option<ReportTable>,
) -> Plot {
    lines.words.description.push_str(lines.axes());
    let svg = lines.draw(size);
    lines.words.id.push_str("-narrow");
    Plot {
        svg,
        narrow: Some(lines.draw(NARROW)),
        legend: Legend::Lines(lines.series.iter().map(|one| one.place).collect()),
        words: lines.words,
        group,
        numbers,
        is_small: size == HALF,
    }
}

/// Bars for the metrics that only one case has.
fn of_case(experiment: &Experiment, case: &Case, group: &TableGroup<'_>, id: &str) -> Vec<Plot> {
    let times = times(experiment, case, group, id);
    let is_elsewhere = |name: &str| {
        times.is_some() && TIMES.contains(&name)
            || !case.latencies.is_empty() && LATENCIES.contains(&name)
    };
    let metrics = group.metrics.iter().filter(|name| !is_elsewhere(name));
    let shown = metrics.filter_map(|name| find(case, name)).take(BARS_MAX);
    let bars: Vec<Plot> = shown.map(|one| bars(experiment, one, group, id)).collect();
    times.into_iter().chain(bars).collect()
}

fn bars(experiment: &Experiment, measured: &Measured, group: &TableGroup<'_>, id: &str) -> Plot {
    let contenders = experiment.contenders.iter().enumerate();
    let bars = contenders.filter_map(|(place, contender)| {
        let spread = spread_of(measured, place)?;
        Some(Bar {
            name: contender.name.clone(),
            parts: vec![(place, spread.median)],
            range: Some((spread.min, spread.max)),
            stroke: None,
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
        bars: bars.collect(),
    };
    of_bars(chart, Legend::None, &group.title)
}

/// Processor time in user space and in the kernel, and the time that passed.
fn times(experiment: &Experiment, case: &Case, group: &TableGroup<'_>, id: &str) -> Option<Plot> {
    let own = |name: &str| find(case, name).filter(|_| group.metrics.contains(&name));
    let (user, system) = (own("user")?, own("system")?);
    let wall = find(case, "wall");
    let median = |of: &Measured, place| Some(spread_of(of, place)?.median);
    let contenders = experiment.contenders.iter().enumerate();
    let bars = contenders.filter_map(|(place, contender)| {
        let wall = wall.and_then(|wall| median(wall, place));
        Some(Bar {
            name: contender.name.clone(),
            parts: vec![(0, median(user, place)?), (1, median(system, place)?)],
            range: None,
            stroke: wall,
            figure: wall.map_or(String::new(), |wall| figure(wall, Unit::Seconds)),
        })
    });
    let chart = BarChart {
        words: ChartText {
            id: format!("{id}-times"),
            title: format!("{}: where the time went (lower is better)", case.label),
            description: "The bar is processor time in user space and in the kernel; the stroke \
                          across and the figure are the time that passed. All are medians."
                .into(),
        },
        label: "time".into(),
        unit: Unit::Seconds,
        bars: bars.collect(),
    };
    let parts = vec![(0, user.label.clone()), (1, system.label.clone())];
    Some(of_bars(chart, Legend::Parts(parts), &group.title))
}

fn of_bars(chart: BarChart, legend: Legend, group: &str) -> Plot {
    Plot {
        svg: chart.draw(BARS_WIDE),
        words: chart.words,
        group: group.to_owned(),
        narrow: None,
        legend,
        numbers: None,
        is_small: true,
    }
}

fn points(pairs: &[(f64, f64)]) -> Vec<Point> {
    let points = pairs.iter().map(|&(x, y)| Point { x, y, range: None });
    points.collect()
}

/// The latency that a share of the requests did not exceed.
fn latencies(experiment: &Experiment, case: &Case, id: &str) -> Option<Plot> {
    let series: Vec<Series> = case
        .latencies
        .iter()
        .map(|one| {
            // Ten requests at least must be beyond a share.
            let is_known =
                |share: f64| share < 1.0 && (1.0 - share) * one.count as f64 >= 10.0 - 1e-6;
            let known = one.quantiles.iter().filter(|(share, _)| is_known(*share));
            let known: Vec<_> = known.map(|&(share, took)| (nines(share), took)).collect();
            Series {
                place: one.contender,
                points: points(&known),
            }
        })
        .collect();
    let all = series.iter().flat_map(|one| &one.points);
    let last = all.map(|point| point.x).reduce(f64::max)?;
    let lines = LineChart {
        words: ChartText {
            id: format!("{id}-latencies"),
            title: format!("Latency: {} (lower is better)", case.label),
            description: "The latency that a share of the requests did not exceed; each nine is \
                          as wide as the one before. All rounds together."
                .into(),
        },
        x: AxisScale::of_nines(last.max(1.0)),
        x_label: "share of requests that took no longer".into(),
        label: "latency".into(),
        unit: Unit::Seconds,
        series,
        marks: Marks::Every,
    };
    let numbers = table_of_latencies(experiment, case);
    Some(of_lines(lines, WHOLE, String::new(), Some(numbers)))
}

fn table_of_latencies(experiment: &Experiment, case: &Case) -> ReportTable {
    let quantiles = case.latencies.iter().flat_map(|one| &one.quantiles);
    let mut shares: Vec<f64> = quantiles.map(|(share, _)| *share).collect();
    shares.retain(|share| *share >= 0.5);
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let rows = case.latencies.iter().map(|latencies| {
        let cell = |share: &f64| {
            let found = latencies.quantiles.iter().find(|(at, _)| at == share);
            plain_cell(found.map(|(_, took)| *took), Unit::Seconds)
        };
        let count = plain_cell(Some(latencies.count as f64), Unit::Count);
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

fn plain_cell(value: Option<f64>, unit: Unit) -> TableCell {
    value.map_or(TableCell::Absent, |value| {
        TableCell::Plain(figure(value, unit))
    })
}

/// One chart for each quantity that was sampled over time.
fn timelines(experiment: &Experiment, case: &Case, id: &str) -> Vec<Plot> {
    let mut kinds: Vec<Vec<&Timeline>> = Vec::new();
    for timeline in case.timelines.iter().filter(|one| !one.points.is_empty()) {
        let same = |kind: &&mut Vec<&Timeline>| {
            (&kind[0].label, kind[0].unit) == (&timeline.label, timeline.unit)
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.push(timeline),
            None => kinds.push(vec![timeline]),
        }
    }
    let plot = |(index, kind): (usize, &Vec<&Timeline>)| {
        let (label, unit) = (&kind[0].label, kind[0].unit);
        let series = kind.iter().map(|one| Series {
            place: one.contender,
            points: points(&one.points),
        });
        let all = kind.iter().flat_map(|one| &one.points);
        let lines = LineChart {
            words: ChartText {
                id: format!("{id}-t{index}"),
                title: format!("Over time: {label}"),
                description: format!("One round, {}. Marks distinguish the lines.", case.label),
            },
            x: AxisScale::from_zero(all.map(|(at, _)| *at).fold(0.0, f64::max), Unit::Seconds),
            x_label: "time since the load began".into(),
            label: label.clone(),
            unit,
            series: series.collect(),
            marks: Marks::Few,
        };
        let rows = kind.iter().map(|one| {
            let values = || one.points.iter().map(|(_, value)| *value);
            let ends = [
                values().next(),
                values().min_by(f64::total_cmp),
                values().max_by(f64::total_cmp),
                values().next_back(),
            ];
            TableRow {
                name: experiment.contenders[one.contender].name.clone(),
                cells: ends.map(|end| plain_cell(end, unit)).into(),
            }
        });
        let numbers = ReportTable {
            caption: format!("{label} over time"),
            columns: ["first", "least", "greatest", "last"]
                .map(str::to_owned)
                .into(),
            rows: rows.collect(),
        };
        of_lines(lines, HALF, String::new(), Some(numbers))
    };
    kinds.iter().enumerate().map(plot).collect()
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
