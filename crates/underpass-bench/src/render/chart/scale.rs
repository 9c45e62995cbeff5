//! Axes: linear and logarithmic, with the unit's prefix at their ticks.

use std::ops::Range;

use super::super::figure::Prefix;
use super::draw::{FONT, width};
use crate::document::Unit;

/// Values that differ by more than this factor are on a logarithmic axis.
const LOG_FROM: f64 = 10.0;
const TICKS_MAX: usize = 7;

#[derive(Clone, Debug)]
pub(in super::super) struct AxisScale {
    is_logarithmic: bool,
    range: Range<f64>,
    /// Values with their labels.
    pub(super) ticks: Vec<(f64, String)>,
    /// The unit of the labels; empty where they include it.
    suffix: &'static str,
}

impl AxisScale {
    /// For figures from `low` to `high`: from 0, or logarithmic where they differ much.
    pub(super) fn of_values((low, high): (f64, f64), unit: Unit) -> AxisScale {
        if low > 0.0 && high / low > LOG_FROM {
            AxisScale::logarithmic(low, high, unit)
        } else {
            AxisScale::from_zero(high, unit)
        }
    }

    /// Linear from 0, as for bars.
    pub(super) fn from_zero(high: f64, unit: Unit) -> AxisScale {
        let high = if high > 0.0 { high } else { 1.0 };
        let prefix = Prefix::of(high, unit);
        let high = high / prefix.divisor;
        let least = high / TICKS_MAX as f64;
        let power = 10_f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|one| one * power);
        let step = steps.into_iter().find(|step| *step >= least);
        let step = step.unwrap_or(least);
        // The last tick is at the end.
        let steps = (high / step - 1e-9).ceil() as usize;
        let ticks = (0..=steps).map(|count| count as f64 * step);
        AxisScale::with_prefix(false, ticks.collect(), prefix)
    }

    /// From and to 1, 2 or 5 times a power of ten.
    fn logarithmic(low: f64, high: f64, unit: Unit) -> AxisScale {
        let prefix = Prefix::of((low * high).sqrt(), unit);
        let (low, high) = (low / prefix.divisor, high / prefix.divisor);
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let steps = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|one| one * 10_f64.powi(power)));
        let steps: Vec<f64> = steps.collect();
        let first = steps.iter().rposition(|&step| step <= low * (1.0 + 1e-9));
        let last = steps.iter().position(|&step| step >= high * (1.0 - 1e-9));
        let steps = &steps[first.unwrap_or(0)..=last.unwrap_or(steps.len() - 1)];
        let mut scale = AxisScale::with_prefix(true, steps.to_vec(), prefix);
        if steps.len() > TICKS_MAX {
            scale
                .ticks
                .retain(|(_, label)| label.trim_matches(['0', '.']) == "1");
        }
        scale
    }

    fn with_prefix(is_logarithmic: bool, ticks: Vec<f64>, prefix: Prefix) -> AxisScale {
        let (low, high) = ends(&ticks);
        let ticks = ticks.into_iter();
        AxisScale {
            is_logarithmic,
            range: low * prefix.divisor..high * prefix.divisor,
            ticks: ticks
                .map(|tick| (tick * prefix.divisor, plain(tick)))
                .collect(),
            suffix: match prefix.suffix {
                "k" => "thousands",
                "M" => "millions",
                "G" => "billions",
                other => other,
            },
        }
    }

    /// With a tick for each case, at its index. Their distances say nothing.
    pub(in super::super) fn of_cases(labels: impl Iterator<Item = String>) -> AxisScale {
        let ticks = labels.enumerate();
        let ticks: Vec<_> = ticks.map(|(index, label)| (index as f64, label)).collect();
        AxisScale {
            is_logarithmic: false,
            range: -0.5..ticks.len() as f64 - 0.5,
            ticks,
            suffix: "",
        }
    }

    pub(in super::super) fn is_logarithmic(&self) -> bool {
        self.is_logarithmic
    }

    /// A label with the unit of the ticks.
    pub(super) fn labelled(&self, label: &str) -> String {
        match self.suffix {
            "" => label.to_owned(),
            suffix => format!("{label} ({suffix})"),
        }
    }

    /// The place of a value between the two ends of the axis.
    pub(super) fn place(&self, value: f64, (from, to): (f64, f64)) -> f64 {
        let Range { start, end } = self.range;
        let share = match self.is_logarithmic {
            true => (value / start).ln() / (end / start).ln(),
            false => (value - start) / (end - start),
        };
        from + (to - from) * share
    }

    /// The places of the ticks whose labels don't touch: the last one, and of the others as many as
    /// fit.
    pub(super) fn apart(&self, ends: (f64, f64)) -> Vec<(f64, &str)> {
        let mut taken: Vec<(f64, &str)> = Vec::new();
        for (tick, label) in self.ticks.iter().rev() {
            let at = self.place(*tick, ends);
            let touches = |&(other, text): &(f64, &str)| {
                (at - other).abs() < (width(label) + width(text) + FONT) / 2.0
            };
            if !taken.iter().any(touches) {
                taken.push((at, label));
            }
        }
        taken
    }
}

/// The least and the greatest.
pub(in super::super) fn ends(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(0.0, f64::max))
}

/// Without rounding errors of floating point, and without zeros at the end.
fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
