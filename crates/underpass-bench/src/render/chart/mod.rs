//! Charts as SVG elements inside an HTML page.
//!
//! Colours are the light ones of [`palette`]; the page's style sheet replaces them in dark mode. A
//! pixel is [`FINE`] units of the drawing, because plotters rounds to whole units. Legends are HTML
//! outside of the charts: there they don't cover data, and the browser wraps them.

mod bars;
mod lines;
pub(super) mod palette;
mod scale;
#[cfg(test)]
mod tests;

use maud::html;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Polygon};
use plotters::prelude::{IntoDrawingArea, RGBColor, SVGBackend, Text, TextStyle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, ShapeStyle};

pub(super) use bars::{Bar, BarChart};
pub(super) use lines::{LineChart, Marks, Point, Series};
use palette::{PAPER, SERIES, shape_of};
pub(super) use scale::{AxisScale, nines};

/// Units of the drawing in a pixel.
const FINE: i32 = 4;
/// Height of letters, in pixels.
const FONT: f64 = 12.0;
/// The factor by which plotters divides a font's size.
const PLOTTERS_FONT: f64 = 1.24;
/// A letter's width as a share of its height, rounded up.
const LETTER: f64 = 0.58;

/// The size of a mark in a legend.
const KEY: (i32, i32) = (28 * FINE, 14 * FINE);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The texts of a chart for people who can't see it.
#[derive(Clone)]
pub(super) struct ChartText {
    /// Unique on the page.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) description: String,
}

/// Draws on a canvas of this many units; returns an SVG element for an HTML page.
fn svg(words: &ChartText, size: (i32, i32), draw: impl FnOnce(&Area<'_>) -> DrawResult) -> String {
    let id = &words.id;
    let attributes = format!(
        "xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\""
    );
    let texts = html! {
        title id={ (id) "-t" } { (words.title) }
        desc id={ (id) "-d" } { (words.description) }
    };
    element(&attributes, &texts.into_string(), size, draw)
}

fn element(
    attributes: &str,
    texts: &str,
    (wide, high): (i32, i32),
    draw: impl FnOnce(&Area<'_>) -> DrawResult,
) -> String {
    let mut drawing = String::new();
    {
        let size = (wide.unsigned_abs(), high.unsigned_abs());
        let area = SVGBackend::with_string(&mut drawing, size).into_drawing_area();
        // Drawing into memory doesn't fail.
        let _ = draw(&area).and_then(|()| area.present());
    }
    let inside = drawing.split_once('>').map_or("", |(_, inside)| inside);
    format!("<svg viewBox=\"0 0 {wide} {high}\" {attributes}>{texts}{inside}")
}

/// A line with the mark of a series, for a legend.
pub(super) fn swatch(series: usize) -> String {
    let (wide, middle) = (KEY.0, KEY.1 / 2);
    element("aria-hidden=\"true\"", "", KEY, |area| {
        let style = colour(series).stroke_width(2 * FINE as u32);
        line(area, &[(0, middle), (wide, middle)], style)?;
        mark(area, series, (wide / 2, middle))
    })
}

/// A rectangle in the colour of a series, for the legend of bars.
pub(super) fn patch(series: usize) -> String {
    element("aria-hidden=\"true\"", "", KEY, |area| {
        area.margin(0, 0, KEY.0 / 4, KEY.0 / 4)
            .fill(&colour(series))
    })
}

fn colour(series: usize) -> RGBColor {
    SERIES[series % SERIES.len()].light
}

fn text(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    (h, v): (HPos, VPos),
    ink: RGBColor,
) -> DrawResult {
    let style = style(ink).pos(Pos::new(h, v));
    area.draw(&Text::new(text.to_owned(), at, style))
}

fn style(ink: RGBColor) -> TextStyle<'static> {
    let size = FONT * f64::from(FINE) * PLOTTERS_FONT;
    TextStyle {
        color: ink.to_backend_color(),
        ..TextStyle::from(("sans-serif", size))
    }
}

/// The maximum width of a text, in units of the drawing.
fn width(text: &str) -> i32 {
    (text.chars().count() as f64 * FONT * LETTER).ceil() as i32 * FINE
}

fn line(area: &Area<'_>, points: &[(i32, i32)], style: ShapeStyle) -> DrawResult {
    area.draw(&PathElement::new(points, style))
}

/// A stroke over a range, with a cap at each end that reaches this far to both sides.
fn whisker(
    area: &Area<'_>,
    ends: [(i32, i32); 2],
    cap: (i32, i32),
    style: ShapeStyle,
) -> DrawResult {
    line(area, &ends, style)?;
    ends.into_iter().try_for_each(|(x, y)| {
        line(
            area,
            &[(x - cap.0, y - cap.1), (x + cap.0, y + cap.1)],
            style,
        )
    })
}

/// The mark of a series, with a rim in the colour of the paper.
fn mark(area: &Area<'_>, series: usize, (x, y): (i32, i32)) -> DrawResult {
    let shape = shape_of(series);
    let corners = shape.corners();
    let draw = |radius: i32, ink: RGBColor| {
        if corners.is_empty() {
            return area.draw(&Circle::new((x, y), radius, ink.filled()));
        }
        let scaled = |share: f64| (share * f64::from(radius)).round() as i32;
        let corners = corners.iter();
        let points = corners.map(|(right, down)| (x + scaled(*right), y + scaled(*down)));
        area.draw(&Polygon::new(points.collect::<Vec<_>>(), ink))
    };
    draw(6 * FINE, PAPER)?;
    draw(9 * FINE / 2, colour(series))?;
    match shape.is_hollow {
        true => draw(9 * FINE / 4, PAPER),
        false => Ok(()),
    }
}
