//! Metrics: calculations from the samples of all rounds, and warnings about the figures.

use super::interleave::Played;
use crate::document::{Better, Case, Figures, Measured, Unit};
use crate::stats::{RatioEstimate, RatioVerdict, Spread};

pub(crate) const GIB: f64 = (1_u64 << 30) as f64;

/// Rounds that differ by more than this make a machine noisy: half of the range, by the median.
const NOISY: f64 = 0.15;

type Text = &'static str;
/// Reads a figure; `None` where this contender has no such figure.
type FigureReader<S> = fn(&S) -> Option<f64>;

pub(crate) struct MetricReader<S> {
    /// For programs.
    pub(crate) name: Text,
    /// For people.
    pub(crate) label: Text,
    pub(crate) unit: Unit,
    pub(crate) better: Option<Better>,
    pub(crate) read: FigureReader<S>,
}

impl<S> MetricReader<S> {
    /// Neither higher nor lower figures are better.
    pub(crate) const fn neutral(
        name: Text,
        label: Text,
        unit: Unit,
        read: FigureReader<S>,
    ) -> Self {
        MetricReader {
            name,
            label,
            unit,
            better: None,
            read,
        }
    }

    pub(crate) const fn lower(name: Text, label: Text, unit: Unit, read: FigureReader<S>) -> Self {
        MetricReader {
            better: Some(Better::Lower),
            ..MetricReader::neutral(name, label, unit, read)
        }
    }

    pub(crate) const fn higher(name: Text, label: Text, unit: Unit, read: FigureReader<S>) -> Self {
        MetricReader {
            better: Some(Better::Higher),
            ..MetricReader::neutral(name, label, unit, read)
        }
    }

    /// Lower times are better.
    pub(crate) const fn seconds(name: Text, label: Text, read: FigureReader<S>) -> Self {
        MetricReader::lower(name, label, Unit::Seconds, read)
    }

    /// `None` where no contender has such a figure.
    fn of(&self, played: &Played<S>) -> Option<Measured> {
        let of_contender = |contender: usize| -> Option<Vec<f64>> {
            let rounds = played.rounds.iter();
            rounds
                .map(|round| (self.read)(round[contender].as_ref()?))
                .collect()
        };
        let by_contender: Vec<_> = (0..played.contenders()).map(of_contender).collect();
        by_contender.iter().flatten().next()?;
        let comparisons = by_contender.iter().enumerate().map(|(index, theirs)| {
            let ours = by_contender[0].as_ref().filter(|_| index > 0)?;
            self.better.and(RatioEstimate::of(ours, theirs.as_ref()?))
        });
        let comparisons = comparisons.collect();
        let figures = by_contender.into_iter().map(|rounds| {
            let rounds = rounds?;
            let spread = Spread::of(&rounds)?;
            Some(Figures { spread, rounds })
        });
        Some(Measured {
            metric: self.name.to_owned(),
            label: self.label.to_owned(),
            unit: self.unit,
            better: self.better,
            figures: figures.collect(),
            comparisons,
        })
    }
}

/// Calculates these metrics from the rounds, without those that no contender has.
pub(crate) fn read_all<'m, S: 'm>(
    metrics: impl IntoIterator<Item = &'m MetricReader<S>>,
    played: &Played<S>,
) -> Vec<Measured> {
    let metrics = metrics.into_iter();
    metrics.filter_map(|metric| metric.of(played)).collect()
}

/// Warns of a noisy machine, judged by the first metric of each case.
pub(crate) fn warn_of_noise(cases: &[Case]) -> Option<String> {
    let first = cases.iter().filter_map(|case| case.metrics.first());
    let figures = first.flat_map(|metric| metric.figures.iter().flatten());
    let half_ranges = figures.filter_map(|figures| figures.spread.half_range());
    let typical = Spread::of(&half_ranges.collect::<Vec<_>>())?.median;
    (typical > NOISY).then(|| {
        format!(
            "the machine was noisy: the same work took up to {:.0} % more or less from round to \
             round; a quieter machine or more --rounds show smaller differences",
            typical * 100.0
        )
    })
}

/// Whether a comparison needs more rounds.
pub(crate) fn has_too_few_rounds(cases: &[Case]) -> bool {
    let metrics = cases.iter().flat_map(|case| &case.metrics);
    let mut compared = metrics.flat_map(|metric| metric.comparisons.iter().flatten());
    compared.any(|comparison| comparison.verdict == RatioVerdict::TooFewRounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_failed_has_no_figures_and_the_others_stay_paired() {
        let figure = MetricReader::higher("figure", "figure", Unit::Count, |&figure| Some(figure));
        let round = |ours, theirs| vec![Some(ours), None, Some(theirs)];
        let played = Played {
            rounds: vec![round(2.0, 1.0), round(4.0, 2.0), round(6.0, 3.0)],
            repeated: 0,
            disturbed: 0,
        };
        let measured = &read_all(&[figure], &played)[0];
        let rounds = |place: usize| measured.figures[place].as_ref().map(|f| &f.rounds[..]);
        assert_eq!(rounds(0), Some(&[2.0, 4.0, 6.0][..]));
        assert_eq!(rounds(1), None);
        assert_eq!(rounds(2), Some(&[1.0, 2.0, 3.0][..]));
        let ratios = measured.comparisons.iter().map(|c| c.map(|c| c.ratio));
        assert_eq!(ratios.collect::<Vec<_>>(), [None, None, Some(2.0)]);
    }
}
