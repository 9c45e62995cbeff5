//! Colours that colour-blind people can distinguish, and marks that don't depend on colour.
//!
//! Neighbours differ in lightness as well as in hue; each colour has a contrast of at least 3 to 1
//! with its background (WCAG 2.2, 1.4.11), in light and dark mode. plotters' palettes have one mode
//! and colours with less contrast.

use std::fmt::Write as _;

use plotters::prelude::RGBColor;

/// Colour and mark of one series.
pub(super) struct SeriesStyle {
    pub(super) light: RGBColor,
    dark: RGBColor,
    pub(super) shape: MarkerShape,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MarkerShape {
    outline: Outline,
    /// Clockwise, in eighths of a full turn.
    turn: u8,
    pub(super) is_hollow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outline {
    Circle,
    Square,
    Triangle,
    Plus,
}

const CIRCLE: MarkerShape = shape(Outline::Circle, 0);
const SQUARE: MarkerShape = shape(Outline::Square, 0);
const UP: MarkerShape = shape(Outline::Triangle, 0);
const DIAMOND: MarkerShape = shape(Outline::Square, 1);
const DOWN: MarkerShape = shape(Outline::Triangle, 4);
const PLUS: MarkerShape = shape(Outline::Plus, 0);
const CROSS: MarkerShape = shape(Outline::Plus, 1);

pub(super) const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
pub(super) const MUTED: RGBColor = RGBColor(0x59, 0x63, 0x6e);
pub(super) const GRID: RGBColor = RGBColor(0xe1, 0xe5, 0xea);
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xfe);

const NEUTRALS: [(RGBColor, &str); 4] = [
    (INK, "--ink"),
    (MUTED, "--muted"),
    (GRID, "--grid"),
    (PAPER, "--paper"),
];

pub(super) const SERIES: [SeriesStyle; 12] = [
    look(0x0b5cad, 0x5aa9ff, CIRCLE),
    look(0xd55e00, 0xff8f47, SQUARE),
    look(0x007a5e, 0x2fc79b, UP),
    look(0xb5317f, 0xf47fc4, DIAMOND),
    look(0x8a6a00, 0xe6c04a, DOWN),
    look(0x2a8fc4, 0x9adcff, PLUS),
    look(0x6a3d9a, 0xb794f6, CROSS),
    look(0x6b7681, 0xa3aeb8, hollow(CIRCLE)),
    look(0x7a3b1e, 0xd09a78, hollow(SQUARE)),
    look(0x2b2f33, 0xf4f4f4, hollow(UP)),
    look(0x6f8f1c, 0xbfdc5a, hollow(DIAMOND)),
    look(0xd4589a, 0xffbdd8, hollow(DOWN)),
];

/// Where there are more series than colours, a repeated colour has another shape.
pub(super) fn shape_of(series: usize) -> MarkerShape {
    let lap = series / SERIES.len();
    SERIES[(series + lap * LAP_SHIFT) % SERIES.len()].shape
}

/// Prime to the number of series, so that every lap differs from every other.
const LAP_SHIFT: usize = 5;

const fn look(light: u32, dark: u32, shape: MarkerShape) -> SeriesStyle {
    SeriesStyle {
        light: rgb(light),
        dark: rgb(dark),
        shape,
    }
}

const fn rgb(hex: u32) -> RGBColor {
    let [_, red, green, blue] = hex.to_be_bytes();
    RGBColor(red, green, blue)
}

const fn shape(outline: Outline, turn: u8) -> MarkerShape {
    MarkerShape {
        outline,
        turn,
        is_hollow: false,
    }
}

const fn hollow(shape: MarkerShape) -> MarkerShape {
    MarkerShape {
        is_hollow: true,
        ..shape
    }
}

impl MarkerShape {
    /// For radius 1, with the bounding box centred at 0; none for a circle.
    pub(super) fn corners(self) -> Vec<(f64, f64)> {
        let corners: &[(f64, f64)] = match self.outline {
            Outline::Circle => &[],
            Outline::Square => &[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
            Outline::Triangle => &[(0.0, -1.0), (1.1, 1.0), (-1.1, 1.0)],
            Outline::Plus => &[
                (-0.35, -1.1),
                (0.35, -1.1),
                (0.35, -0.35),
                (1.1, -0.35),
                (1.1, 0.35),
                (0.35, 0.35),
                (0.35, 1.1),
                (-0.35, 1.1),
                (-0.35, 0.35),
                (-1.1, 0.35),
                (-1.1, -0.35),
                (-0.35, -0.35),
            ],
        };
        let (sin, cos) = (f64::from(self.turn) * std::f64::consts::FRAC_PI_4).sin_cos();
        let corners = corners.iter();
        let turned = corners.map(|(x, y)| (x * cos - y * sin, x * sin + y * cos));
        turned.collect()
    }
}

/// Rules that replace the drawn colours with the page's variables.
pub(in super::super) fn style_rules() -> String {
    let mut out = String::new();
    let neutral = |(colour, name): &(RGBColor, &str)| (hex(*colour), (*name).to_owned());
    let series = SERIES.iter().enumerate();
    let series = series.map(|(index, look)| (hex(look.light), format!("--s{index}")));
    for (hex, name) in NEUTRALS.iter().map(neutral).chain(series) {
        let _ = writeln!(out, "svg [fill=\"{hex}\"]{{fill:var({name})}}");
        let _ = writeln!(out, "svg [stroke=\"{hex}\"]{{stroke:var({name})}}");
    }
    out
}

/// `--s0:#0B5CAD;…`: the colours of the series in light mode.
pub(in super::super) fn light_series() -> String {
    declared(|look| look.light)
}

/// The same in dark mode.
pub(in super::super) fn dark_series() -> String {
    declared(|look| look.dark)
}

fn declared(of: fn(&SeriesStyle) -> RGBColor) -> String {
    let all = SERIES.iter().enumerate();
    all.map(|(index, look)| format!("--s{index}:{};", hex(of(look))))
        .collect()
}

/// As plotters writes it.
pub(super) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// <https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>
    fn luminance(RGBColor(red, green, blue): RGBColor) -> f64 {
        let linear = |part: u8| match f64::from(part) / 255.0 {
            dark @ ..0.040_45 => dark / 12.92,
            light => ((light + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }

    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn a_repeated_colour_has_another_shape() {
        for (series, look) in SERIES.iter().enumerate() {
            let laps = [0, 1, 2].map(|lap| shape_of(series + lap * SERIES.len()));
            assert!(laps[0] != laps[1] && laps[1] != laps[2] && laps[0] != laps[2]);
            assert_eq!(laps[0], look.shape);
        }
    }

    #[test]
    fn every_series_stands_out_from_its_paper() {
        for (index, look) in SERIES.iter().enumerate() {
            assert!(
                contrast(look.light, PAPER) >= 3.0,
                "series {index} in the light"
            );
            assert!(
                contrast(look.dark, rgb(0x14181d)) >= 3.0,
                "series {index} in the dark"
            );
        }
    }

    #[test]
    fn no_two_things_share_a_colour() {
        let neutrals = NEUTRALS.iter().map(|one| hex(one.0));
        let mut all: Vec<String> = SERIES
            .iter()
            .map(|look| hex(look.light))
            .chain(neutrals)
            .collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
