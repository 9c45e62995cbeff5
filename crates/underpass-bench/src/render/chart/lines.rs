//! Lines over an axis: sizes, time, or shares of requests.

use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::Ranged;
use plotters::element::PathElement;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, TRANSPARENT};

use super::palette::{GRID, INK, MUTED};
use super::scale::{AxisScale, Tick, nines};
use super::{Area, ChartText, DrawResult, FINE, FONT, colour, mark, style, svg, text, width};
use crate::document::{Axis, Case, Unit};

/// Contenders stand beside each other by this much at the most, so that their ranges can be seen.
const ASIDE: i32 = 3 * FINE;
const TICK: i32 = 4 * FINE;
/// Marks along a line of many points.
const FEW: usize = 5;

/// A chart of lines.
pub(in super::super) struct LineChart {
    pub(in super::super) words: ChartText,
    x: AxisScale,
    x_label: String,
    y: AxisScale,
    y_label: String,
    series: Vec<Series>,
    marks: Marks,
}

/// One line.
pub(in super::super) struct Series {
    /// The contender's place, which gives colour and mark.
    pub(in super::super) place: usize,
    pub(in super::super) points: Vec<Point>,
}

#[derive(Clone, Copy)]
pub(in super::super) struct Point {
    pub(in super::super) x: f64,
    pub(in super::super) y: f64,
    /// Least and greatest, where the point is a median.
    pub(in super::super) range: Option<(f64, f64)>,
}

/// How many points of a line have a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Marks {
    Every,
    Few,
}

impl LineChart {
    /// Medians over the cases of an experiment.
    pub(in super::super) fn over_cases(
        words: ChartText,
        (axis, cases): (&Axis, &[&Case]),
        (label, unit): (&str, Unit),
        series: Vec<Series>,
    ) -> LineChart {
        let mut x = AxisScale::of_cases(cases);
        for tick in &mut x.ticks {
            // `10 connections` over an axis named `connections`.
            let short = tick.label.strip_suffix(&axis.label).map(str::trim_end);
            if let Some(short) = short.filter(|short| !short.is_empty()) {
                tick.label = short.to_owned();
            }
        }
        let x = (x, axis.label.clone());
        LineChart::new(words, x, (label, unit), series, Marks::Every)
    }

    /// Something over seconds.
    pub(in super::super) fn over_time(
        words: ChartText,
        (label, unit): (&str, Unit),
        series: Vec<Series>,
    ) -> LineChart {
        let all = series.iter().flat_map(|one| &one.points);
        let x = AxisScale::from_zero(all.map(|point| point.x).fold(0.0, f64::max), Unit::Seconds);
        let x_label = format!("time since the load began ({})", x.suffix);
        LineChart::new(words, (x, x_label), (label, unit), series, Marks::Few)
    }

    /// Latency over the share of requests that took no longer; points beyond what `count`
    /// requests can tell are left out.
    pub(in super::super) fn over_shares(words: ChartText, mut series: Vec<Series>) -> LineChart {
        for one in &mut series {
            one.points.retain(|point| point.x < 1.0);
            for point in &mut one.points {
                point.x = nines(point.x);
            }
        }
        let all = series.iter().flat_map(|one| &one.points);
        let x = AxisScale::of_nines(all.map(|point| point.x).fold(1.0, f64::max));
        let x_label = "share of requests that took no longer".to_owned();
        LineChart::new(
            words,
            (x, x_label),
            ("latency", Unit::Seconds),
            series,
            Marks::Every,
        )
    }

    fn new(
        words: ChartText,
        (x, x_label): (AxisScale, String),
        (label, unit): (&str, Unit),
        series: Vec<Series>,
        marks: Marks,
    ) -> LineChart {
        let points = series.iter().flat_map(|one| &one.points);
        let ends = points.flat_map(|point| {
            let (low, high) = point.range.unwrap_or((point.y, point.y));
            [low, high]
        });
        let y = AxisScale::of_values(&ends.collect::<Vec<_>>(), unit);
        let y_label = match y.suffix {
            "" => label.to_owned(),
            suffix => format!("{label} ({suffix})"),
        };
        LineChart {
            words,
            x,
            x_label,
            y,
            y_label,
            series,
            marks,
        }
    }

