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

use crate::error::Result;

/// What plays rounds: the seam between the order of things and the things.
pub(crate) trait Stage {
    type Figure;

    /// Called before each round, the warm-up included.
    fn before_round(&mut self) -> Result<()>;

    fn play(&mut self, contender: usize) -> Result<Self::Figure>;

    fn is_disturbed(&self, figure: &Self::Figure) -> bool;

    /// Whether a disturbed round is worth another attempt. Says no in the end.
    fn is_patient(&self) -> bool;

    /// Whether somebody wants it to end.
    fn is_stopped(&self) -> bool;
}

pub(crate) struct Played<T> {
    /// By round, then by contender. Fewer than asked for where it was stopped.
    pub(crate) rounds: Vec<Vec<T>>,
    /// Rounds that were disturbed and played again.
    pub(crate) repeated: usize,
    /// Rounds that were disturbed and count all the same, since repeating did not help.
    pub(crate) disturbed: usize,
}

/// Plays one warm-up and `count` rounds. Stopped, it leaves out the round that is not complete.
pub(crate) fn interleave<S: Stage>(
    stage: &mut S,
    contenders: usize,
    count: usize,
) -> Result<Played<S::Figure>> {
    let mut played = Played {
        rounds: Vec::new(),
        repeated: 0,
        disturbed: 0,
    };
    if stage.is_stopped() {
        return Ok(played);
    }
    stage.before_round()?;
    for contender in order(0, contenders) {
        if stage.is_stopped() {
            return Ok(played);
        }
        match stage.play(contender) {
            // It was broken off.
            Err(_) if stage.is_stopped() => return Ok(played),
            figure => figure?,
        };
    }
    while played.rounds.len() < count {
        match play_round(stage, &order(played.rounds.len(), contenders))? {
            Round::Stopped => break,
            Round::BrokenOff => played.repeated += 1,
            Round::Complete(figures) => {
                let is_disturbed = figures.iter().any(|figure| stage.is_disturbed(figure));
                played.disturbed += usize::from(is_disturbed);
                played.rounds.push(figures);
            }
        }
    }
    Ok(played)
}

enum Round<T> {
    Complete(Vec<T>),
    BrokenOff,
    Stopped,
}

/// Plays the contenders in the given order; the figures come in the contenders' own order.
fn play_round<S: Stage>(stage: &mut S, order: &[usize]) -> Result<Round<S::Figure>> {
    stage.before_round()?;
    let mut figures = Vec::with_capacity(order.len());
    for &contender in order {
        if stage.is_stopped() {
            return Ok(Round::Stopped);
        }
        let figure = match stage.play(contender) {
            // It was broken off.
            Err(_) if stage.is_stopped() => return Ok(Round::Stopped),
            figure => figure?,
        };
        if stage.is_disturbed(&figure) && stage.is_patient() {
            return Ok(Round::BrokenOff);
        }
        figures.push((contender, figure));
    }
    figures.sort_by_key(|&(contender, _)| contender);
    let figures = figures.into_iter().map(|(_, figure)| figure);
    Ok(Round::Complete(figures.collect()))
}

/// Rotated every second round, reversed every other.
fn order(round: usize, contenders: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..contenders).collect();
    order.rotate_left(round / 2 % contenders.max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Figures are the numbers of the plays so far; those listed are disturbed.
    struct Script {
        plays: usize,
        patience: usize,
        stops_after: usize,
        /// A play that fails.
        fails_at: usize,
        contenders: Vec<usize>,
        disturbed: Vec<usize>,
    }

    impl Stage for Script {
        type Figure = usize;

        fn before_round(&mut self) -> Result<()> {
            Ok(())
        }

        fn play(&mut self, contender: usize) -> Result<usize> {
            self.contenders.push(contender);
            self.plays += 1;
            match self.plays == self.fails_at {
                true => Err(Error::Answer("broken off".into())),
                false => Ok(self.plays - 1),
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

    fn script(disturbed: &[usize]) -> Script {
        Script {
            plays: 0,
            patience: 8,
            stops_after: usize::MAX,
            fails_at: usize::MAX,
            contenders: Vec::new(),
            disturbed: disturbed.to_vec(),
        }
    }

    #[test]
    fn contenders_alternate_after_a_warm_up_and_figures_stay_with_their_own() {
        let mut stage = script(&[]);
        let played = interleave(&mut stage, 2, 4).unwrap();
        assert_eq!(stage.contenders, [0, 1, 0, 1, 1, 0, 1, 0, 0, 1]);
        assert_eq!(played.rounds, [[2, 3], [5, 4], [7, 6], [8, 9]]);
    }

    #[test]
    fn each_contender_comes_first_equally_often() {
        let first: Vec<usize> = (0..6).map(|round| order(round, 3)[0]).collect();
        assert_eq!(
            (0..3)
                .map(|s| first.iter().filter(|&&f| f == s).count())
                .max(),
            Some(2)
        );
    }

    #[test]
    fn a_disturbed_round_is_broken_off_and_played_again_whole() {
        let mut stage = script(&[2, 4]);
        let played = interleave(&mut stage, 2, 2).unwrap();
        assert_eq!((played.repeated, played.disturbed), (2, 0));
        assert_eq!(stage.contenders, [0, 1, 0, 0, 1, 0, 1, 1, 0]);
        assert_eq!(played.rounds, [[5, 6], [8, 7]]);
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_measured_in_the_end_and_told_of() {
        let all: Vec<usize> = (0..100).collect();
        let played = interleave(&mut script(&all), 2, 3).unwrap();
        let counts = (played.rounds.len(), played.repeated, played.disturbed);
        assert_eq!(counts, (3, 5, 3));
    }

    #[test]
    fn stopped_it_keeps_the_rounds_that_are_complete() {
        let mut stage = script(&[]);
        stage.stops_after = 7;
        let played = interleave(&mut stage, 2, 4).unwrap();
        assert_eq!(played.rounds, [[2, 3], [5, 4]]);
        stage.stops_after = 0;
        assert!(interleave(&mut stage, 2, 4).unwrap().rounds.is_empty());
    }

    #[test]
    fn a_play_that_was_broken_off_is_no_error_and_any_other_is() {
        let mut stage = script(&[]);
        (stage.stops_after, stage.fails_at) = (7, 7);
        let played = interleave(&mut stage, 2, 4).unwrap();
        assert_eq!(played.rounds, [[2, 3], [5, 4]]);
        let mut stage = script(&[]);
        stage.fails_at = 7;
        assert!(interleave(&mut stage, 2, 4).is_err());
    }
}
