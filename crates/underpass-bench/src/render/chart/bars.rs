//! Bars for a case that stands alone: one below the other, names above them, figures beside them.

use plotters::coord::ranged1d::Ranged;
use plotters::element::{PathElement, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::palette::{GRID, INK, MUTED, PAPER};
use super::scale::AxisScale;
use super::{Area, ChartText, DrawResult, FINE, colour, svg, text, width};
use crate::document::Unit;

/// Of a row: the name, its bar, and air.
const ROW: i32 = 38;
const TOP: i32 = 26;
const BOTTOM: i32 = 26;

/// A chart of bars.
pub(in super::super) struct BarChart {
    pub(in super::super) words: ChartText,
    pub(in super::super) label: String,
    pub(in super::super) unit: Unit,
    pub(in super::super) bars: Vec<Bar>,
}

/// One bar.
pub(in super::super) struct Bar {
    pub(in super::super) name: String,
    /// From the left, each with the series that gives its colour.
    pub(in super::super) parts: Vec<(usize, f64)>,
    /// Least and greatest.
    pub(in super::super) range: Option<(f64, f64)>,
    /// A further figure, as a stroke across.
    pub(in super::super) stroke: Option<f64>,
    /// What is written behind it.
    pub(in super::super) figure: String,
}

impl BarChart {
    /// An SVG element this many pixels wide, as high as it needs to be.
    pub(in super::super) fn draw(&self, wide: i32) -> String {
        let rows = i32::try_from(self.bars.len()).unwrap_or(i32::MAX);
        svg(&self.words, (wide, TOP + rows * ROW + BOTTOM), |area| {
            self.draw_on(area)
        })
    }

    fn draw_on(&self, area: &Area<'_>) -> DrawResult {
        let (wide, high) = area.dim_in_pixel();
        let (wide, high) = (wide.cast_signed(), high.cast_signed());
        let scale = AxisScale::from_zero(
            self.bars.iter().map(Bar::reach).fold(0.0, f64::max),
            self.unit,
        );
        let figures = self
            .bars
            .iter()
            .map(|bar| width(&bar.figure))
            .max()
            .unwrap_or(0);
        let across = (4 * FINE, wide - figures - 14 * FINE);
        let x = |value: f64| scale.map(&value, across);
        let label = match scale.suffix {
            "" => self.label.clone(),
            suffix => format!("{} ({suffix})", self.label),
        };
        text(area, &label, (0, 2 * FINE), (HPos::Left, VPos::Top), INK)?;
        let (top, bottom) = (TOP * FINE, high - BOTTOM * FINE);
        let mut free_from = i32::MIN;
        for tick in &scale.ticks {
            let at = x(tick.at);
            let line = PathElement::new(
                vec![(at, top), (at, bottom)],
                GRID.stroke_width(FINE as u32),
            );
            area.draw(&line)?;
            let half = width(&tick.label) / 2;
            let middle = at.max(half);
            if middle - half >= free_from {
                text(
                    area,
                    &tick.label,
                    (middle, bottom + 8 * FINE),
                    (HPos::Center, VPos::Top),
                    MUTED,
                )?;
                free_from = middle + half + 6 * FINE;
            }
        }
        let rows = AxisScale::of_rows(self.bars.len());
        for (index, bar) in self.bars.iter().enumerate() {
            bar.draw_on(area, rows.map(&(index as f64), (top, bottom)), x)?;
        }
        Ok(())
    }
}

impl Bar {
    fn draw_on(&self, area: &Area<'_>, top: i32, x: impl Fn(f64) -> i32) -> DrawResult {
        text(
            area,
            &self.name,
            (x(0.0), top + 6 * FINE),
            (HPos::Left, VPos::Top),
            INK,
        )?;
        let (from, to) = (top + 20 * FINE, top + 34 * FINE);
        let middle = i32::midpoint(from, to);
        let mut done = 0.0;
        for &(series, value) in &self.parts {
            let corners = [(x(done), from), (x(done + value), to)];
            area.draw(&Rectangle::new(corners, colour(series).filled()))?;
            done += value;
        }
        if let Some((low, high)) = self.range {
            let (low, high) = (x(low), x(high));
            let cap = |x: i32| vec![(x, middle - 4 * FINE), (x, middle + 4 * FINE)];
            for path in [vec![(low, middle), (high, middle)], cap(low), cap(high)] {
                let thick = 3 * FINE.unsigned_abs();
                area.draw(&PathElement::new(path.clone(), PAPER.stroke_width(thick)))?;
                area.draw(&PathElement::new(path, INK.stroke_width(thick / 2)))?;
            }
        }
        if let Some(at) = self.stroke {
            let across = vec![(x(at), from - 3 * FINE), (x(at), to + 3 * FINE)];
            area.draw(&PathElement::new(
                across,
                INK.stroke_width(2 * FINE.unsigned_abs()),
            ))?;
        }
        let behind = x(self.reach()) + 7 * FINE;
        text(
            area,
            &self.figure,
            (behind, middle),
            (HPos::Left, VPos::Center),
            INK,
        )
    }

    /// The rightmost of all that is drawn of it.
    fn reach(&self) -> f64 {
        let sum: f64 = self.parts.iter().map(|(_, value)| value).sum();
        let high = self.range.map_or(sum, |(_, high)| high);
        sum.max(high).max(self.stroke.unwrap_or(0.0))
    }
}
