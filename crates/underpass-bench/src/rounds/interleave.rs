//! Rounds: every contender once per round, in alternating order; disturbed rounds are repeated.
//!
//! ```text
//!   warm-up   A B C      discarded
//!   round 0   A B C
//!   round 1   C B A      so that no contender always follows the same one
//!   round 2   B C A
//!   round 3   A C B …
//! ```
//!
//! A round in which other load disturbs a contender is abandoned and repeated as a whole, as long
//! as patience lasts. Other load is judged by the machine's clocks and never by the figures, so no
//! round is picked by its result.
//!
//! A contender that fails is left out of all rounds, and the others continue. Without others there
//! are no rounds.

use std::sync::atomic::{AtomicBool, Ordering};

use super::contenders::ContenderSet;
use crate::error::Result;

/// One contender's figures of one round.
pub(crate) trait Sample {
    /// Whether other programs or the hypervisor disturbed it.
    fn is_disturbed(&self) -> bool;
}

/// The number of rounds to play, and the actions between them.
pub(crate) struct Schedule<'a> {
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// Set when the user wants to stop.
    pub(crate) stop: &'a AtomicBool,
    /// Called before each round, including the warm-up.
    pub(crate) before_round: &'a dyn Fn() -> Result<()>,
    /// Whether a disturbed round may be repeated. Returns false eventually.
    pub(crate) is_patient: &'a dyn Fn() -> bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    WarmUp,
    /// From 0 on.
    Counted(usize),
}

pub(crate) struct Played<S> {
    /// By round, then by contender; `None` for a contender that failed in any round. Fewer than
    /// requested where it was stopped.
    pub(crate) rounds: Vec<Vec<Option<S>>>,
    /// Rounds that were disturbed and repeated.
    pub(crate) repeated: usize,
    /// Rounds that were disturbed and count nevertheless, because repeating did not help.
    pub(crate) disturbed: usize,
}

impl<S> Played<S> {
    /// The number of contenders, including those without figures.
    pub(crate) fn contenders(&self) -> usize {
        self.rounds.first().map_or(0, Vec::len)
    }

    /// The rounds of one contender; none if it failed.
    pub(crate) fn of(&self, contender: usize) -> Vec<&S> {
        let rounds = self.rounds.iter();
        rounds
            .filter_map(|round| round[contender].as_ref())
            .collect()
    }

    /// Notes on the rounds of any case.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let (repeated, disturbed) = (self.repeated, self.disturbed);
        if repeated > 0 {
            notes.push(format!(
                "{repeated} rounds were abandoned and repeated because other programs or the \
                 hypervisor used more than a tenth of a processor"
            ));
        }
        if disturbed > 0 {
            let rounds = self.rounds.len();
            notes.push(format!(
                "{disturbed} of {rounds} rounds count although other programs or the hypervisor \
                 disturbed them"
            ));
        }
        notes
    }
}

/// Plays a warm-up and all rounds. When it is stopped, the incomplete round is dropped.
pub(crate) fn interleave<C: ContenderSet, S: Sample>(
    schedule: &Schedule<'_>,
    contenders: &mut C,
    mut play: impl FnMut(&mut C, usize) -> Result<S>,
) -> Result<Played<S>> {
    let mut played = Played {
        rounds: Vec::new(),
        repeated: 0,
        disturbed: 0,
    };
    let mut round = Round::WarmUp;
    while round != Round::Counted(schedule.rounds) && !contenders.list().standing().is_empty() {
        match schedule.play_round(round, contenders, &mut play)? {
            RoundOutcome::Stopped => break,
            RoundOutcome::Abandoned => played.repeated += 1,
            RoundOutcome::Complete(_) if round == Round::WarmUp => {}
            RoundOutcome::Complete(samples) => {
                let is_disturbed = samples.iter().flatten().any(Sample::is_disturbed);
                played.disturbed += usize::from(is_disturbed);
                played.rounds.push(samples);
            }
        }
        round = Round::Counted(played.rounds.len());
    }
    let standing = contenders.list().standing();
    if standing.is_empty() {
        played.rounds.clear();
    }
    for round in &mut played.rounds {
        for (contender, sample) in round.iter_mut().enumerate() {
            // Samples of rounds before the one in which it failed would stand alone.
            sample.take_if(|_| !standing.contains(&contender));
        }
    }
    Ok(played)
}

