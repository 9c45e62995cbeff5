//! Comparison of Underpass with a peer, from the rounds of results of `underpass-bench`.

use std::collections::BTreeSet;

use underpass_bench::document::{Better, Document, Experiment, Measured};

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

/// The rounds of a comparison with one peer.
#[derive(Clone, Default)]
pub(super) struct Standing {
    pub(super) metric: String,
    /// For each round, the logarithm of how many times our figure is as good as the peer's.
    factors: Vec<f64>,
    /// The same for processor time, where it is measured.
    cpu: Vec<f64>,
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

/// Compares with a peer by the first metric that has a better direction, in the first case of each
/// result. Our contender is the first one; compared with a program that is started for each copy,
/// our program. `None` if a side has no figures.
pub(super) fn standing(results: &[Document], peer: &str, is_program: bool) -> Option<Standing> {
    let mut standing = Standing::default();
    for result in results {
        let experiment = result.experiments.first()?;
        let metrics = &experiment.cases.first()?.metrics;
        let places = places(experiment, peer, is_program)?;
        let telling = metrics.iter().find(|one| one.better.is_some())?;
        standing.metric.clone_from(&telling.label);
        let rounds = factors(telling, places, telling.better?)?;
        standing.factors.extend(rounds);
        let of_cpu = CPU.iter().find_map(|(name, better)| {
            let metric = metrics.iter().find(|one| one.metric == *name)?;
            factors(metric, places, *better)
        });
        standing.cpu.extend(of_cpu.unwrap_or_default());
    }
    (!standing.factors.is_empty()).then_some(standing)
}

/// Returns the positions of our contender and of the peer.
fn places(experiment: &Experiment, peer: &str, is_program: bool) -> Option<[usize; 2]> {
    let place = |name: &str| {
        experiment
            .contenders
            .iter()
            .position(|one| one.name == name)
    };
    let own = place(OWN_PROGRAM).filter(|_| is_program);
    Some([own.unwrap_or(0), place(peer)?])
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
    pub(super) fn rounds(&self) -> usize {
        self.factors.len()
    }

    /// Returns our advantage over the peer as a factor: the geometric mean of the rounds.
    pub(super) fn factor(&self) -> f64 {
        mean(&self.factors).exp()
    }

    /// Returns the ratio of the peer's processor time to ours for the same work.
    pub(super) fn cpu(&self) -> Option<f64> {
        (!self.cpu.is_empty()).then(|| mean(&self.cpu).exp())
    }

    /// Returns the interval of the factor; `None` with too few rounds. The noise of a ratio is
    /// assumed to be log-normal, because a sign test would need a dozen rounds.
    pub(super) fn interval(&self) -> Option<(f64, f64)> {
        let half = self.half_width()?;
        let middle = mean(&self.factors);
        Some(((middle - half).exp(), (middle + half).exp()))
    }

    /// Returns half the width of the interval, as a logarithm; `None` with too few rounds.
    pub(super) fn half_width(&self) -> Option<f64> {
        let count = self.factors.len();
        (count >= ROUNDS_MIN).then_some(())?;
        let middle = mean(&self.factors);
        let squares = self.factors.iter().map(|one| (one - middle).powi(2));
        let deviation = (squares.sum::<f64>() / (count - 1) as f64).sqrt();
        Some(student(count - 1) * deviation / (count as f64).sqrt())
    }
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// Returns the two-sided 95 % quantile of Student's t, within 0.2 % from 5 degrees of freedom on
/// (the expansion of Cornish and Fisher around the normal distribution's quantile).
fn student(freedom: usize) -> f64 {
    let (z, n) = (1.959_964_f64, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / n.powi(2) + third / n.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [
            (5, 2.571),
            (6, 2.447),
            (11, 2.201),
            (23, 2.069),
            (30, 2.042),
        ] {
            let error = student(freedom) / expected - 1.0;
            assert!(error.abs() < 0.002, "{freedom}: {error}");
        }
    }

    fn standing(factors: &[f64]) -> Standing {
        Standing {
            factors: factors.iter().map(|factor| factor.ln()).collect(),
            ..Standing::default()
        }
    }

    #[test]
    fn an_interval_narrows_with_the_number_of_rounds() {
        let rounds = [1.08, 1.12, 1.10, 1.09, 1.11, 1.10];
        let (short, long) = (standing(&rounds), standing(&rounds.repeat(3)));
        assert!((short.factor() - 1.1).abs() < 0.001);
        let [short, long] = [short, long].map(|one| one.interval().expect("rounds"));
        assert!(short.0 < long.0 && long.1 < short.1 && long.0 > 1.0);
        assert_eq!(standing(&[0.5; 5]).interval(), None);
    }
}
