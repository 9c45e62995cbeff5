//! Rounds: every contender once per round, in alternating order, the disturbed ones again.
//!
//! ```text
//!   warm-up   A B C      thrown away
//!   round 0   A B C
//!   round 1   C B A      so that nobody always follows the same one
//!   round 2   B C A
//!   round 3   A C B …
//! ```
//!
//! A round in which other load disturbed any contender is broken off and played again whole, as
//! long as there is patience left. Other load is judged by the machine's clocks and never by the
//! figures, so nothing is picked by its result.
//!
//! A contender that fails is left out of all rounds, and the others go on.

use crate::error::{Error, Result};

/// What plays rounds: the seam between the order of things and the things.
pub(crate) trait RoundStage {
    type Figure;

    /// How many there are, with those that have failed.
    fn contenders(&mut self) -> usize;

    /// Those that have not failed, in their own order.
    fn standing(&mut self) -> Vec<usize>;

    /// Called before each round, the warm-up included.
    fn before_round(&mut self) -> Result<()>;

    fn play(&mut self, contender: usize) -> Result<Self::Figure>;

    /// A play has failed: the contender stands no more. Returns what is to be said of it, or an
    /// error if that is the end of all.
    fn leave_out(&mut self, contender: usize, round: Round, error: Error) -> Result<String>;

    fn is_disturbed(&self, figure: &Self::Figure) -> bool;

    /// Whether a disturbed round is worth another attempt. Says no in the end.
    fn is_patient(&self) -> bool;

    /// Whether somebody wants it to end.
    fn is_stopped(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    WarmUp,
    /// From 0 on.
    Counted(usize),
}

pub(crate) struct Played<T> {
    /// By round, then by contender; none of one that failed in any of them. Fewer than asked for
    /// where it was stopped.
    pub(crate) rounds: Vec<Vec<Option<T>>>,
    /// What is to be said of those that failed.
    pub(crate) failures: Vec<String>,
    /// Rounds that were disturbed and played again.
    pub(crate) repeated: usize,
    /// Rounds that were disturbed and count all the same, since repeating did not help.
    pub(crate) disturbed: usize,
}

impl<T> Played<T> {
    /// How many there are, with those that have no figures.
    pub(crate) fn contenders(&self) -> usize {
        self.rounds.first().map_or(0, Vec::len)
    }

