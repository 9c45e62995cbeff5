//! Marks over an axis of cases. No line joins them: nothing was measured between them.

use maud::{Markup, html};

use super::draw::{
    ChartText, GRID, INK, MUTED, TextSide, colour, line, mark, svg, text, whisker, width,
};
use super::scale::AxisScale;
use crate::document::Unit;

/// The maximum distance of contenders in one case, which keeps their ranges visible.
const ASIDE: f64 = 14.0;
/// Between a label and its axis.
const GAP: f64 = 6.0;
/// Room for the labels above and below the plane.
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

pub(in super::super) struct MarkChart {
    pub(in super::super) words: ChartText,
    pub(in super::super) x: AxisScale,
    pub(in super::super) x_label: String,
    pub(in super::super) label: String,
    pub(in super::super) unit: Unit,
    /// The least and the greatest value that the axis shows.
    pub(in super::super) ends: (f64, f64),
    pub(in super::super) series: Vec<Series>,
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
    pub(in super::super) fn ends(&self) -> [f64; 2] {
        self.range.map_or([self.y; 2], |(low, high)| [low, high])
    }
}

impl MarkChart {
    fn y(&self) -> AxisScale {
        AxisScale::of_values(self.ends, self.unit)
    }

    /// Says in words if the vertical axis is logarithmic.
    pub(in super::super) fn axes(&self) -> &'static str {
        match self.y().is_logarithmic() {
            true => " The axis is logarithmic.",
            false => "",
        }
    }

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
        html! {
            g opacity="0.6" {
                @for point in series.points.iter().filter(|point| point.range.is_some()) {
                    (whisker(point.ends().map(|end| (x(point.x), y(end))), (3.0, 0.0), &ink, 1.5))
                }
            }
            @for at in points { (mark(series.place, at)) }
        }
    }

    /// The distance of series in one case: all together fill half of the space between two cases.
    fn step(&self, (left, right): (f64, f64)) -> f64 {
        let gap = (right - left) / self.x.ticks.len().max(1) as f64;
        (gap / 2.0 / self.series.len().max(1) as f64).min(ASIDE)
    }
}
