//! Plays one case: every contender in turns, metrics read off, what has to be said beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::document::{Better, Case, Figures, Measured, Unit};
use crate::error::{Error, Result};
use crate::machine::noise::wait_until_quiet;
use crate::rounds::interleave::{Played, Round, RoundStage, interleave};
use crate::rounds::lineup::ContenderSet;
use crate::rounds::progress::RunProgress;
use crate::stats::{RatioEstimate, RatioVerdict, Spread};

/// How thoroughly to measure, and who may end it early.
pub(crate) struct RoundRunner<'a> {
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// How long one case may wait for a quiet machine and repeat disturbed rounds.
    pub(crate) patience: Duration,
    /// Set by Ctrl-C.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) progress: &'a RunProgress,
}

/// What can be read off an observation.
pub(crate) struct MetricReader<O> {
    /// For programs.
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
    pub(crate) better: Option<Better>,
    /// None where this contender has no such thing.
    pub(crate) of: fn(&O) -> Option<f64>,
}

/// One case of one experiment: what an experiment has to know how to do.
pub(crate) trait Workload {
    type Sample;

    type ContenderSet: ContenderSet;

    fn contenders(&mut self) -> &mut Self::ContenderSet;

    /// One contender, once. An error doesn't name it.
    fn play(&mut self, contender: usize) -> Result<Self::Sample>;

    /// Whether other programs or the hypervisor spoilt it: judged by the machine's clocks, never by
    /// the figures.
    fn is_disturbed(&self, observation: &Self::Sample) -> bool;
}

/// Rounds that differ by more than this make a machine noisy: half of the range, of the median.
const NOISY: f64 = 0.15;

impl RoundRunner<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Plays all rounds of a case. `weight` is what one play of it adds to the progress.
    pub(crate) fn play<T: Workload>(
        &self,
        trial: &mut T,
        weight: u64,
    ) -> Result<Played<T::Sample>> {
        let mut stage = WorkloadStage {
            run: self,
            trial,
            weight,
            patient_until: Instant::now() + self.patience,
        };
        interleave(&mut stage, self.rounds)
    }

    /// Does something with each contender once, outside of the rounds; for some there is nothing.
    /// Those who fail `when` that is done are left out from here on, with a note.
    pub(crate) fn once_each<T: Workload, R>(
        &self,
        trial: &mut T,
        when: &str,
        weight: u64,
        notes: &mut Vec<String>,
        mut one: impl FnMut(&mut T, usize) -> Result<R>,
    ) -> Result<Vec<R>> {
        let mut all = Vec::new();
        for contender in trial.contenders().lineup().standing() {
            match one(trial, contender) {
                Ok(done) => all.push(done),
                // It was broken off.
                Err(_) if self.is_stopped() => break,
                Err(error) => notes.push(trial.contenders().leave_out(contender, when, error)?),
            }
            self.progress.done(weight);
        }
        Ok(all)
    }
}

struct WorkloadStage<'a, 'r, T> {
    run: &'a RoundRunner<'r>,
    trial: &'a mut T,
    weight: u64,
    /// Until when it may wait for quiet and repeat rounds.
    patient_until: Instant,
}

impl<T: Workload> RoundStage for WorkloadStage<'_, '_, T> {
    type Figure = T::Sample;

    fn contenders(&mut self) -> usize {
        self.trial.contenders().lineup().len()
    }

    fn standing(&mut self) -> Vec<usize> {
        self.trial.contenders().lineup().standing()
    }

    fn before_round(&mut self) -> Result<()> {
        wait_until_quiet(self.patient_until)
    }

    fn play(&mut self, contender: usize) -> Result<T::Sample> {
        let observation = self.trial.play(contender)?;
        self.run.progress.done(self.weight);
        Ok(observation)
    }

    fn leave_out(&mut self, contender: usize, round: Round, error: Error) -> Result<String> {
        let when = match round {
            Round::WarmUp => "in the warm-up".to_owned(),
            Round::Counted(round) => format!("in round {} of {}", round + 1, self.run.rounds),
        };
        self.trial.contenders().leave_out(contender, &when, error)
    }

    fn is_disturbed(&self, observation: &T::Sample) -> bool {
        self.trial.is_disturbed(observation)
    }

    fn is_patient(&self) -> bool {
        Instant::now() < self.patient_until
    }

    fn is_stopped(&self) -> bool {
        self.run.is_stopped()
    }
}

/// Reads the metrics off the rounds; one that nobody has is left out.
pub(crate) fn read_off<'m, O: 'm>(
    metrics: impl IntoIterator<Item = &'m MetricReader<O>>,
    played: &Played<O>,
) -> Vec<Measured> {
    let read = metrics
        .into_iter()
        .filter_map(|metric| measured(metric, played));
    read.collect()
}

fn measured<O>(metric: &MetricReader<O>, played: &Played<O>) -> Option<Measured> {
    let of_contender = |contender: usize| -> Option<Vec<f64>> {
        let rounds = played.rounds.iter();
        rounds
            .map(|round| (metric.of)(round[contender].as_ref()?))
            .collect()
    };
    let by_contender: Vec<_> = (0..played.contenders()).map(of_contender).collect();
    if by_contender.iter().all(Option::is_none) {
        return None;
    }
    let comparisons = by_contender
        .iter()
        .enumerate()
        .map(|(index, theirs)| {
            let ours = by_contender[0].as_ref().filter(|_| index > 0)?;
            metric.better.and(RatioEstimate::of(ours, theirs.as_ref()?))
        })
        .collect();
    let figures = by_contender.into_iter().map(|rounds| {
        let rounds = rounds?;
        let spread = Spread::of(&rounds)?;
        Some(Figures { spread, rounds })
    });
    Some(Measured {
        metric: metric.name.to_owned(),
        label: metric.label.to_owned(),
        unit: metric.unit,
        better: metric.better,
        figures: figures.collect(),
        comparisons,
    })
}

