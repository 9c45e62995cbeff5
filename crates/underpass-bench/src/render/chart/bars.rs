//! Bars for a case that stands alone: one below the other, names above them, figures beside them.

use plotters::coord::ranged1d::Ranged;
use plotters::element::Rectangle;
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::palette::{GRID, INK, MUTED, PAPER};
use super::scale::AxisScale;
use super::{Area, ChartText, DrawResult, FINE, colour, line, svg, text, whisker, width};
use crate::document::Unit;

/// The height of a row: the name, its bar, and space.
const ROW: i32 = 38 * FINE;
const TOP: i32 = 26 * FINE;
const BOTTOM: i32 = 26 * FINE;

pub(in super::super) struct BarChart {
    pub(in super::super) words: ChartText,
    pub(in super::super) label: String,
    pub(in super::super) unit: Unit,
    pub(in super::super) bars: Vec<Bar>,
}

pub(in super::super) struct Bar {
    pub(in super::super) name: String,
    /// From the left, each with the series that gives its colour.
    pub(in super::super) parts: Vec<(usize, f64)>,
    /// Least and greatest.
    pub(in super::super) range: Option<(f64, f64)>,
    /// Another figure, as a stroke across.
    pub(in super::super) stroke: Option<f64>,
    /// The text behind it.
    pub(in super::super) figure: String,
}

impl BarChart {
    /// An SVG element this many pixels wide, as high as it needs to be.
    pub(in super::super) fn draw(&self, wide: i32) -> String {
        let high = TOP + self.bars.len() as i32 * ROW + BOTTOM;
        svg(&self.words, (wide * FINE, high), |area| {
            let reach = self.bars.iter().map(Bar::reach).fold(0.0, f64::max);
            let scale = AxisScale::from_zero(reach, self.unit);
            let figures = self.bars.iter().map(|bar| width(&bar.figure)).max();
            let across = (4 * FINE, wide * FINE - figures.unwrap_or(0) - 14 * FINE);
            let x = |value: f64| scale.map(&value, across);
            let label = scale.labelled(&self.label);
            text(area, &label, (0, 2 * FINE), (HPos::Left, VPos::Top), INK)?;
            draw_ticks(area, &scale, x, high - BOTTOM)?;
            for (bar, top) in self.bars.iter().zip((TOP..).step_by(ROW as usize)) {
                bar.draw_on(area, top, x)?;
            }
            Ok(())
        })
    }
}

/// Draws a line at each tick, and labels where there is room.
fn draw_ticks(
    area: &Area<'_>,
    scale: &AxisScale,
    x: impl Fn(f64) -> i32,
    bottom: i32,
) -> DrawResult {
    let mut free_from = i32::MIN;
    for (tick, label) in &scale.ticks {
        let at = x(*tick);
        line(
            area,
            &[(at, TOP), (at, bottom)],
            GRID.stroke_width(FINE as u32),
        )?;
        let half = width(label) / 2;
        let middle = at.max(half);
        if middle - half >= free_from {
            let below = (middle, bottom + 8 * FINE);
            text(area, label, below, (HPos::Center, VPos::Top), MUTED)?;
            free_from = middle + half + 6 * FINE;
        }
    }
    Ok(())
}

impl Bar {
    fn draw_on(&self, area: &Area<'_>, top: i32, x: impl Fn(f64) -> i32) -> DrawResult {
        let above = (x(0.0), top + 6 * FINE);
        text(area, &self.name, above, (HPos::Left, VPos::Top), INK)?;
        let (from, to) = (top + 20 * FINE, top + 34 * FINE);
        let middle = i32::midpoint(from, to);
        let mut done = 0.0;
        for &(series, value) in &self.parts {
            let corners = [(x(done), from), (x(done + value), to)];
            area.draw(&Rectangle::new(corners, colour(series).filled()))?;
            done += value;
        }
        let thick = 3 * FINE as u32;
        if let Some((low, high)) = self.range {
            let (ends, cap) = ([(x(low), middle), (x(high), middle)], (0, 4 * FINE));
            whisker(area, ends, cap, PAPER.stroke_width(thick))?;
            whisker(area, ends, cap, INK.stroke_width(thick / 2))?;
        }
        if let Some(at) = self.stroke {
            let across = [(x(at), from - 3 * FINE), (x(at), to + 3 * FINE)];
            line(area, &across, INK.stroke_width(2 * FINE as u32))?;
        }
        let behind = (x(self.reach()) + 7 * FINE, middle);
        text(area, &self.figure, behind, (HPos::Left, VPos::Center), INK)
    }

    /// The rightmost value of all that is drawn.
    fn reach(&self) -> f64 {
        let sum: f64 = self.parts.iter().map(|(_, value)| value).sum();
        let high = self.range.map_or(sum, |(_, high)| high);
        sum.max(high).max(self.stroke.unwrap_or(0.0))
    }
}
