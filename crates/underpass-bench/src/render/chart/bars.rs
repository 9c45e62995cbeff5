//! Bars for a single case: one below the other, names above them, figures at their ends.

use maud::{Markup, html};

use super::draw::{
    ChartText, GRID, INK, MUTED, PAPER, TextSide, colour, line, px, svg, text, whisker, width,
};
use super::scale::AxisScale;
use crate::document::Unit;
use crate::stats::Spread;

/// The height of a row: the name, its bar, and space.
const ROW: f64 = 38.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 26.0;

pub(in super::super) struct BarChart {
    pub(in super::super) words: ChartText,
    pub(in super::super) label: String,
    pub(in super::super) unit: Unit,
    /// The greatest value that the axis shows.
    pub(in super::super) reach: f64,
    pub(in super::super) bars: Vec<Bar>,
}

pub(in super::super) struct Bar {
    pub(in super::super) name: String,
    /// The contender's place, which gives its colour.
    pub(in super::super) place: usize,
    pub(in super::super) spread: Spread,
    /// The text behind it.
    pub(in super::super) figure: String,
}

impl BarChart {
    /// This many pixels wide, as high as it needs to be.
    pub(in super::super) fn draw(&self, wide: f64) -> Markup {
        let bottom = TOP + self.bars.len() as f64 * ROW;
        let scale = AxisScale::from_zero(self.reach, self.unit);
        let figures = self.bars.iter().map(|bar| width(&bar.figure));
        let right = wide - figures.fold(0.0, f64::max) - 14.0;
        let x = |value: f64| scale.place(value, (4.0, right));
        let drawing = html! {
            (text(&scale.labelled(&self.label), (0.0, 2.0), TextSide::Below, INK))
            @for (tick, _) in &scale.ticks {
                (line(&[(x(*tick), TOP), (x(*tick), bottom)], GRID, 1.0))
            }
            @for (at, label) in scale.apart((4.0, right)) {
                @let at = (at.max(width(label) / 2.0), bottom + 8.0);
                (text(label, at, TextSide::CentredBelow, MUTED))
            }
            @for (row, bar) in self.bars.iter().enumerate() {
                (bar.draw(TOP + row as f64 * ROW, x))
            }
        };
        svg(&self.words, (wide, bottom + BOTTOM), drawing)
    }
}

impl Bar {
    fn draw(&self, top: f64, x: impl Fn(f64) -> f64) -> Markup {
        let (from, to) = (top + 20.0, top + 34.0);
        let middle = f64::midpoint(from, to);
        let Spread { median, min, max } = self.spread;
        let ends = [(x(min), middle), (x(max), middle)];
        html! {
            (text(&self.name, (x(0.0), top + 6.0), TextSide::Below, INK))
            rect x=(px(x(0.0))) y=(px(from)) width=(px(x(median) - x(0.0)))
                height=(px(to - from)) fill=(colour(self.place)) {}
            (whisker(ends, (0.0, 4.0), PAPER, 3.0))
            (whisker(ends, (0.0, 4.0), INK, 1.5))
            (text(&self.figure, (x(max) + 7.0, middle), TextSide::Right, INK))
        }
    }
}