enum RoundOutcome<S> {
    Complete(Vec<Option<S>>),
    Abandoned,
    Stopped,
}

impl Schedule<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Plays all contenders that stand; the samples are in the contenders' own order. A warm-up is
    /// never abandoned, because it doesn't count.
    fn play_round<C: ContenderSet, S: Sample>(
        &self,
        round: Round,
        contenders: &mut C,
        play: &mut impl FnMut(&mut C, usize) -> Result<S>,
    ) -> Result<RoundOutcome<S>> {
        if self.is_stopped() {
            return Ok(RoundOutcome::Stopped);
        }
        (self.before_round)()?;
        let mut samples: Vec<Option<S>> = Vec::new();
        samples.resize_with(contenders.list().len(), || None);
        for contender in order(round, contenders.list().standing()) {
            if self.is_stopped() {
                return Ok(RoundOutcome::Stopped);
            }
            match play(contenders, contender) {
                Ok(sample) => {
                    let may_abandon = round != Round::WarmUp && (self.is_patient)();
                    if may_abandon && sample.is_disturbed() {
                        return Ok(RoundOutcome::Abandoned);
                    }
                    samples[contender] = Some(sample);
                }
                // The stop made it fail.
                Err(_) if self.is_stopped() => return Ok(RoundOutcome::Stopped),
                Err(error) => {
                    let when = match round {
                        Round::WarmUp => "in the warm-up".to_owned(),
                        Round::Counted(n) => format!("in round {} of {}", n + 1, self.rounds),
                    };
                    contenders.leave_out(contender, &when, error)?;
                }
            }
        }
        Ok(RoundOutcome::Complete(samples))
    }
}

