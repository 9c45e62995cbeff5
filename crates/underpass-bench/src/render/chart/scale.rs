//! Axes: from which value to which, in even steps or by powers of ten, and where the ticks are.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::super::figure::Prefix;
use crate::document::{Case, Unit};

/// Values that differ by more than this factor are shown by powers of ten.
const LOG_FROM: f64 = 10.0;
const TICKS_MAX: usize = 7;

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct AxisScale {
    progress: AxisKind,
    low: f64,
    high: f64,
    pub(super) ticks: Vec<Tick>,
    /// What the numbers at the ticks count; empty where they say it themselves.
    pub(super) suffix: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AxisKind {
    Linear,
    Logarithmic,
}

#[derive(Clone, Debug)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

impl AxisScale {
    /// For figures: from 0, or by powers of ten where they differ by more than one.
    pub(super) fn of_values(values: &[f64], unit: Unit) -> AxisScale {
        let high = values.iter().copied().fold(0.0, f64::max);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        if low > 0.0 && high / low > LOG_FROM {
            AxisScale::logarithmic(low, high, unit)
        } else {
            AxisScale::from_zero(high, unit)
        }
    }

    /// In even steps from 0, for bars and time.
    pub(super) fn from_zero(high: f64, unit: Unit) -> AxisScale {
        let high = if high > 0.0 { high } else { 1.0 };
        let prefix = Prefix::of(high, unit);
        let step = step(high / prefix.divisor / 5.0);
        let steps = (high / prefix.divisor / step - 1e-9).ceil() as usize;
        let ticks = (0..=steps).map(|count| {
            let shown = count as f64 * step;
            Tick {
                at: shown * prefix.divisor,
                label: plain(shown),
            }
        });
        AxisScale {
            progress: AxisKind::Linear,
            low: 0.0,
            high: steps as f64 * step * prefix.divisor,
            ticks: ticks.collect(),
            suffix: suffix(prefix),
        }
    }

    fn logarithmic(low: f64, high: f64, unit: Unit) -> AxisScale {
        let prefix = Prefix::of((low * high).sqrt(), unit);
        let (low, high) = (low / prefix.divisor, high / prefix.divisor);
        let powers = (low.log10().floor() as i32 - 1)..=(high.log10().ceil() as i32 + 1);
        let steps = |factors: &[f64]| -> Vec<f64> {
            let all = powers.clone();
            let all = all.flat_map(|power| {
                factors
                    .iter()
                    .map(move |factor| factor * 10_f64.powi(power))
            });
            let all: Vec<f64> = all.collect();
            let first = all
                .iter()
                .rposition(|&step| step <= low * (1.0 + 1e-9))
                .unwrap_or(0);
            let last = all.iter().position(|&step| step >= high * (1.0 - 1e-9));
            all[first..=last.unwrap_or(all.len() - 1)].to_vec()
        };
        let fine = steps(&[1.0, 2.0, 5.0]);
        let (from, to) = (fine[0], fine[fine.len() - 1]);
        let shown = match fine.len() {
            0..=TICKS_MAX => fine,
            _ => steps(&[1.0])
                .into_iter()
                .filter(|step| (from..=to).contains(step))
                .collect(),
        };
        let ticks = shown.into_iter().map(|step| Tick {
            at: step * prefix.divisor,
            label: plain(step),
        });
        AxisScale {
            progress: AxisKind::Logarithmic,
            low: from * prefix.divisor,
            high: to * prefix.divisor,
            ticks: ticks.collect(),
            suffix: suffix(prefix),
        }
    }

    /// For the cases of an experiment: a tick at each, with the case's label.
    pub(super) fn of_cases(cases: &[&Case]) -> AxisScale {
        let ticks = cases.iter().map(|case| Tick {
            at: case.x,
            label: case.label.clone(),
        });
        let low = cases
            .iter()
            .map(|case| case.x)
            .fold(f64::INFINITY, f64::min);
        let high = cases
            .iter()
            .map(|case| case.x)
            .fold(f64::NEG_INFINITY, f64::max);
        let progress = match low > 0.0 && high / low > LOG_FROM / 2.0 {
            true => AxisKind::Logarithmic,
            false => AxisKind::Linear,
        };
        let mut scale = AxisScale {
            progress,
            low,
            high,
            ticks: ticks.collect(),
            suffix: "",
        };
        scale.widen(0.04);
        scale
    }

    /// For shares of requests, given as how many nines they have.
    pub(super) fn of_nines(nines_max: f64) -> AxisScale {
        let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
        let ticks = shares.map(|share| Tick {
            at: nines(share),
            label: format!("{} %", plain(share * 100.0)),
        });
        AxisScale {
            progress: AxisKind::Linear,
            low: 0.0,
            high: nines_max,
            ticks: ticks
                .into_iter()
                .filter(|tick| tick.at <= nines_max + 1e-9)
                .collect(),
            suffix: "",
        }
    }

    /// Places without ticks, from 0 to `count`: the rows of a bar chart.
    pub(super) fn of_rows(count: usize) -> AxisScale {
        let high = count as f64;
        AxisScale {
            progress: AxisKind::Linear,
            low: 0.0,
            high,
            ticks: Vec::new(),
            suffix: "",
        }
    }

    /// The same axis with other ticks.
    pub(super) fn with_ticks(&self, ticks: Vec<Tick>) -> AxisScale {
        AxisScale {
            ticks,
            ..self.clone()
        }
    }

    /// Whether it goes by powers of ten.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.progress == AxisKind::Logarithmic
    }

    fn widen(&mut self, share: f64) {
        let (low, high) = (self.bent(self.low), self.bent(self.high));
        let more = if high > low {
            (high - low) * share
        } else {
            1.0
        };
        let straight = |bent: f64| match self.progress {
            AxisKind::Linear => bent,
            AxisKind::Logarithmic => 10_f64.powf(bent),
        };
        (self.low, self.high) = (straight(low - more), straight(high + more));
    }

    fn bent(&self, value: f64) -> f64 {
        match self.progress {
            AxisKind::Linear => value,
            AxisKind::Logarithmic => value.log10(),
        }
    }
}

impl Ranged for AxisScale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let (low, high) = (self.bent(self.low), self.bent(self.high));
        let share = (self.bent(*value) - low) / (high - low);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|tick| tick.at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// How many nines a share has: 0.9 has 1, 0.99 has 2, 0.5 has 0.3.
pub(super) fn nines(share: f64) -> f64 {
    -(1.0 - share).log10() + 0.0
}

/// The least of 1, 2, 5 times a power of ten that is no less.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter();
    let found = factors
        .map(|factor| factor * power)
        .find(|step| *step >= least * (1.0 - 1e-9));
    found.unwrap_or(power * 10.0)
}

fn suffix(prefix: Prefix) -> &'static str {
    match prefix.suffix {
        "k" => "thousands",
        "M" => "millions",
        "G" => "billions",
        other => other,
    }
}

/// Without what floating point adds, and without zeros at the end.
fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
