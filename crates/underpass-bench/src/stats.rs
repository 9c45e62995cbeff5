//! Conclusions from a few rounds.
//!
//! A round gives each contender one figure. Two contenders are compared in pairs within a round, so
//! that a disturbance of that round affects both. The median of those ratios has the confidence
//! interval of the sign test, which assumes nothing about the distribution of noise. Where the
//! interval contains 1, no ratio is printed.

use serde::{Deserialize, Serialize};

/// The least confidence with which an interval holds the true ratio.
const CONFIDENCE_MIN: f64 = 0.95;

/// Median and extremes of figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle figure, or the mean of the two middle ones.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// The ratio of two contenders in one metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioEstimate {
    /// The conclusion.
    pub verdict: RatioVerdict,
    /// The median of the ratios within each round.
    pub ratio: f64,
    /// The lower end of the interval that holds the true median with `confidence`.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// From 0 to 1.
    pub confidence: f64,
}

/// The conclusion from a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioVerdict {
    /// The interval lies on one side of 1.
    Different,
    /// The difference is within the spread: the interval contains 1.
    NotDistinguishable,
    /// Even with all rounds on one side, chance remains too probable.
    TooFewRounds,
}

impl Spread {
    /// The median and the extremes; `None` for no figures.
    pub(crate) fn of(figures: &[f64]) -> Option<Spread> {
        let sorted = sorted(figures);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Spread {
            median: median(&sorted),
            min,
            max,
        })
    }

    /// Half of the range as a share of the median; `None` if that is not finite.
    pub(crate) fn half_range(&self) -> Option<f64> {
        let share = (self.max - self.min) / 2.0 / self.median.abs();
        share.is_finite().then_some(share)
    }
}

impl RatioEstimate {
    /// Compares figures of the same rounds, `ours[i]` with `theirs[i]`; `None` without a pair, or
    /// where a figure is 0.
    pub(crate) fn of(ours: &[f64], theirs: &[f64]) -> Option<RatioEstimate> {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        let are_ratios = ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        let ratios = sorted(&ratios);
        are_ratios.then_some(())?;
        let (rank, confidence) = sign_test_rank(ratios.len())?;
        let (low, high) = (ratios[rank], ratios[ratios.len() - 1 - rank]);
        let verdict = if confidence < CONFIDENCE_MIN {
            RatioVerdict::TooFewRounds
        } else if low > 1.0 || high < 1.0 {
            RatioVerdict::Different
        } else {
            RatioVerdict::NotDistinguishable
        };
        let ratio = median(&ratios);
        Some(RatioEstimate {
            verdict,
            ratio,
            low,
            high,
            confidence,
        })
    }
}

/// The number of figures to cut from each end so that the rest still holds the true median with
/// sufficient confidence, and that confidence. 0 if the whole range isn't sufficient.
fn sign_test_rank(count: usize) -> Option<(usize, f64)> {
    (count > 0).then_some(())?;
    let confidence = |rank| 1.0 - 2.0 * coin_at_most(rank, count);
    let deepest = (0..count.div_ceil(2))
        .rev()
        .find(|&rank| confidence(rank) >= CONFIDENCE_MIN);
    let rank = deepest.unwrap_or(0);
    Some((rank, confidence(rank)))
}

/// The probability of at most `heads` heads in `throws` throws of a fair coin.
fn coin_at_most(heads: usize, throws: usize) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for i in 0..=heads {
        sum += ways;
        ways = ways * (throws - i) as f64 / (i + 1) as f64;
    }
    sum * 0.5_f64.powi(i32::try_from(throws).unwrap_or(i32::MAX))
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_median_min_and_max() {
        let odd = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            odd,
            Spread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(&[]), None);
    }

    fn verdict(ours: &[f64], theirs: &[f64]) -> RatioVerdict {
        RatioEstimate::of(ours, theirs).unwrap().verdict
    }

    #[test]
    fn seven_rounds_on_one_side_make_a_ratio() {
        let ours = [1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 1.1];
        let comparison = RatioEstimate::of(&ours, &ours.map(|figure| figure * 2.0)).unwrap();
        assert_eq!(comparison.verdict, RatioVerdict::Different);
        assert_eq!(
            (comparison.ratio, comparison.low, comparison.high),
            (0.5, 0.5, 0.5)
        );
        assert!((comparison.confidence - 0.984_375).abs() < 1e-9);
    }

    #[test]
    fn a_spread_that_contains_one_makes_no_ratio() {
        let ours = [0.8, 0.9, 0.8, 0.7, 0.9, 0.8, 1.01];
        let comparison = RatioEstimate::of(&ours, &[1.0; 7]).unwrap();
        assert_eq!(comparison.verdict, RatioVerdict::NotDistinguishable);
        assert_eq!((comparison.low, comparison.high), (0.7, 1.01));
    }

    #[test]
    fn too_few_rounds_make_no_ratio_however_clear() {
        assert_eq!(verdict(&[1.0; 5], &[2.0; 5]), RatioVerdict::TooFewRounds);
        assert_eq!(verdict(&[1.0; 6], &[2.0; 6]), RatioVerdict::Different);
        assert_eq!(RatioEstimate::of(&[], &[]), None);
        assert_eq!(RatioEstimate::of(&[1.0, 1.0], &[1.0, 0.0]), None);
    }

    #[test]
    fn more_rounds_forgive_an_outlier() {
        assert_eq!(sign_test_rank(9).unwrap().0, 1);
        let mut ours = [0.8; 9];
        ours[4] = 1.5;
        assert_eq!(verdict(&ours, &[1.0; 9]), RatioVerdict::Different);
    }

    #[test]
    fn pairs_cancel_what_the_machine_did_to_a_round() {
        let theirs = [1.0, 5.0, 1.0, 9.0, 2.0, 1.0, 3.0];
        let ours = theirs.map(|figure| figure * 0.9);
        assert_eq!(verdict(&ours, &theirs), RatioVerdict::Different);
    }
}
