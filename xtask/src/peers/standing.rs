//! Comparison of Underpass with each peer, from the rounds of a result of `underpass bench`.

use std::collections::BTreeSet;

use underpass_bench::document::{Better, Case, Contender, Document, Experiment, Measured};

/// The probability that any interval on a page misses its true value.
const ERROR: f64 = 0.05;
/// Fewer rounds have no meaningful spread.
const ROUNDS_MIN: usize = 6;

/// Metrics of processor time, the most relevant first.
const CPU: [(&str, Better); 5] = [
    ("requests_per_cpu", Better::Higher),
    ("cpu_per_gib", Better::Lower),
    ("cpu_per_operation", Better::Lower),
    ("cpu", Better::Lower),
    ("cpu_share", Better::Lower),
];

/// Our contender for programs that are started for each copy.
const OWN_PROGRAM: &str = "underpass cp";

/// A case compared with one peer.
#[derive(Clone)]
pub(super) struct Standing {
    pub(super) peer: String,
    pub(super) experiment: String,
    /// The experiment and the case.
    pub(super) question: String,
    pub(super) metric: String,
    /// For each round, the logarithm of how many times our figure is as good as the peer's.
    factors: Vec<f64>,
    /// The ratio of the peer's processor time to ours for the same work.
    pub(super) cpu: Option<f64>,
}

/// The result of a comparison with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StandingVerdict {
    Worse,
    Level,
    Better,
    /// Too few rounds.
    Unknown,
}

/// Returns the notes on contenders and cases that were left out.
pub(super) fn left_out(document: &Document) -> BTreeSet<&str> {
    let experiments = document.experiments.iter();
    let cases = experiments.clone().flat_map(|one| &one.cases);
    let notes = experiments.flat_map(|one| &one.notes);
    let notes = notes.chain(cases.flat_map(|case| &case.notes));
    let is_lack = |note: &&str| note.starts_with("not ") || note.contains(" is left out ");
    notes.map(String::as_str).filter(is_lack).collect()
}

/// Compares every case with every other contender by its first metric that has a better direction.
/// Our contender is the first one; for a program that is started for each copy, as reported by
/// `is_program`, it is our program.
pub(super) fn standings(document: &Document, is_program: impl Fn(&str) -> bool) -> Vec<Standing> {
    let experiments = document.experiments.iter();
    let cases = experiments.flat_map(|one| one.cases.iter().map(move |case| (one, case)));
    cases
        .flat_map(|(experiment, case)| standings_of(experiment, case, &is_program))
        .collect()
}

fn standings_of(
    experiment: &Experiment,
    case: &Case,
    is_program: impl Fn(&str) -> bool,
) -> Vec<Standing> {
    let contenders = &experiment.contenders;
    let own_program = contenders.iter().position(|one| one.name == OWN_PROGRAM);
    let peers = contenders.iter().enumerate().skip(1);
    let standing = |(place, peer): (usize, &Contender)| {
        let own = own_program.filter(|_| is_program(&peer.name)).unwrap_or(0);
        let telling = case.metrics.iter().find(|one| one.better.is_some())?;
        let of_cpu = CPU.iter().find_map(|(name, better)| {
            let metric = case.metrics.iter().find(|one| one.metric == *name)?;
            factors(metric, [own, place], *better)
        });
        Some(Standing {
            peer: peer.name.clone(),
            experiment: experiment.title.clone(),
            question: format!("{}: {}", experiment.title, case.label),
            metric: telling.label.clone(),
            factors: factors(telling, [own, place], telling.better?)?,
            cpu: of_cpu.map(|factors| mean(&factors).exp()),
        })
    };
    peers.filter_map(standing).collect()
}

/// Returns the factors; `None` if a side has no such figures, or a figure of 0.
fn factors(metric: &Measured, [own, place]: [usize; 2], better: Better) -> Option<Vec<f64>> {
    let of = |place: usize| Some(&metric.figures.get(place)?.as_ref()?.rounds);
    let pairs = of(own)?.iter().zip(of(place)?);
    let logarithm = |(own, theirs): (&f64, &f64)| match better {
        Better::Higher => (own / theirs).ln(),
        Better::Lower => (theirs / own).ln(),
    };
    let factors: Vec<f64> = pairs.map(logarithm).collect();
    (!factors.is_empty() && factors.iter().all(|one| one.is_finite())).then_some(factors)
}