    /// What to know of the axes, in words.
    pub(in super::super) fn axes(&self) -> &'static str {
        match (self.x.is_logarithmic(), self.y.is_logarithmic()) {
            (true, true) => "Both axes go by powers of ten.",
            (true, false) => "The horizontal axis goes by powers of ten.",
            (false, true) => "The vertical axis goes by powers of ten.",
            (false, false) => "",
        }
    }

    /// An SVG element of this size in pixels.
    pub(in super::super) fn draw(&self, (wide, high): (i32, i32)) -> String {
        svg(&self.words, (wide, high), |area| self.draw_on(area))
    }

    fn draw_on(&self, area: &Area<'_>) -> DrawResult {
        let (wide, high) = area.dim_in_pixel();
        let (wide, high) = (wide.cast_signed(), high.cast_signed());
        let (left, right) = self.margins(wide);
        let x = self.x.with_ticks(apart(&self.x, wide - left - right));
        let (x_ticks, y_ticks) = (x.ticks.clone(), self.y.ticks.clone());
        let mut chart = ChartBuilder::on(area)
            .margin_top(30 * FINE)
            .margin_right(right)
            .x_label_area_size(46 * FINE)
            .y_label_area_size(left)
            .build_cartesian_2d(x, self.y.clone())?;
        chart
            .configure_mesh()
            .bold_line_style(GRID.stroke_width(FINE.unsigned_abs()))
            .light_line_style(TRANSPARENT)
            .axis_style(MUTED.stroke_width(FINE.unsigned_abs()))
            .label_style(style(MUTED))
            .set_all_tick_mark_size(TICK)
            .x_label_formatter(&|at| label_at(&x_ticks, *at))
            .y_label_formatter(&|at| label_at(&y_ticks, *at))
            .draw()?;
        text(
            area,
            &self.y_label,
            (0, 2 * FINE),
            (HPos::Left, VPos::Top),
            INK,
        )?;
        let corner = (wide - FINE, high - 3 * FINE);
        text(
            area,
            &self.x_label,
            corner,
            (HPos::Right, VPos::Bottom),
            INK,
        )?;
        let plane = chart.plotting_area();
        let place = |point: &Point, aside: i32| {
            let at = |y: f64| {
                let (x, y) = plane.map_coordinate(&(point.x, y));
                (x + aside, y)
            };
            let (low, high) = point.range.unwrap_or((point.y, point.y));
            Placed {
                at: at(point.y),
                low: at(low),
                high: at(high),
            }
        };
        let asides = self.asides(wide - left - right);
        // The first contender is drawn last and lies on top.
        for (series, aside) in self.series.iter().zip(&asides).rev() {
            let placed: Vec<Placed> = series.points.iter().map(|p| place(p, *aside)).collect();
            self.draw_series(area, series, &placed)?;
        }
        Ok(())
    }

    /// Room for labels at the left and at the right.
    fn margins(&self, wide: i32) -> (i32, i32) {
        let labels = self.y.ticks.iter().map(|tick| width(&tick.label));
        let left = labels.max().unwrap_or(0) + 2 * TICK + FINE;
        // Half of the last label reaches beyond its tick, which may be within the plane.
        let beyond = self.x.ticks.last().map_or(0, |tick| {
            let within = wide - self.x.map(&tick.at, (0, wide));
            width(&tick.label) / 2 - within * 3 / 4
        });
        (left, beyond.max(8 * FINE))
    }

    fn draw_series(&self, area: &Area<'_>, series: &Series, placed: &[Placed]) -> DrawResult {
        let ink = colour(series.place);
        for one in placed.iter().filter(|one| one.low != one.high) {
            let faint = ink.mix(0.6).stroke_width(3 * FINE.unsigned_abs() / 2);
            let ends = [one.low, one.high];
            area.draw(&PathElement::new(ends.to_vec(), faint))?;
            for (x, y) in ends {
                let cap = vec![(x - 3 * FINE, y), (x + 3 * FINE, y)];
                area.draw(&PathElement::new(cap, faint))?;
            }
        }
        let line: Vec<(i32, i32)> = placed.iter().map(|one| one.at).collect();
        area.draw(&PathElement::new(
            line,
            ink.stroke_width(2 * FINE.unsigned_abs()),
        ))?;
        let every = match self.marks {
            Marks::Every => 1,
            Marks::Few => placed.len().div_ceil(FEW).max(1),
        };
        // Lines of many points have their marks at different places.
        for one in placed.iter().skip(series.place % every).step_by(every) {
            mark(area, series.place, one.at)?;
        }
        Ok(())
    }

    /// How far each series stands aside of where its points belong: less than a tenth of what is
    /// between two cases.
    fn asides(&self, wide: i32) -> Vec<i32> {
        let count = i32::try_from(self.series.len()).unwrap_or(i32::MAX);
        let mut places: Vec<i32> = self
            .x
            .ticks
            .iter()
            .map(|tick| self.x.map(&tick.at, (0, wide)))
            .collect();
        places.sort_unstable();
        let gap = places
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .min()
            .unwrap_or(wide);
        let has_ranges = self
            .series
            .iter()
            .flat_map(|one| &one.points)
            .any(|p| p.range.is_some());
        let step = match has_ranges {
            true => (gap / 2 / count.max(1)).min(ASIDE),
            false => 0,
        };
        (0..count)
            .map(|index| step * index - step * (count - 1) / 2)
            .collect()
    }
}

/// A point and the ends of its range, in units of the drawing.
struct Placed {
    at: (i32, i32),
    low: (i32, i32),
    high: (i32, i32),
}

fn label_at(ticks: &[Tick], at: f64) -> String {
    let tick = ticks.iter().find(|tick| tick.at == at);
    tick.map_or(String::new(), |tick| tick.label.clone())
}

/// The ticks whose labels don't touch: the last one, and of the others whatever fits.
fn apart(scale: &AxisScale, wide: i32) -> Vec<Tick> {
    let gap = (FONT / 2.0) as i32 * FINE;
    let mut taken: Vec<(i32, i32)> = Vec::new();
    let mut kept: Vec<Tick> = Vec::new();
    for tick in scale.ticks.iter().rev() {
        let (middle, half) = (scale.map(&tick.at, (0, wide)), width(&tick.label) / 2);
        let (from, to) = (middle - half - gap / 2, middle + half + gap / 2);
        if taken.iter().all(|&(start, end)| to <= start || end <= from) {
            taken.push((from, to));
            kept.push(tick.clone());
        }
    }
    kept.reverse();
    kept
}
