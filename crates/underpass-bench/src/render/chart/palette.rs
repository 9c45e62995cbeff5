//! Colours that stay apart for people who see few of them, and marks for those who see none.
//!
//! Neighbours differ in lightness as well as in hue; each colour has a contrast of at least 3 to 1
//! with the paper it is drawn on (WCAG 2.2, 1.4.11), in the light and in the dark.

use std::fmt::Write as _;

use plotters::prelude::RGBColor;

/// Colour and mark of one series.
pub(super) struct SeriesStyle {
    pub(super) light: RGBColor,
    dark: RGBColor,
    pub(super) shape: MarkerShape,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MarkerShape {
    Circle,
    Square,
    Up,
    Diamond,
    Down,
    Plus,
    Cross,
    HollowCircle,
    HollowSquare,
    HollowUp,
    HollowDiamond,
    HollowDown,
}

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
    look(0x0b5cad, 0x5aa9ff, MarkerShape::Circle),
    look(0xd55e00, 0xff8f47, MarkerShape::Square),
    look(0x007a5e, 0x2fc79b, MarkerShape::Up),
    look(0xb5317f, 0xf47fc4, MarkerShape::Diamond),
    look(0x8a6a00, 0xe6c04a, MarkerShape::Down),
    look(0x2a8fc4, 0x9adcff, MarkerShape::Plus),
    look(0x6a3d9a, 0xb794f6, MarkerShape::Cross),
    look(0x6b7681, 0xa3aeb8, MarkerShape::HollowCircle),
    look(0x7a3b1e, 0xd09a78, MarkerShape::HollowSquare),
    look(0x2b2f33, 0xf4f4f4, MarkerShape::HollowUp),
    look(0x6f8f1c, 0xbfdc5a, MarkerShape::HollowDiamond),
    look(0xd4589a, 0xffbdd8, MarkerShape::HollowDown),
];

/// Where there are more series than colours, the same colour comes with another shape.
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

impl MarkerShape {
    /// Within a circle of radius 1 around 0, the bounding box centred there; none for a circle.
    pub(super) fn corners(self) -> &'static [(f64, f64)] {
        match self {
            MarkerShape::Circle | MarkerShape::HollowCircle => &[],
            MarkerShape::Square | MarkerShape::HollowSquare => {
                &[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]
            }
            MarkerShape::Up | MarkerShape::HollowUp => &[(0.0, -1.0), (1.1, 1.0), (-1.1, 1.0)],
            MarkerShape::Down | MarkerShape::HollowDown => &[(0.0, 1.0), (1.1, -1.0), (-1.1, -1.0)],
            MarkerShape::Diamond | MarkerShape::HollowDiamond => {
                &[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]
            }
            MarkerShape::Plus => &[
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
            MarkerShape::Cross => &[
                (-1.0, -0.5),
                (-0.5, -1.0),
                (0.0, -0.5),
                (0.5, -1.0),
                (1.0, -0.5),
                (0.5, 0.0),
                (1.0, 0.5),
                (0.5, 1.0),
                (0.0, 0.5),
                (-0.5, 1.0),
                (-1.0, 0.5),
                (-0.5, 0.0),
            ],
        }
    }

    pub(super) fn is_hollow(self) -> bool {
        matches!(
            self,
            MarkerShape::HollowCircle
                | MarkerShape::HollowSquare
                | MarkerShape::HollowUp
                | MarkerShape::HollowDiamond
                | MarkerShape::HollowDown
        )
    }
}

/// Rules that give what was drawn in the light colours those of the page.
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

/// `--s0:#0B5CAD;…`: the colours of the series in the light.
pub(in super::super) fn light_series() -> String {
    declared(|look| look.light)
}

/// Likewise in the dark.
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
    fn a_colour_that_comes_again_has_another_shape() {
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
