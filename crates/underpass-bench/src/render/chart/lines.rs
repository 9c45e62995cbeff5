//! Lines over an axis: sizes, time, or shares of requests.

use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::Ranged;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, TRANSPARENT};

use super::palette::{GRID, INK, MUTED};
use super::scale::AxisScale;
use super::{
    Area, ChartText, DrawResult, FINE, FONT, colour, line, mark, style, svg, text, whisker, width,
};
use crate::document::Unit;

/// Contenders stand beside each other by at most this much, so that their ranges can be seen.
const ASIDE: i32 = 3 * FINE;
const TICK: i32 = 4 * FINE;
/// Marks along a line of many points.
const FEW: usize = 5;

pub(in super::super) struct LineChart {
    pub(in super::super) words: ChartText,
    pub(in super::super) x: AxisScale,
    pub(in super::super) x_label: String,
    pub(in super::super) label: String,
    pub(in super::super) unit: Unit,
    pub(in super::super) series: Vec<Series>,
    pub(in super::super) marks: Marks,
}

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

impl Point {
    fn ends(&self) -> [f64; 2] {
        self.range.map_or([self.y; 2], |(low, high)| [low, high])
    }
}

/// How many points of a line have a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Marks {
    Every,
    Few,
}

impl LineChart {
    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|one| &one.points)
    }

    fn y(&self) -> AxisScale {
        let ends: Vec<f64> = self.points().flat_map(Point::ends).collect();
        AxisScale::of_values(&ends, self.unit)
    }

    /// Says in words which axes are logarithmic.
    pub(in super::super) fn axes(&self) -> &'static str {
        match (self.x.is_logarithmic(), self.y().is_logarithmic()) {
            (true, true) => " Both axes are logarithmic.",
            (true, false) => " The horizontal axis is logarithmic.",
            (false, true) => " The vertical axis is logarithmic.",
            (false, false) => "",
        }
    }

    /// An SVG element of this size in pixels.
    pub(in super::super) fn draw(&self, (wide, high): (i32, i32)) -> String {
        let size = (wide * FINE, high * FINE);
        svg(&self.words, size, |area| self.draw_on(area, size))
    }

    fn draw_on(&self, area: &Area<'_>, (wide, high): (i32, i32)) -> DrawResult {
        let y = self.y();
        let (left, right) = self.margins(&y, wide);
        let plane_wide = wide - left - right;
        let mut x = self.x.clone();
        x.ticks = apart(&x, plane_wide);
        let mut chart = ChartBuilder::on(area)
            .margin_top(30 * FINE)
            .margin_right(right)
            .x_label_area_size(46 * FINE)
            .y_label_area_size(left)
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .bold_line_style(GRID.stroke_width(FINE as u32))
            .light_line_style(TRANSPARENT)
            .axis_style(MUTED.stroke_width(FINE as u32))
            .label_style(style(MUTED))
            .set_all_tick_mark_size(TICK)
            .x_label_formatter(&|at| x.label_at(*at))
            .y_label_formatter(&|at| y.label_at(*at))
            .draw()?;
        let label = y.labelled(&self.label);
        text(area, &label, (0, 2 * FINE), (HPos::Left, VPos::Top), INK)?;
        let (label, corner) = (x.labelled(&self.x_label), (wide - FINE, high - 3 * FINE));
        text(area, &label, corner, (HPos::Right, VPos::Bottom), INK)?;
        let plane = chart.plotting_area();
        let step = self.step(plane_wide);
        let first = step * (self.series.len() as i32 - 1) / 2;
        // The first contender is drawn last and lies on top.
        for (index, series) in self.series.iter().enumerate().rev() {
            let at = |x: f64, y: f64| {
                let (x, y) = plane.map_coordinate(&(x, y));
                (x + step * index as i32 - first, y)
            };
            self.draw_series(area, series, at)?;
        }
        Ok(())
    }

    /// Room for labels at the left and at the right.
    fn margins(&self, y: &AxisScale, wide: i32) -> (i32, i32) {
        let labels = y.ticks.iter().map(|(_, label)| width(label));
        let left = labels.max().unwrap_or(0) + 2 * TICK + FINE;
        // Half of the last label reaches beyond its tick, which may be within the plane.
        let beyond = self.x.ticks.last().map_or(0, |(at, label)| {
            let within = wide - self.x.map(at, (0, wide));
            width(label) / 2 - within * 3 / 4
        });
        (left, beyond.max(8 * FINE))
    }

    fn draw_series(
        &self,
        area: &Area<'_>,
        series: &Series,
        at: impl Fn(f64, f64) -> (i32, i32),
    ) -> DrawResult {
        let ink = colour(series.place);
        for point in series.points.iter().filter(|point| point.range.is_some()) {
            let faint = ink.mix(0.6).stroke_width(3 * FINE as u32 / 2);
            let ends = point.ends().map(|y| at(point.x, y));
            whisker(area, ends, (3 * FINE, 0), faint)?;
        }
        let points: Vec<_> = series.points.iter().map(|p| at(p.x, p.y)).collect();
        line(area, &points, ink.stroke_width(2 * FINE as u32))?;
        let every = match self.marks {
            Marks::Every => 1,
            Marks::Few => points.len().div_ceil(FEW).max(1),
        };
        // Lines of many points have their marks at different places.
        let mut marked = points.iter().skip(series.place % every).step_by(every);
        marked.try_for_each(|&at| mark(area, series.place, at))
    }

    /// How far series stand beside each other: together less than a tenth of the space between two
    /// cases, and not at all without ranges.
    fn step(&self, wide: i32) -> i32 {
        let ticks = self.x.ticks.iter();
        let mut places: Vec<i32> = ticks.map(|(at, _)| self.x.map(at, (0, wide))).collect();
        places.sort_unstable();
        let gap = places.windows(2).map(|pair| pair[1] - pair[0]).min();
        let count = self.series.len().max(1) as i32;
        match self.points().any(|point| point.range.is_some()) {
            true => (gap.unwrap_or(wide) / 2 / count).min(ASIDE),
            false => 0,
        }
    }
}

/// The ticks whose labels don't touch: the last one, and of the others as many as fit.
fn apart(scale: &AxisScale, wide: i32) -> Vec<(f64, String)> {
    let gap = (FONT / 2.0) as i32 * FINE;
    let mut taken: Vec<(i32, i32)> = Vec::new();
    let mut ticks = scale.ticks.clone();
    ticks.reverse();
    ticks.retain(|(at, label)| {
        let (middle, half) = (scale.map(at, (0, wide)), (width(label) + gap) / 2);
        let (from, to) = (middle - half, middle + half);
        let is_free = taken.iter().all(|&(start, end)| to <= start || end <= from);
        taken.extend(is_free.then_some((from, to)));
        is_free
    });
    ticks.reverse();
    ticks
}