/// What has to be said of the rounds of any case.
pub(crate) fn notes_of_rounds<O>(played: &Played<O>) -> Vec<String> {
    let mut notes = played.failures.clone();
    if played.repeated > 0 {
        notes.push(format!(
            "{} rounds were broken off and played again, since other programs or the hypervisor \
             took more than a tenth of a processor",
            played.repeated
        ));
    }
    if played.disturbed > 0 {
        notes.push(format!(
            "{} of {} rounds were disturbed by other programs or the hypervisor and count all the \
             same",
            played.disturbed,
            played.rounds.len()
        ));
    }
    notes
}

/// Says how noisy the machine was, if it was, by the most telling metric of each case.
pub(crate) fn warn_of_noise(cases: &[Case]) -> Option<String> {
    let first = cases.iter().filter_map(|case| case.metrics.first());
    let figures = first.flat_map(|metric| metric.figures.iter().flatten());
    let half_range = |figures: &Figures| {
        let Spread { median, min, max } = figures.spread;
        (max - min) / 2.0 / median
    };
    let mut ranges: Vec<f64> = figures.map(half_range).filter(|r| r.is_finite()).collect();
    ranges.sort_by(f64::total_cmp);
    let typical = *ranges.get(ranges.len() / 2)?;
    (typical > NOISY).then(|| {
        format!(
            "the machine was noisy: the same work took up to {:.0} % more or less from round to \
             round; a quieter machine or more --rounds tell smaller differences",
            typical * 100.0
        )
    })
}

/// Whether any comparison of these metrics may be believed; without one, more rounds are needed.
pub(crate) fn has_too_few_rounds(cases: &[Case]) -> bool {
    let metrics = cases.iter().flat_map(|case| &case.metrics);
    let mut compared = metrics.flat_map(|metric| metric.comparisons.iter().flatten());
    compared.any(|comparison| comparison.verdict == RatioVerdict::TooFewRounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::lineup::ContenderList;

    /// Figures are written down: by contender, then by play. Where they end it fails.
    struct Script {
        lineup: ContenderList,
        left: Vec<Vec<f64>>,
        dismissed: Vec<usize>,
    }

    impl ContenderSet for Script {
        fn lineup(&mut self) -> &mut ContenderList {
            &mut self.lineup
        }

        fn dismiss(&mut self, contender: usize) -> Result<()> {
            self.dismissed.push(contender);
            Ok(())
        }
    }

    impl Workload for Script {
        type Sample = f64;
        type ContenderSet = Script;

        fn contenders(&mut self) -> &mut Script {
            self
        }

        fn play(&mut self, contender: usize) -> Result<f64> {
            let left = &mut self.left[contender];
            if left.is_empty() {
                return Err(Error::Answer("no more".into()));
            }
            Ok(left.remove(0))
        }

        fn is_disturbed(&self, _: &f64) -> bool {
            false
        }
    }

    const FIGURE: MetricReader<f64> = MetricReader {
        name: "figure",
        label: "figure",
        unit: Unit::Count,
        better: Some(Better::Higher),
        of: |&figure| Some(figure),
    };

    fn play(script: &mut Script) -> Result<Played<f64>> {
        let (stop, progress) = (AtomicBool::new(false), RunProgress::of(0));
        let run = RoundRunner {
            rounds: 3,
            patience: Duration::ZERO,
            stop: &stop,
            progress: &progress,
        };
        run.play(script, 0)
    }

    #[test]
    fn one_that_fails_is_left_out_with_a_note_and_the_others_stay_paired() {
        let mut script = Script {
            lineup: ContenderList::of(["ours", "tired", "theirs"].map(str::to_owned)),
            left: vec![
                vec![0.0, 2.0, 4.0, 6.0],
                vec![0.0, 1.0],
                vec![0.0, 1.0, 2.0, 3.0],
            ],
            dismissed: Vec::new(),
        };
        let played = play(&mut script).unwrap();
        assert_eq!(script.dismissed, [1]);
        let measured = &read_off(&[FIGURE], &played)[0];
        let rounds = |place: usize| measured.figures[place].as_ref().map(|f| &f.rounds[..]);
        assert_eq!(rounds(0), Some(&[2.0, 4.0, 6.0][..]));
        assert_eq!(rounds(1), None);
        assert_eq!(rounds(2), Some(&[1.0, 2.0, 3.0][..]));
        let ratios = measured.comparisons.iter().map(|c| c.map(|c| c.ratio));
        assert_eq!(ratios.collect::<Vec<_>>(), [None, None, Some(2.0)]);
        let note =
            "tired failed in round 2 of 3 and is left out from there on: wrong answer: no more";
        assert_eq!(notes_of_rounds(&played), [note]);
    }

    #[test]
    fn the_last_one_that_fails_is_an_error() {
        let mut script = Script {
            lineup: ContenderList::of(["ours", "theirs"].map(str::to_owned)),
            left: vec![Vec::new(), vec![0.0, 1.0]],
            dismissed: Vec::new(),
        };
        let error = play(&mut script).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "wrong answer: theirs: no more");
    }
}
