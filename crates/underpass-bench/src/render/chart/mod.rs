//! Charts as SVG, to stand inside an HTML page.
//!
//! Colours are the light ones of [`palette`]; the page overrides each by its value where it is
//! read in the dark. A pixel here is [`FINE`] units of the drawing, since plotters counts whole
//! ones. Legends are outside, in HTML: they can't lie on the data there, and wrap by themselves.

mod bars;
mod lines;
pub(super) mod palette;
mod scale;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, Polygon};
use plotters::prelude::{IntoDrawingArea, RGBColor, SVGBackend, Text, TextStyle};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) use bars::{Bar, BarChart};
pub(super) use lines::{LineChart, Point, Series};
use palette::{PAPER, SERIES, shape_of};

/// Units of the drawing in a pixel.
const FINE: i32 = 4;
/// Height of letters, in pixels.
const FONT: f64 = 12.0;
/// What plotters takes a font's size for, by which it divides.
const PLOTTERS_FONT: f64 = 1.24;
/// A letter's width, as a share of its height, generously.
const LETTER: f64 = 0.58;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// What a chart says of itself to those who can't see it.
pub(super) struct ChartText {
    /// Unique on the page.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) description: String,
}

/// Draws by `draw` on a canvas of this many pixels; an SVG element that can stand in HTML.
fn svg(
    words: &ChartText,
    (width, height): (i32, i32),
    draw: impl FnOnce(&Area<'_>) -> DrawResult,
) -> String {
    let mut drawing = String::new();
    {
        let size = (
            (width * FINE).unsigned_abs(),
            (height * FINE).unsigned_abs(),
        );
        let area = SVGBackend::with_string(&mut drawing, size).into_drawing_area();
        // Drawing into memory does not fail; what is there is shown.
        let _ = draw(&area).and_then(|()| area.present());
    }
    let inside = drawing.split_once('>').map_or("", |(_, inside)| inside);
    let ChartText {
        id,
        title,
        description,
    } = words;
    let (title, description) = (escaped(title), escaped(description));
    let mut out = String::with_capacity(inside.len() + 500);
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" \
         aria-labelledby=\"{id}-t {id}-d\">\n<title id=\"{id}-t\">{title}</title>\n\
         <desc id=\"{id}-d\">{description}</desc>{inside}",
        width * FINE,
        height * FINE
    );
    out
}

/// A line with the mark of a series, for a legend; decoration beside the name.
pub(super) fn swatch(series: usize) -> String {
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, (112, 56)).into_drawing_area();
        let style = colour(series).stroke_width(2 * FINE.unsigned_abs());
        let line = plotters::element::PathElement::new(vec![(0, 28), (112, 28)], style);
        let _ = area
            .draw(&line)
            .and_then(|()| mark(&area, series, (56, 28)));
        let _ = area.present();
    }
    let inside = drawing.split_once('>').map_or("", |(_, inside)| inside);
    format!("<svg viewBox=\"0 0 112 56\" aria-hidden=\"true\">{inside}")
}

/// A rectangle of a series' colour, for the legend of bars.
pub(super) fn patch(series: usize) -> String {
    let RGBColor(red, green, blue) = SERIES[series % SERIES.len()].light;
    format!(
        "<svg viewBox=\"0 0 112 56\" aria-hidden=\"true\"><rect x=\"28\" width=\"56\" \
         height=\"56\" fill=\"#{red:02X}{green:02X}{blue:02X}\"/></svg>"
    )
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
    area.draw(&Text::new(
        text.to_owned(),
        at,
        style(ink).pos(Pos::new(h, v)),
    ))
}

fn style(ink: RGBColor) -> TextStyle<'static> {
    let size = FONT * f64::from(FINE) * PLOTTERS_FONT;
    TextStyle {
        color: ink.to_backend_color(),
        ..TextStyle::from(("sans-serif", size))
    }
}

/// How wide a text is at the most, in units of the drawing.
fn width(text: &str) -> i32 {
    (text.chars().count() as f64 * FONT * LETTER).ceil() as i32 * FINE
}

/// The mark of a series, on a rim of paper so that it stands out from what it lies on.
fn mark(area: &Area<'_>, series: usize, at: (i32, i32)) -> DrawResult {
    let shape = shape_of(series);
    let ink = colour(series);
    shape.draw(area, at, 6 * FINE, PAPER)?;
    shape.draw(area, at, 9 * FINE / 2, ink)?;
    if shape.is_hollow() {
        shape.draw(area, at, 9 * FINE / 4, PAPER)?;
    }
    Ok(())
}

impl palette::MarkerShape {
    fn draw(self, area: &Area<'_>, (x, y): (i32, i32), radius: i32, ink: RGBColor) -> DrawResult {
        match self.corners() {
            [] => area.draw(&Circle::new((x, y), radius, ink.filled())),
            corners => {
                let at = |&(right, down): &(f64, f64)| {
                    let scaled = |share: f64| (share * f64::from(radius)).round() as i32;
                    (x + scaled(right), y + scaled(down))
                };
                let points: Vec<(i32, i32)> = corners.iter().map(at).collect();
                area.draw(&Polygon::new(points, ink))
            }
        }
    }
}

/// For HTML and SVG, between tags and within double quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}