impl Standing {
    /// Returns our advantage over the peer as a factor: the geometric mean of the rounds.
    pub(super) fn factor(&self) -> f64 {
        mean(&self.factors).exp()
    }

    /// Returns the interval of the factor, one of so many that hold together with 95 % confidence
    /// (Bonferroni); `None` with too few rounds. The noise of a ratio is assumed to be log-normal,
    /// because a sign test would need a dozen rounds.
    pub(super) fn interval(&self, comparisons: usize) -> Option<(f64, f64)> {
        let count = self.factors.len();
        (count >= ROUNDS_MIN).then_some(())?;
        let middle = mean(&self.factors);
        let squares = self.factors.iter().map(|one| (one - middle).powi(2));
        let deviation = (squares.sum::<f64>() / (count - 1) as f64).sqrt();
        let share = 1.0 - ERROR / comparisons.max(1) as f64;
        let half = student(share, count - 1) * deviation / (count as f64).sqrt();
        Some(((middle - half).exp(), (middle + half).exp()))
    }

    pub(super) fn verdict(&self, comparisons: usize) -> StandingVerdict {
        match self.interval(comparisons) {
            None => StandingVerdict::Unknown,
            Some((low, _)) if low > 1.0 => StandingVerdict::Better,
            Some((_, high)) if high < 1.0 => StandingVerdict::Worse,
            Some(_) => StandingVerdict::Level,
        }
    }
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// Returns the two-sided quantile of Student's t for this share.
fn student(share: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        match within(middle, freedom) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Returns the probability that Student's t is within ±`value` (Abramowitz and Stegun, 26.7.3 and
/// 26.7.4).
fn within(value: f64, freedom: usize) -> f64 {
    let angle = (value / (freedom as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let (mut power, mut term) = if is_odd { (1, cos) } else { (0, 1.0) };
    let mut sum = 0.0;
    while power + 2 <= freedom {
        sum += term;
        term *= cos * cos * (power + 1) as f64 / (power + 2) as f64;
        power += 2;
    }
    match is_odd {
        true => (angle + sin * sum) * std::f64::consts::FRAC_2_PI,
        false => sin * sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [(1, 12.706), (2, 4.303), (5, 2.571), (6, 2.447), (30, 2.042)] {
            assert!(
                (student(0.95, freedom) - expected).abs() < 1e-3,
                "{freedom}"
            );
        }
    }

    fn standing(factors: &[f64]) -> Standing {
        Standing {
            peer: "nginx".into(),
            experiment: "Files".into(),
            question: "Files: 1 KiB".into(),
            metric: "processor time".into(),
            factors: factors.iter().map(|factor| factor.ln()).collect(),
            cpu: None,
        }
    }

    #[test]
    fn an_interval_widens_with_the_number_of_comparisons() {
        let one = standing(&[1.08, 1.12, 1.10, 1.09, 1.11, 1.10]);
        assert!((one.factor() - 1.1).abs() < 0.001);
        let (alone, among) = (
            one.interval(1).expect("rounds"),
            one.interval(200).expect("rounds"),
        );
        assert!(
            among.0 < alone.0 && alone.1 < among.1,
            "{alone:?} {among:?}"
        );
        assert_eq!(one.verdict(200), StandingVerdict::Better);
        let noisy = standing(&[0.9, 1.3, 1.1, 1.2, 0.95, 1.2]);
        assert_eq!(noisy.verdict(1), StandingVerdict::Level);
        assert_eq!(standing(&[0.5; 5]).verdict(1), StandingVerdict::Unknown);
        assert_eq!(
            standing(&[0.5, 0.51, 0.5, 0.5, 0.51, 0.5]).verdict(1),
            StandingVerdict::Worse
        );
    }
}
