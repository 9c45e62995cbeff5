//! Selects the pairs of ends, and runs the trials of each pair.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use underpass::{Mechanism, Policy};

use super::path::TestedPath;
use super::trial::{TrialOutcome, TrialResult, attempt};
use super::trial_ends::{
    StreamKind, TRIAL_TIME_MAX, TRIALS_TIME_MAX, TrialSink, TrialSource, within,
};
use crate::layout::complain;

/// With more paths than this, copies are tested only within each path, and to and from the first.
const ALL_PAIRS_PATHS_MAX: usize = 4;

/// The results of all mechanisms between two ends.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PairResults {
    pub(super) source: String,
    pub(super) sink: String,
    /// The command of Underpass that moves bytes between these ends.
    #[serde(skip)]
    pub(super) command: Option<&'static str>,
    pub(super) mechanisms: BTreeMap<Mechanism, TrialOutcome>,
    /// With all mechanisms allowed, as the commands run.
    pub(super) auto: TrialResult,
}

impl PairResults {
    /// Formats as `A → TCP`.
    pub(super) fn label(&self) -> String {
        format!("{} → {}", self.source, self.sink)
    }

    /// Returns all results, the one with all mechanisms allowed last.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &TrialOutcome> {
        self.mechanisms.values().chain([&self.auto.outcome])
    }
}

/// Runs all trials between all pairs.
pub(super) fn try_all(paths: &[TestedPath], bytes: &Arc<[u8]>) -> Vec<PairResults> {
    let begun = Instant::now();
    let watched = std::io::stderr().is_terminal();
    let results = pairs(paths, bytes).into_iter().map(|pair| {
        if watched && begun.elapsed().as_secs() >= 1 {
            let (from, to) = (&pair.source.0, &pair.sink.0);
            complain(&format!("\r\x1b[Ktesting {from} → {to}"));
        }
        pair.run(begun)
    });
    let results = results.collect();
    if watched && begun.elapsed().as_secs() >= 1 {
        complain("\r\x1b[K");
    }
    results
}

/// Two ends with their names in the report.
struct TrialPair {
    source: (String, TrialSource),
    sink: (String, TrialSink),
    command: Option<&'static str>,
}

impl TrialPair {
    fn run(self, begun: Instant) -> PairResults {
        let mut is_stuck = false;
        let mut limited = |policy| {
            let not_tried = |reason: &str| {
                let reason = reason.to_owned();
                TrialResult::of(TrialOutcome::NotTried { reason })
            };
            if is_stuck {
                return not_tried("an earlier test of this pair timed out");
            }
            if begun.elapsed() > TRIALS_TIME_MAX {
                return not_tried("the time limit for all tests was exceeded");
            }
            let (source, sink) = (self.source.1.clone(), self.sink.1.clone());
            let result = within(TRIAL_TIME_MAX, move || attempt(&source, &sink, policy));
            result.unwrap_or_else(|| {
                is_stuck = true;
                let error = format!("timed out after {} s", TRIAL_TIME_MAX.as_secs());
                TrialResult::of(TrialOutcome::Failed { error })
            })
        };
        let mechanisms =
            Mechanism::ALL.map(|mechanism| (mechanism, limited(Policy::only(mechanism)).outcome));
        PairResults {
            mechanisms: mechanisms.into(),
            auto: limited(Policy::default()),
            source: self.source.0,
            sink: self.sink.0,
            command: self.command,
        }
    }
}

/// Returns the pairs: each path with each path, each path with each kind of stream, TCP with TCP.
fn pairs(paths: &[TestedPath], bytes: &Arc<[u8]>) -> Vec<TrialPair> {
    let sources: Vec<_> = paths
        .iter()
        .filter_map(|path| Some((path.id.clone(), TrialSource::File(path.original.clone()?))))
        .collect();
    let sink = |path: &TestedPath| {
        let directory = path.writable.clone()?;
        Some((path.id.clone(), TrialSink::Directory(directory)))
    };
    let sinks: Vec<_> = paths.iter().filter_map(sink).collect();
    let streams = [StreamKind::Tcp, StreamKind::Unix, StreamKind::Pipe].map(|kind| {
        let name = kind.name().to_owned();
        let source = TrialSource::Stream(kind, Arc::clone(bytes));
        ((name.clone(), source), (name, TrialSink::Stream(kind)))
    });
    let mut pairs = Vec::new();
    let mut add = |source: &(String, TrialSource), sink: &(String, TrialSink), command| {
        pairs.push(TrialPair {
            source: source.clone(),
            sink: sink.clone(),
            command,
        });
    };
    let all = paths.len() <= ALL_PAIRS_PATHS_MAX;
    for from in &sources {
        for to in &sinks {
            let ends = [&from.0, &to.0];
            if all || from.0 == to.0 || ends.contains(&&paths[0].id) {
                add(from, to, Some("cp"));
            }
        }
    }
    for (at, (from_stream, to_stream)) in streams.iter().enumerate() {
        let command = (at == 0).then_some("serve");
        let (from_files, to_files) = (sources.iter(), sinks.iter());
        from_files.for_each(|from| add(from, to_stream, command));
        to_files.for_each(|to| add(from_stream, to, None));
    }
    let [(from_tcp, to_tcp), ..] = &streams;
    add(from_tcp, to_tcp, None);
    pairs
}
