//! Numbers for people: three significant digits and the unit.

use crate::document::{Better, Unit};
use crate::stats::{RatioEstimate, RatioVerdict, Spread};

/// A power of ten or two that shortens a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prefix {
    pub(super) divisor: f64,
    /// `ms`, `GiB/s`; empty for a plain number.
    pub(super) suffix: &'static str,
}

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;
const GIB: f64 = KIB * MIB;

/// From the greatest to the least; the last one is for all smaller numbers.
fn prefixes(unit: Unit) -> &'static [(f64, &'static str)] {
    match unit {
        Unit::Bytes => &[
            (1e12, "TB"),
            (1e9, "GB"),
            (1e6, "MB"),
            (1e3, "kB"),
            (1.0, "B"),
        ],
        Unit::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        Unit::SecondsPerGib => &[
            (1.0, "s/GiB"),
            (1e-3, "ms/GiB"),
            (1e-6, "µs/GiB"),
            (1e-9, "ns/GiB"),
        ],
        Unit::BytesPerSecond => &[(GIB, "GiB/s"), (MIB, "MiB/s"), (KIB, "KiB/s"), (1.0, "B/s")],
        Unit::PerSecond => &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")],
        Unit::Share => &[(0.01, "%")],
        Unit::Count => &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")],
    }
}

impl Prefix {
    /// The prefix with which `value` has one to three digits before the point. Plain numbers and
    /// rates below ten thousand have none.
    pub(super) fn of(value: f64, unit: Unit) -> Prefix {
        let least = match unit {
            Unit::Count | Unit::PerSecond if value.abs() < 9_999.5 => 1.0,
            // A number that rounds to 1000 gets the next prefix.
            _ => value.abs() * 1.0005,
        };
        let all = prefixes(unit);
        let found = all.iter().find(|(divisor, _)| *divisor <= least);
        let &(divisor, suffix) = match (value == 0.0, found) {
            (false, Some(found)) => found,
            (false, None) => &all[all.len() - 1],
            (true, _) => all.iter().find(|one| one.0 <= 1.0).unwrap_or(&all[0]),
        };
        Prefix { divisor, suffix }
    }

    fn with_suffix(self, digits: &str) -> String {
        match self.suffix {
            "" => digits.to_owned(),
            rate if rate.starts_with('/') => format!("{digits}{rate}"),
            suffix => format!("{digits} {suffix}"),
        }
    }
}

/// `82.1 ms`, `3.42 GiB/s`, `12.3 k/s`.
pub(crate) fn figure(value: f64, unit: Unit) -> String {
    let prefix = Prefix::of(value, unit);
    prefix.with_suffix(&digits(value / prefix.divisor, unit))
}

/// Minimum and maximum with the median's prefix, which is not repeated: `80.0–83.3`.
pub(crate) fn range(spread: &Spread, unit: Unit) -> String {
    let divisor = Prefix::of(spread.median, unit).divisor;
    let side = |value: f64| digits(value / divisor, unit);
    format!("{}–{}", side(spread.min), side(spread.max))
}

/// A ratio with two decimals, or more where they would hide whether it is above 1.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.995..1.005 if value != 1.0 => format!("{value:.4}"),
        0.1.. => format!("{value:.2}"),
        _ => {
            let zeros = (-value.max(1e-9).log10()).floor() as usize;
            format!("{value:.*}", zeros + 2)
        }
    }
}

impl RatioEstimate {
    /// The ratio turned so that above 1 the first of the two is better.
    pub(super) fn times_as_good(mut self, better: Option<Better>) -> RatioEstimate {
        if better == Some(Better::Lower) {
            self.ratio = 1.0 / self.ratio;
            (self.low, self.high) = (1.0 / self.high, 1.0 / self.low);
        }
        self
    }
}

/// The confidence interval of the median ratio.
pub(super) fn interval(comparison: &RatioEstimate) -> String {
    format!("{}–{}", ratio(comparison.low), ratio(comparison.high))
}

/// The text in place of a ratio.
pub(super) fn in_words(verdict: RatioVerdict) -> &'static str {
    match verdict {
        RatioVerdict::Different => "different",
        RatioVerdict::NotDistinguishable => "not distinguishable",
        RatioVerdict::TooFewRounds => "too few rounds",
    }
}

/// The better direction, to follow a metric's name; empty without one.
pub(super) fn direction(better: Option<Better>) -> &'static str {
    match better {
        Some(Better::Lower) => "lower is better",
        Some(Better::Higher) => "higher is better",
        None => "",
    }
}

/// Seconds of a whole run: `4 min 12 s`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Three significant digits; a whole count stays whole.
fn digits(value: f64, unit: Unit) -> String {
    let whole = matches!(unit, Unit::Count | Unit::PerSecond | Unit::Bytes);
    match value.abs() {
        _ if value == 0.0 => "0".into(),
        small if whole && small < 9_999.5 && value.fract() == 0.0 => format!("{value:.0}"),
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        0.9995.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_three_digits_and_its_unit() {
        let seconds = [1.234, 0.082_14, 0.000_012_34, 0.000_000_007_891, 0.999_9];
        let texts = seconds.map(|value| figure(value, Unit::Seconds));
        assert_eq!(texts, ["1.23 s", "82.1 ms", "12.3 µs", "7.89 ns", "1.00 s"]);
        assert_eq!(figure(0.0821, Unit::SecondsPerGib), "82.1 ms/GiB");
        assert_eq!(figure(3.42 * GIB, Unit::BytesPerSecond), "3.42 GiB/s");
        assert_eq!(figure(7e6, Unit::Bytes), "7 MB");
        assert_eq!(figure(0.832, Unit::Share), "83.2 %");
    }

    #[test]
    fn small_counts_stay_whole_and_large_ones_get_a_prefix() {
        let counts = [0.0, 42.0, 2.5, 9_999.0, 12_345.0, 1_234_567.0];
        let texts = counts.map(|value| figure(value, Unit::Count));
        assert_eq!(texts, ["0", "42", "2.50", "9999", "12.3 k", "1.23 M"]);
        assert_eq!(figure(812.0, Unit::PerSecond), "812/s");
        assert_eq!(figure(81_234.0, Unit::PerSecond), "81.2 k/s");
    }

    #[test]
    fn a_range_has_the_prefix_of_its_median() {
        let spread = Spread {
            median: 0.0821,
            min: 0.08,
            max: 0.0833,
        };
        assert_eq!(range(&spread, Unit::Seconds), "80.0–83.3");
        let wide = Spread {
            median: 1.0,
            min: 0.9,
            max: 1.25,
        };
        assert_eq!(range(&wide, Unit::Seconds), "0.900–1.25");
    }

    #[test]
    fn a_ratio_never_hides_its_side_of_one() {
        let ratios = [123.4, 12.34, 1.234, 0.998, 0.55, 0.0654, 0.000_32].map(ratio);
        assert_eq!(
            ratios,
            ["123", "12.3", "1.23", "0.9980", "0.55", "0.065", "0.00032"]
        );
    }

    #[test]
    fn a_run_took_minutes() {
        assert_eq!(
            [9.4, 252.0, 3_720.0].map(duration),
            ["9 s", "4 min 12 s", "1 h 2 min"]
        );
    }
}
