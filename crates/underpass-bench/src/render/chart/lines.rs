//! Lines over an axis: sizes, time, or shares of requests.

use maud::{Markup, html};

use super::scale::AxisScale;
use super::{ChartText, GRID, INK, MUTED, TextSide, colour, line, mark, svg, text, whisker, width};
use crate::document::Unit;

/// Contenders stand beside each other by at most this much, so that their ranges can be seen.
const ASIDE: f64 = 3.0;
/// Between a label and its axis.
const GAP: f64 = 6.0;
/// Room for the labels above and below the plane.
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
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

    /// An SVG element of this size.
    pub(in super::super) fn draw(&self, (wide, high): (f64, f64)) -> Markup {
        let (x, y) = (&self.x, self.y());
        let across = self.across(&y, wide);
        let down = (high - BOTTOM, TOP);
        let step = self.step(across);
        let first = step * (self.series.len() as f64 - 1.0) / 2.0;
        let drawing = html! {
            @for (tick, label) in &y.ticks {
                @let at = y.place(*tick, down);
                (line(&[(across.0, at), (across.1, at)], GRID, 1.0))
                (text(label, (across.0 - GAP, at), TextSide::Left, MUTED))
            }
            @for (at, label) in x.apart(across) {
                (line(&[(at, down.0), (at, down.1)], GRID, 1.0))
                (text(label, (at, down.0 + GAP), TextSide::CentredBelow, MUTED))
            }
            (line(&[(across.0, down.1), (across.0, down.0), (across.1, down.0)], MUTED, 1.0))
            (text(&y.labelled(&self.label), (0.0, 2.0), TextSide::Below, INK))
            (text(&x.labelled(&self.x_label), (wide - 1.0, high - 3.0), TextSide::Above, INK))
            // The first contender is drawn last and lies on top.
            @for (index, series) in self.series.iter().enumerate().rev() {
                @let aside = step * index as f64 - first;
                (self.draw_series(series, |at| x.place(at, across) + aside, |at| y.place(at, down)))
            }
        };
        svg(&self.words, (wide, high), drawing)
    }

    /// The ends of the plane between the labels at the left and at the right.
    fn across(&self, y: &AxisScale, wide: f64) -> (f64, f64) {
        let labels = y.ticks.iter().map(|(_, label)| width(label));
        let left = labels.fold(0.0, f64::max) + GAP + 2.0;
        // Half of the last label reaches beyond its tick, which may be within the plane.
        let beyond = self.x.ticks.last().map_or(0.0, |(at, label)| {
            let within = wide - self.x.place(*at, (0.0, wide));
            width(label) / 2.0 - within * 0.75
        });
        (left, wide - beyond.max(8.0))
    }

    fn draw_series(
        &self,
        series: &Series,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
    ) -> Markup {
        let ink = colour(series.place);
        let points = series.points.iter().map(|point| (x(point.x), y(point.y)));
        let points: Vec<_> = points.collect();
        let every = match self.marks {
            Marks::Every => 1,
            Marks::Few => points.len().div_ceil(FEW).max(1),
        };
        html! {
            g opacity="0.6" {
                @for point in series.points.iter().filter(|point| point.range.is_some()) {
                    (whisker(point.ends().map(|end| (x(point.x), y(end))), (3.0, 0.0), &ink, 1.5))
                }
            }
            (line(&points, &ink, 2.0))
            // Lines of many points have their marks at different places.
            @for at in points.iter().skip(series.place % every).step_by(every) {
                (mark(series.place, *at))
            }
        }
    }

    /// How far series stand beside each other: together less than a tenth of the space between two
    /// cases, and not at all without ranges.
    fn step(&self, (left, right): (f64, f64)) -> f64 {
        let ticks = self.x.ticks.iter();
        let mut places: Vec<f64> = ticks
            .map(|(at, _)| self.x.place(*at, (left, right)))
            .collect();
        places.sort_by(f64::total_cmp);
        let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
        let gap = gaps.fold(right - left, f64::min);
        match self.points().any(|point| point.range.is_some()) {
            true => (gap / 2.0 / self.series.len().max(1) as f64).min(ASIDE),
            false => 0.0,
        }
    }
}
