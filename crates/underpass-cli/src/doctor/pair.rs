//! Selects the pairs of ends, and runs the trials of each pair.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Instant;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use underpass::{Mechanism, Policy};

use super::loopback::StreamKind;
use super::path::TestedPath;
use super::time_limit::{TRIAL_TIME_MAX, TRIALS_TIME_MAX, within};
use super::trial::{TrialOutcome, TrialResult, TrialSink, TrialSource, attempt};

/// With more paths than this, copies are tested only within each path, and to and from the first.
const ALL_PAIRS_PLACES_MAX: usize = 4;

/// The source or the sink of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairEnd {
    /// The index in the list of paths.
    Place(usize),
    Stream(StreamKind),
}

/// The results of all mechanisms between two ends.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PairResults {
    #[serde(skip)]
    pub(super) ends: (PairEnd, PairEnd),
    pub(super) source: String,
    pub(super) sink: String,
    #[serde(serialize_with = "by_mechanism")]
    pub(super) mechanisms: Vec<(Mechanism, TrialOutcome)>,
    /// With all mechanisms allowed, as the commands run.
    pub(super) auto: AutoResult,
}

/// The result with all mechanisms allowed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AutoResult {
    #[serde(flatten)]
    pub(super) outcome: TrialOutcome,
    /// The mechanisms that moved bytes.
    pub(super) uses: Vec<Mechanism>,
}

impl PairResults {
    pub(super) fn outcome(&self, mechanism: Mechanism) -> Option<&TrialOutcome> {
        let found = self
            .mechanisms
            .iter()
            .find(|(tried, _)| *tried == mechanism);
        found.map(|(_, outcome)| outcome)
    }

    /// `A → TCP`.
    pub(super) fn label(&self) -> String {
        format!("{} → {}", self.source, self.sink)
    }

    /// All results, the one with all mechanisms allowed last.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &TrialOutcome> {
        let each = self.mechanisms.iter().map(|(_, outcome)| outcome);
        each.chain([&self.auto.outcome])
    }
}

fn by_mechanism<S: Serializer>(
    outcomes: &[(Mechanism, TrialOutcome)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(outcomes.len()))?;
    for (mechanism, outcome) in outcomes {
        map.serialize_entry(mechanism.name(), outcome)?;
    }
    map.end()
}

/// Runs all trials between all pairs.
pub(super) fn try_all(places: &[TestedPath], bytes: &Arc<[u8]>) -> Vec<PairResults> {
    let begun = Instant::now();
    let watched = std::io::stderr().is_terminal();
    let rows = pairs(places).into_iter().map(|ends| {
        let (source, sink) = (name(ends.0, places), name(ends.1, places));
        if watched && begun.elapsed().as_secs() >= 1 {
            eprint!("\r\x1b[Ktesting {source} → {sink}");
        }
        let mut trials = PairTrials::new(ends, places, bytes, begun);
        let mechanisms = Mechanism::ALL
            .map(|mechanism| (mechanism, trials.run(Policy::only(mechanism)).outcome));
        let TrialResult { outcome, uses } = trials.run(Policy::default());
        PairResults {
            ends,
            source,
            sink,
            mechanisms: mechanisms.into(),
            auto: AutoResult { outcome, uses },
        }
    });
    let rows = rows.collect();
    if watched && begun.elapsed().as_secs() >= 1 {
        eprint!("\r\x1b[K");
    }
    rows
}

/// Runs trials between two ends, up to the first that exceeds its time limit.
struct PairTrials {
    ends: Option<(TrialSource, TrialSink)>,
    begun: Instant,
    stuck: bool,
}

impl PairTrials {
    fn new(
        ends: (PairEnd, PairEnd),
        places: &[TestedPath],
        bytes: &Arc<[u8]>,
        begun: Instant,
    ) -> Self {
        let ends = inlet(ends.0, places, bytes).zip(outlet(ends.1, places));
        Self {
            ends,
            begun,
            stuck: false,
        }
    }

    fn run(&mut self, policy: Policy) -> TrialResult {
        let not_tried = |reason: &str| {
            let reason = reason.to_owned();
            TrialResult::of(TrialOutcome::NotTried { reason })
        };
        if self.stuck {
            return not_tried("an earlier test of this pair timed out");
        }
        if self.begun.elapsed() > TRIALS_TIME_MAX {
            return not_tried("the time limit for all tests was exceeded");
        }
        let Some((inlet, outlet)) = self.ends.clone() else {
            return not_tried("one of the two ends is not usable");
        };
        let trial = within(TRIAL_TIME_MAX, move || attempt(&inlet, &outlet, policy));
        trial.unwrap_or_else(|| {
            self.stuck = true;
            let error = format!("timed out after {} s", TRIAL_TIME_MAX.as_secs());
            TrialResult::of(TrialOutcome::Failed { error })
        })
    }
}

fn inlet(end: PairEnd, places: &[TestedPath], bytes: &Arc<[u8]>) -> Option<TrialSource> {
    match end {
        PairEnd::Place(place) => places[place].original.clone().map(TrialSource::File),
        PairEnd::Stream(stream) => Some(TrialSource::Stream(stream, Arc::clone(bytes))),
    }
}

fn outlet(end: PairEnd, places: &[TestedPath]) -> Option<TrialSink> {
    match end {
        PairEnd::Place(place) => places[place].writable.clone().map(TrialSink::Directory),
        PairEnd::Stream(stream) => Some(TrialSink::Stream(stream)),
    }
}

fn name(end: PairEnd, places: &[TestedPath]) -> String {
    match end {
        PairEnd::Place(place) => places[place].id.clone(),
        PairEnd::Stream(stream) => stream.name().to_owned(),
    }
}

/// Every path with every path, every path with every kind of stream, and TCP with TCP.
fn pairs(places: &[TestedPath]) -> Vec<(PairEnd, PairEnd)> {
    let sources = || (0..places.len()).filter(|at| places[*at].original.is_some());
    let sinks = || (0..places.len()).filter(|at| places[*at].writable.is_some());
    let many = places.len() > ALL_PAIRS_PLACES_MAX;
    let mut pairs = Vec::new();
    for from in sources() {
        let wanted = |to: &usize| !many || from == *to || from == 0 || *to == 0;
        let copies = sinks().filter(wanted);
        pairs.extend(copies.map(|to| (PairEnd::Place(from), PairEnd::Place(to))));
    }
    for stream in [StreamKind::Tcp, StreamKind::Unix, StreamKind::Pipe] {
        pairs.extend(sources().map(|from| (PairEnd::Place(from), PairEnd::Stream(stream))));
        pairs.extend(sinks().map(|to| (PairEnd::Stream(stream), PairEnd::Place(to))));
    }
    pairs.push((
        PairEnd::Stream(StreamKind::Tcp),
        PairEnd::Stream(StreamKind::Tcp),
    ));
    pairs
}