/// Rotated every second round, reversed every other.
fn order(round: Round, mut standing: Vec<usize>) -> Vec<usize> {
    let round = match round {
        Round::WarmUp => 0,
        Round::Counted(round) => round,
    };
    let count = standing.len();
    standing.rotate_left(round / 2 % count.max(1));
    if round % 2 == 1 {
        standing.reverse();
    }
    standing
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::contenders::ContenderList;
    use super::super::contenders::tests::list_of;
    use super::*;
    use crate::error::Error;

    /// Samples are the numbers of the plays so far.
    #[derive(Clone, Debug, PartialEq)]
    struct Play {
        number: usize,
        is_disturbed: bool,
    }

    impl Sample for Play {
        fn is_disturbed(&self) -> bool {
            self.is_disturbed
        }
    }

    struct Script {
        list: ContenderList,
        /// Plays of which the samples are disturbed.
        disturbed: Vec<usize>,
        /// Plays that fail, counted from 1.
        fails_at: Vec<usize>,
        stops_after: usize,
        /// The contenders in the order of their plays.
        contenders: Vec<usize>,
        dismissed: Vec<usize>,
    }

    impl ContenderSet for Script {
        fn list(&mut self) -> &mut ContenderList {
            &mut self.list
        }

        fn dismiss(&mut self, contender: usize) -> Result<()> {
            self.dismissed.push(contender);
            Ok(())
        }
    }

    fn script(count: usize, disturbed: &[usize]) -> Script {
        Script {
            list: list_of(&["a", "b", "c"][..count]),
            disturbed: disturbed.to_vec(),
            fails_at: Vec::new(),
            stops_after: usize::MAX,
            contenders: Vec::new(),
            dismissed: Vec::new(),
        }
    }

    /// Patience lasts for eight plays.
    fn play(script: &mut Script, rounds: usize) -> Result<Played<Play>> {
        let (stop, plays) = (AtomicBool::new(script.stops_after == 0), Cell::new(0));
        let schedule = Schedule {
            rounds,
            stop: &stop,
            before_round: &|| Ok(()),
            is_patient: &|| plays.get() < 8,
        };
        interleave(&schedule, script, |script, contender| {
            script.contenders.push(contender);
            let number = plays.replace(plays.get() + 1);
            stop.store(number + 1 >= script.stops_after, Ordering::Relaxed);
            match script.fails_at.contains(&(number + 1)) {
                true => Err(Error::Answer("hung up".into())),
                false => Ok(Play {
                    number,
                    is_disturbed: script.disturbed.contains(&number),
                }),
            }
        })
    }

    fn numbers(played: &Played<Play>) -> Vec<Vec<usize>> {
        let numbers =
            |round: &Vec<Option<Play>>| round.iter().flatten().map(|p| p.number).collect();
        played.rounds.iter().map(numbers).collect()
    }

    #[test]
    fn contenders_alternate_after_a_warm_up_and_samples_stay_with_their_own() {
        let mut script = script(2, &[]);
        let played = play(&mut script, 4).unwrap();
        assert_eq!(script.contenders, [0, 1, 0, 1, 1, 0, 1, 0, 0, 1]);
        assert_eq!(numbers(&played), [[2, 3], [5, 4], [7, 6], [8, 9]]);
        let of: Vec<usize> = played.of(1).iter().map(|play| play.number).collect();
        assert_eq!(of, [3, 4, 6, 9]);
    }

    #[test]
    fn each_contender_comes_first_equally_often() {
        let order = |round| order(Round::Counted(round), vec![0, 1, 2]);
        let first: Vec<usize> = (0..6).map(|round| order(round)[0]).collect();
        for contender in 0..3 {
            assert_eq!(first.iter().filter(|&&one| one == contender).count(), 2);
        }
    }

    #[test]
    fn a_disturbed_round_is_abandoned_and_repeated_as_a_whole() {
        let mut script = script(2, &[2, 4]);
        let played = play(&mut script, 2).unwrap();
        assert_eq!((played.repeated, played.disturbed), (2, 0));
        assert_eq!(script.contenders, [0, 1, 0, 0, 1, 0, 1, 1, 0]);
        assert_eq!(numbers(&played), [[5, 6], [8, 7]]);
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_measured_in_the_end_with_a_note() {
        let all: Vec<usize> = (0..100).collect();
        let played = play(&mut script(2, &all), 3).unwrap();
        let counts = (played.rounds.len(), played.repeated, played.disturbed);
        assert_eq!(counts, (3, 5, 3));
        assert_eq!(played.notes().len(), 2);
    }

    #[test]
    fn when_stopped_it_keeps_the_complete_rounds() {
        let mut script = script(2, &[]);
        script.stops_after = 7;
        assert_eq!(numbers(&play(&mut script, 4).unwrap()), [[2, 3], [5, 4]]);
        script.stops_after = 0;
        assert!(play(&mut script, 4).unwrap().rounds.is_empty());
    }

    #[test]
    fn a_play_that_the_stop_ended_is_no_failure() {
        let mut script = script(2, &[]);
        (script.stops_after, script.fails_at) = (7, vec![7]);
        let played = play(&mut script, 4).unwrap();
        assert_eq!(numbers(&played), [[2, 3], [5, 4]]);
        assert!(script.list.missing().is_empty());
    }

    #[test]
    fn one_that_fails_has_no_figures_and_the_rounds_of_the_others_go_on() {
        let mut script = script(3, &[]);
        script.fails_at = vec![8];
        let played = play(&mut script, 3).unwrap();
        assert_eq!(script.contenders, [0, 1, 2, 0, 1, 2, 2, 1, 0, 2, 0]);
        let note = "b failed in round 2 of 3 and is left out from there on: wrong answer: hung up";
        assert_eq!(script.list.missing(), [note]);
        assert_eq!(script.dismissed, [1]);
        assert_eq!((played.contenders(), played.of(1).len()), (3, 0));
        assert_eq!(numbers(&played), [[3, 5], [8, 6], [10, 9]]);
    }

    #[test]
    fn one_that_fails_in_the_warm_up_is_not_played_again() {
        let mut script = script(2, &[]);
        script.fails_at = vec![1];
        play(&mut script, 2).unwrap();
        assert_eq!(script.contenders, [0, 1, 1, 1]);
        assert!(script.list.missing()[0].starts_with("a failed in the warm-up"));
    }

    #[test]
    fn where_all_fail_there_are_no_rounds_and_each_is_named() {
        for fails_at in [[2, 3], [2, 4], [1, 2]] {
            let mut script = script(2, &[]);
            script.fails_at = fails_at.to_vec();
            let played = play(&mut script, 2).unwrap();
            let order = &script.contenders;
            assert!(played.rounds.is_empty(), "{fails_at:?}: {order:?}");
            assert_eq!(script.list.missing().len(), 2);
            assert_eq!(script.contenders.len(), fails_at[1]);
        }
    }
}
