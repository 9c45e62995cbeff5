//! Plays the rounds of a case on a real machine: waits for quiet, reports progress, stops on
//! Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::contenders::ContenderSet;
use super::interleave::{Played, Sample, Schedule, interleave};
use super::progress::RunProgress;
use crate::document::{Case, SystemCalls};
use crate::error::{Error, Result};
use crate::machine::noise::wait_until_quiet;

/// Completes "NAME failed …" where a contender fails under strace.
const TRACED: &str = "while its system calls were counted";

/// How thoroughly to measure, and what may end it early.
pub(crate) struct RoundRunner<'a> {
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// The time in which one case may wait for a quiet machine and repeat disturbed rounds.
    pub(crate) patience: Duration,
    /// Set by Ctrl-C.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) progress: &'a RunProgress,
}

impl RoundRunner<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Plays all rounds of a case; `None` if it was stopped before the first one was complete, or
    /// all contenders have failed. `weight` is what one play adds to the progress.
    pub(crate) fn play<C: ContenderSet, S: Sample>(
        &self,
        contenders: &mut C,
        weight: u64,
        mut play: impl FnMut(&mut C, usize) -> Result<S>,
    ) -> Result<Option<Played<S>>> {
        let deadline = Instant::now() + self.patience;
        let schedule = Schedule {
            rounds: self.rounds,
            stop: self.stop,
            before_round: &|| wait_until_quiet(deadline),
            is_patient: &|| Instant::now() < deadline,
        };
        let played = interleave(&schedule, contenders, |contenders, contender| {
            let sample = play(contenders, contender)?;
            self.progress.done(weight);
            Ok(sample)
        })?;
        Ok(Some(played).filter(|played| !played.rounds.is_empty()))
    }

    /// Does something once with each contender, outside of the rounds. Those that fail `when` it is
    /// done are left out from then on, with a note.
    pub(crate) fn once_each<C: ContenderSet, R>(
        &self,
        contenders: &mut C,
        when: &str,
        weight: u64,
        mut one: impl FnMut(&mut C, usize) -> Result<R>,
    ) -> Result<Vec<R>> {
        let mut all = Vec::new();
        for contender in contenders.list().standing() {
            match one(contenders, contender) {
                Ok(done) => all.push(done),
                // The stop made it fail.
                Err(_) if self.is_stopped() => break,
                Err(error) => contenders.leave_out(contender, when, error)?,
            }
            self.progress.done(weight);
        }
        Ok(all)
    }

    /// Counts the system calls of each contender under strace, outside of the rounds; where that is
    /// not possible, a note says why. The case has the notes on all that have failed since its
    /// rounds.
    pub(crate) fn count_calls<C: ContenderSet>(
        &self,
        contenders: &mut C,
        weight: u64,
        case: &mut Case,
        count: impl FnMut(&mut C, usize) -> Result<Option<SystemCalls>>,
    ) -> Result<()> {
        match self.once_each(contenders, TRACED, weight, count) {
            Ok(calls) => case.calls = calls.into_iter().flatten().collect(),
            Err(Error::Setting(why)) => {
                let note = format!("system calls were not counted: {why}");
                case.notes.push(note);
            }
            Err(error) => return Err(error),
        }
        case.notes.extend(contenders.list().new_failures());
        Ok(())
    }
}
