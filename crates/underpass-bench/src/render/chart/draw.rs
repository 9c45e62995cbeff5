//! Elements of all charts, in pixels.
//!
//! Colours are variables of the page's style sheet, for light and dark mode. Marks are drawn once,
//! in [`marks`], and used by name.

use maud::{Markup, html};

pub(super) const FONT: f64 = 12.0;
/// A letter's width as a share of its height, rounded up.
const LETTER: f64 = 0.58;

/// The number of colours in the style sheet, and of marks.
pub(super) const SERIES: usize = 12;
/// Prime to it: a repeated colour has another mark.
const LAP_SHIFT: usize = 5;

pub(super) const INK: &str = "var(--ink)";
pub(super) const MUTED: &str = "var(--muted)";
pub(super) const GRID: &str = "var(--grid)";
pub(super) const PAPER: &str = "var(--paper)";

const CIRCLE: &str = "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0-9,0z";
const SQUARE: &str = "M-3.8-3.8h7.6v7.6h-7.6z";
const UP: &str = "M0-4.5L5,4.5H-5z";
const DIAMOND: &str = "M0-5.4L5.4,0L0,5.4L-5.4,0z";
const DOWN: &str = "M0,4.5L5-4.5H-5z";
const PLUS: &str = "M-1.6-5h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4z";
const CROSS: &str = "M0-2.3L2.4-4.7L4.7-2.4L2.3,0L4.7,2.4L2.4,4.7L0,2.3L-2.4,4.7L-4.7,2.4L-2.3,0\
    L-4.7-2.4L-2.4-4.7z";

/// Filled, and then hollow; none depends on colour.
const FILLED: [&str; 7] = [CIRCLE, SQUARE, UP, DIAMOND, DOWN, PLUS, CROSS];
const HOLLOW: [&str; SERIES - FILLED.len()] = [CIRCLE, SQUARE, UP, DIAMOND, DOWN];

/// The texts of a chart for people who can't see it.
#[derive(Clone)]
pub(in super::super) struct ChartText {
    /// Unique on the page.
    pub(in super::super) id: String,
    pub(in super::super) title: String,
    pub(in super::super) description: String,
}

pub(super) fn svg(words: &ChartText, (wide, high): (f64, f64), drawing: Markup) -> Markup {
    let id = &words.id;
    let size = format!("0 0 {wide} {high}");
    html! {
        svg viewBox=(size) role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
            title id={ (id) "-t" } { (words.title) }
            desc id={ (id) "-d" } { (words.description) }
            (drawing)
        }
    }
}

/// The marks that all charts of a page use, each with a rim in the colour of the paper.
pub(in super::super) fn marks() -> Markup {
    let filled = FILLED.map(|outline| (outline, "currentColor", PAPER));
    let hollow = HOLLOW.map(|outline| (outline, PAPER, "currentColor"));
    html! {
        svg.marks aria-hidden="true" {
            @for (index, (outline, fill, stroke)) in filled.iter().chain(&hollow).enumerate() {
                path id={ "m" (index) } d=(outline) fill=(fill) stroke=(stroke) stroke-width="1.5"
                    paint-order="stroke" {}
            }
        }
    }
}

pub(in super::super) fn swatch(series: usize) -> Markup {
    html! {
        svg viewBox="0 0 28 14" aria-hidden="true" {
            (mark(series, (14.0, 7.0)))
        }
    }
}

pub(super) fn colour(series: usize) -> String {
    format!("var(--s{})", series % SERIES)
}

pub(super) fn mark(series: usize, (x, y): (f64, f64)) -> Markup {
    let shape = (series + series / SERIES * LAP_SHIFT) % SERIES;
    html! { use href={ "#m" (shape) } x=(px(x)) y=(px(y)) color=(colour(series)) {} }
}

/// The side of a point on which a text is.
#[derive(Clone, Copy)]
pub(super) enum TextSide {
    Below,
    Above,
    Left,
    Right,
    CentredBelow,
}

pub(super) fn text(text: &str, (x, y): (f64, f64), side: TextSide, ink: &str) -> Markup {
    let (anchor, dy) = match side {
        TextSide::Below => ("start", "0.76em"),
        TextSide::Above => ("end", "-0.5ex"),
        TextSide::Left => ("end", "0.5ex"),
        TextSide::Right => ("start", "0.5ex"),
        TextSide::CentredBelow => ("middle", "0.76em"),
    };
    html! {
        text x=(px(x)) y=(px(y)) font-size=(FONT) text-anchor=(anchor) dy=(dy) fill=(ink) { (text) }
    }
}

/// The maximum width of a text.
pub(super) fn width(text: &str) -> f64 {
    (text.chars().count() as f64 * FONT * LETTER).ceil()
}

pub(super) fn line(points: &[(f64, f64)], stroke: &str, width: f64) -> Markup {
    let points = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y)));
    let points = points.collect::<Vec<_>>().join(" ");
    html! { polyline fill="none" stroke=(stroke) stroke-width=(width) points=(points) {} }
}

/// A stroke over a range, with a cap at each end that reaches this far to both sides.
pub(super) fn whisker(
    ends: [(f64, f64); 2],
    (right, down): (f64, f64),
    stroke: &str,
    width: f64,
) -> Markup {
    let cap = |(x, y): (f64, f64)| [(x - right, y - down), (x + right, y + down)];
    html! {
        @for points in [ends, cap(ends[0]), cap(ends[1])] { (line(&points, stroke, width)) }
    }
}

/// A tenth of a pixel is enough.
pub(super) fn px(value: f64) -> String {
    format!("{:.1}", value + 0.0)
}
