//! A trial: a real transfer by one mechanism, with content and account checked.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;

use serde::Serialize;
use underpass::drive::blocking::Driver;
use underpass::{
    Account, Choice, Error, Fault, Kernel, Mechanism, Plan, Policy, Scope, Sink, Source,
};

use super::explanation;
use super::trial_ends::{SAMPLE_BYTES, TrialSink, TrialSource};

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum TrialOutcome {
    /// All bytes arrived intact.
    Works { bytes: u64, calls: u64 },
    /// The kernel refused the mechanism.
    Refused {
        errno: String,
        meaning: String,
        scope: Scope,
    },
    /// Nothing was tested: the kernel has no such call between these ends.
    NotApplicable { reason: String },
    /// The transfer failed after it had started.
    Failed { error: String },
    /// The bytes that arrived differ from the bytes sent.
    WrongBytes { error: String },
    /// Nothing was tested, for lack of time or of an end.
    NotTried { reason: String },
}

/// The outcome of a trial, and the mechanisms that moved the bytes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TrialResult {
    #[serde(flatten)]
    pub(super) outcome: TrialOutcome,
    pub(super) uses: Vec<Mechanism>,
}

impl TrialResult {
    pub(super) fn of(outcome: TrialOutcome) -> Self {
        let uses = Vec::new();
        Self { outcome, uses }
    }
}

/// Moves the bytes once, with an unprobed `Kernel`, so that no mechanism is left out.
pub(super) fn attempt(source: &TrialSource, sink: &TrialSink, policy: Policy) -> TrialResult {
    try_once(source, sink, policy).unwrap_or_else(|error| {
        let error = explanation::of_error(&error);
        let reason = format!("cannot open the two ends: {error}");
        TrialResult::of(TrialOutcome::NotTried { reason })
    })
}

fn try_once(source: &TrialSource, sink: &TrialSink, policy: Policy) -> io::Result<TrialResult> {
    let expected = source.bytes();
    let (end, read_back) = sink.open(expected.len())?;
    let end = Sink::new(end)?;
    let (plan, result) = match source {
        TrialSource::File(original) => run(&original.source()?, &end, policy),
        TrialSource::Stream(stream, bytes) => {
            let from = stream.giving(Arc::clone(bytes))?;
            run(&Source::range(from, 0, bytes.len() as u64)?, &end, policy)
        }
    };
    drop(end);
    let arrived = read_back();
    let account = match result {
        Err(error) => return Ok(TrialResult::of(refusal(&error, &plan, policy))),
        Ok(account) => account,
    };
    let wrong = match arrived {
        Err(error) => {
            let error = explanation::of_error(&error);
            Some(format!("cannot read the copy: {error}"))
        }
        Ok(arrived) => difference(expected, &arrived),
    };
    Ok(match (wrong, source) {
        (None, _) => judged(&account, policy),
        (Some(_), TrialSource::File(original)) if !original.is_unchanged() => {
            let error = "the source changes between reads, so the copy cannot be compared".into();
            TrialResult::of(TrialOutcome::Failed { error })
        }
        (Some(error), _) => TrialResult::of(TrialOutcome::WrongBytes { error }),
    })
}

fn run<F: AsFd, G: AsFd>(
    source: &Source<F>,
    sink: &Sink<G>,
    policy: Policy,
) -> (Plan, Result<Account, Error>) {
    let kernel = Kernel::unprobed();
    // A source of unknown size may be endless.
    let mut watch = |progress: underpass::Progress| match progress.done {
        done if done > 2 * SAMPLE_BYTES as u64 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let driver = Driver::new(&kernel).policy(policy).watch(&mut watch);
    let plan = driver.plan(source, sink);
    (plan, driver.run(source, sink))
}

/// Judges a transfer whose bytes are intact: the account must name only the requested mechanism.
fn judged(account: &Account, policy: Policy) -> TrialResult {
    let mut uses = Mechanism::ALL.to_vec();
    uses.retain(|mechanism| account.of(*mechanism).bytes > 0);
    let outcome = match policy.choice {
        Choice::Only(only) if uses != [only] => TrialOutcome::Failed {
            error: account.to_string(),
        },
        _ => TrialOutcome::Works {
            bytes: account.bytes(),
            calls: uses.iter().map(|used| account.of(*used).calls).sum(),
        },
    };
    TrialResult { outcome, uses }
}

fn refusal(error: &Error, plan: &Plan, policy: Policy) -> TrialOutcome {
    let Choice::Only(only) = policy.choice else {
        let error = error.to_string();
        return TrialOutcome::Failed { error };
    };
    let refusals = &error.account.refusals;
    if let Some(refusal) = refusals.iter().find(|refusal| refusal.mechanism == only) {
        return TrialOutcome::Refused {
            errno: explanation::name(refusal.cause),
            meaning: explanation::of(only, refusal.cause, refusal.scope),
            scope: refusal.scope,
        };
    }
    match plan.left_out().find(|(mechanism, _)| *mechanism == only) {
        Some((_, reason)) if error.fault == Fault::Refused => TrialOutcome::NotApplicable {
            reason: reason.to_string(),
        },
        _ => TrialOutcome::Failed {
            error: error.to_string(),
        },
    }
}

fn difference(expected: &[u8], arrived: &[u8]) -> Option<String> {
    if expected == arrived {
        return None;
    }
    let same = expected.iter().zip(arrived).take_while(|(a, b)| a == b);
    Some(format!(
        "{} bytes were sent, {} or more arrived, identical up to byte {}",
        expected.len(),
        arrived.len(),
        same.count()
    ))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::trial_ends::{StreamKind, bytes};
    use super::*;

    fn gone() -> PathBuf {
        let directory = tempfile::tempdir().unwrap();
        directory.path().to_owned()
    }

    fn streamed(from: StreamKind, to: StreamKind, mechanism: Mechanism) -> TrialOutcome {
        let source = TrialSource::Stream(from, bytes());
        attempt(&source, &TrialSink::Stream(to), Policy::only(mechanism)).outcome
    }

    #[test]
    fn splice_relays_a_socket_and_sendfile_does_not_apply() {
        let works = streamed(StreamKind::Unix, StreamKind::Unix, Mechanism::Splice);
        assert!(matches!(works, TrialOutcome::Works { bytes, .. } if bytes == SAMPLE_BYTES as u64));
        let none = streamed(StreamKind::Unix, StreamKind::Pipe, Mechanism::Sendfile);
        assert!(
            matches!(none, TrialOutcome::NotApplicable { .. }),
            "{none:?}"
        );
    }

    #[test]
    fn a_directory_that_is_gone_is_not_tried() {
        let source = TrialSource::Stream(StreamKind::Pipe, bytes());
        let trial = attempt(
            &source,
            &TrialSink::Directory(gone()),
            Policy::only(Mechanism::ReadWrite),
        );
        assert!(
            matches!(trial.outcome, TrialOutcome::NotTried { .. }),
            "{trial:?}"
        );
    }

    #[test]
    fn a_byte_too_many_is_a_difference() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert!(difference(b"abc", b"abcd").is_some());
        assert!(
            difference(b"abc", b"abd")
                .unwrap()
                .ends_with("up to byte 2")
        );
    }
}