    /// The rounds of one contender; none if it failed.
    pub(crate) fn of(&self, contender: usize) -> Vec<&T> {
        let rounds = self.rounds.iter();
        rounds
            .filter_map(|round| round[contender].as_ref())
            .collect()
    }
}

impl<T: Clone> Played<T> {
    /// The same with the contenders in another order.
    pub(crate) fn in_order(&self, order: &[usize]) -> Played<T> {
        let reordered = |round: &Vec<Option<T>>| {
            let figures = order.iter().map(|&contender| round[contender].clone());
            figures.collect()
        };
        Played {
            rounds: self.rounds.iter().map(reordered).collect(),
            failures: self.failures.clone(),
            repeated: self.repeated,
            disturbed: self.disturbed,
        }
    }
}

/// Plays one warm-up and `count` rounds. Stopped, it leaves out the round that is not complete.
pub(crate) fn interleave<S: RoundStage>(stage: &mut S, count: usize) -> Result<Played<S::Figure>> {
    let mut played = Played {
        rounds: Vec::new(),
        failures: Vec::new(),
        repeated: 0,
        disturbed: 0,
    };
    if let RoundOutcome::Stopped = play_round(stage, Round::WarmUp, &mut played.failures)? {
        return Ok(played);
    }
    while played.rounds.len() < count {
        let round = Round::Counted(played.rounds.len());
        match play_round(stage, round, &mut played.failures)? {
            RoundOutcome::Stopped => break,
            RoundOutcome::BrokenOff => played.repeated += 1,
            RoundOutcome::Complete(figures) => {
                let mut there = figures.iter().flatten();
                let is_disturbed = there.any(|figure| stage.is_disturbed(figure));
                played.disturbed += usize::from(is_disturbed);
                played.rounds.push(figures);
            }
        }
    }
    let standing = stage.standing();
    for round in &mut played.rounds {
        for (contender, figure) in round.iter_mut().enumerate() {
            // Of rounds before the one in which it failed: nothing would be beside them.
            figure.take_if(|_| !standing.contains(&contender));
        }
    }
    Ok(played)
}

enum RoundOutcome<T> {
    Complete(Vec<Option<T>>),
    BrokenOff,
    Stopped,
}

/// Plays all that stand; the figures come in the contenders' own order. A warm-up is never broken
/// off, since it counts for nothing.
fn play_round<S: RoundStage>(
    stage: &mut S,
    round: Round,
    failures: &mut Vec<String>,
) -> Result<RoundOutcome<S::Figure>> {
    if stage.is_stopped() {
        return Ok(RoundOutcome::Stopped);
    }
    stage.before_round()?;
    let mut figures: Vec<Option<S::Figure>> = Vec::new();
    figures.resize_with(stage.contenders(), || None);
    for contender in order(round, stage.standing()) {
        if stage.is_stopped() {
            return Ok(RoundOutcome::Stopped);
        }
        match stage.play(contender) {
            Ok(figure) => {
                let may_break_off = round != Round::WarmUp && stage.is_patient();
                if may_break_off && stage.is_disturbed(&figure) {
                    return Ok(RoundOutcome::BrokenOff);
                }
                figures[contender] = Some(figure);
            }
            // It was broken off.
            Err(_) if stage.is_stopped() => return Ok(RoundOutcome::Stopped),
            Err(error) => failures.push(stage.leave_out(contender, round, error)?),
        }
    }
    Ok(RoundOutcome::Complete(figures))
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
    use super::*;

    /// Figures are the numbers of the plays so far; those listed are disturbed.
    struct Script {
        standing: Vec<usize>,
        count: usize,
        plays: usize,
        patience: usize,
        stops_after: usize,
        /// Plays that fail.
        fails_at: Vec<usize>,
        contenders: Vec<usize>,
        disturbed: Vec<usize>,
    }

    impl RoundStage for Script {
        type Figure = usize;

        fn contenders(&mut self) -> usize {
            self.count
        }

        fn standing(&mut self) -> Vec<usize> {
            self.standing.clone()
        }

        fn before_round(&mut self) -> Result<()> {
            Ok(())
        }

        fn play(&mut self, contender: usize) -> Result<usize> {
            self.contenders.push(contender);
            self.plays += 1;
            match self.fails_at.contains(&self.plays) {
                true => Err(Error::Answer("broken off".into())),
                false => Ok(self.plays - 1),
            }
        }

        fn leave_out(&mut self, contender: usize, round: Round, error: Error) -> Result<String> {
            self.standing.retain(|&one| one != contender);
            match self.standing.is_empty() {
                true => Err(error),
                false => Ok(format!("{contender} {round:?}")),
            }
        }

        fn is_disturbed(&self, figure: &usize) -> bool {
            self.disturbed.contains(figure)
        }

        fn is_patient(&self) -> bool {
            self.plays < self.patience
        }

        fn is_stopped(&self) -> bool {
            self.plays >= self.stops_after
        }
    }

    fn script(count: usize, disturbed: &[usize]) -> Script {
        Script {
            standing: (0..count).collect(),
            count,
            plays: 0,
            patience: 8,
            stops_after: usize::MAX,
            fails_at: Vec::new(),
            contenders: Vec::new(),
            disturbed: disturbed.to_vec(),
        }
    }

    fn rounds<const N: usize>(rounds: [[usize; 2]; N]) -> Vec<Vec<Option<usize>>> {
        rounds.map(|round| round.map(Some).to_vec()).to_vec()
    }

    #[test]
    fn contenders_alternate_after_a_warm_up_and_figures_stay_with_their_own() {
        let mut stage = script(2, &[]);
        let played = interleave(&mut stage, 4).unwrap();
        assert_eq!(stage.contenders, [0, 1, 0, 1, 1, 0, 1, 0, 0, 1]);
        assert_eq!(played.rounds, rounds([[2, 3], [5, 4], [7, 6], [8, 9]]));
        assert_eq!(played.of(1), [&3, &4, &6, &9]);
        assert_eq!(played.in_order(&[1, 0]).of(0), played.of(1));
    }

    #[test]
    fn each_contender_comes_first_equally_often() {
        let order = |round| order(Round::Counted(round), vec![0, 1, 2]);
        let first: Vec<usize> = (0..6).map(|round| order(round)[0]).collect();
        assert_eq!(
            (0..3)
                .map(|s| first.iter().filter(|&&f| f == s).count())
                .max(),
            Some(2)
        );
    }

    #[test]
    fn a_disturbed_round_is_broken_off_and_played_again_whole() {
        let mut stage = script(2, &[2, 4]);
        let played = interleave(&mut stage, 2).unwrap();
        assert_eq!((played.repeated, played.disturbed), (2, 0));
        assert_eq!(stage.contenders, [0, 1, 0, 0, 1, 0, 1, 1, 0]);
        assert_eq!(played.rounds, rounds([[5, 6], [8, 7]]));
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_measured_in_the_end_and_told_of() {
        let all: Vec<usize> = (0..100).collect();
        let played = interleave(&mut script(2, &all), 3).unwrap();
        let counts = (played.rounds.len(), played.repeated, played.disturbed);
        assert_eq!(counts, (3, 5, 3));
    }

    #[test]
    fn stopped_it_keeps_the_rounds_that_are_complete() {
        let mut stage = script(2, &[]);
        stage.stops_after = 7;
        let played = interleave(&mut stage, 4).unwrap();
        assert_eq!(played.rounds, rounds([[2, 3], [5, 4]]));
        stage.stops_after = 0;
        assert!(interleave(&mut stage, 4).unwrap().rounds.is_empty());
    }

    #[test]
    fn a_play_that_was_broken_off_is_no_failure() {
        let mut stage = script(2, &[]);
        (stage.stops_after, stage.fails_at) = (7, vec![7]);
        let played = interleave(&mut stage, 4).unwrap();
        assert_eq!(played.rounds, rounds([[2, 3], [5, 4]]));
        assert!(played.failures.is_empty());
    }

    #[test]
    fn one_that_fails_has_no_figures_and_the_rounds_of_the_others_go_on() {
        let mut stage = script(3, &[]);
        stage.fails_at = vec![8];
        let played = interleave(&mut stage, 3).unwrap();
        assert_eq!(stage.contenders, [0, 1, 2, 0, 1, 2, 2, 1, 0, 2, 0]);
        assert_eq!(played.failures, ["1 Counted(1)"]);
        assert_eq!((played.contenders(), played.of(1).len()), (3, 0));
        assert_eq!(
            (played.of(0), played.of(2)),
            (vec![&3, &8, &10], vec![&5, &6, &9])
        );
    }

    #[test]
    fn one_that_fails_in_the_warm_up_is_not_played_again() {
        let mut stage = script(2, &[]);
        stage.fails_at = vec![1];
        let played = interleave(&mut stage, 2).unwrap();
        assert_eq!(stage.contenders, [0, 1, 1, 1]);
        assert_eq!(played.failures, ["0 WarmUp"]);
    }

    #[test]
    fn where_all_fail_there_is_nothing_to_tell() {
        let mut stage = script(2, &[]);
        stage.fails_at = vec![2, 3];
        assert!(interleave(&mut stage, 2).is_err());
    }
}
