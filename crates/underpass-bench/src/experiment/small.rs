//! `bench small`: where one write of head and body stops being better than a head and a sendfile.

use std::time::Duration;

use super::closed::LoadSettings;
use super::observation::{self as read, ServerSample};
use super::serving::{ServerSet, ServerVariant};
use super::{ExperimentContext, RunScale, size_label, sizes_of_cases};
use crate::contender::named::NamedCommand;
use crate::document::{Axis, Case, Experiment, Unit};
use crate::error::{Error, Result};
use crate::load::{ConnectionReuse, Quota, WaitMode, allow_connections};
use crate::rounds::run::{MetricReader, RoundRunner};
use crate::stats::{RatioEstimate, RatioVerdict};

/// Sizes of bodies around the crossover, in KiB.
const CROSSOVER_KIB: &[u64] = &[1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256];
const CROSSOVER_KIB_QUICK: &[u64] = &[1, 8, 16, 64, 256];

/// For how long connections go on asking in a round.
const SPAN_FULL: Duration = Duration::from_millis(450);
const SPAN_QUICK: Duration = Duration::from_millis(50);

/// What goes on around a round: opening connections, waiting until the server is settled.
const AROUND_MS: u64 = 50;

/// The most that `serve --join` takes, in bytes, and what of it is left for a body.
const JOIN_MAX: u64 = 1 << 20;
const JOINED_BODY_MAX: u64 = JOIN_MAX - (4 << 10);

/// What to ask for.
#[derive(Clone, Debug)]
pub struct SmallOptions {
    /// Servers beside our own.
    pub servers: Vec<NamedCommand>,
    /// Sizes of bodies in bytes; from 1 to 256 KiB if empty.
    pub sizes: Vec<u64>,
    /// How many files of each size, asked for in turns.
    pub files: usize,
    /// Connections open at once, each asking again when its answer is complete.
    pub connections: usize,
    /// Requests of a round, all connections together; as many as begin in a while if none.
    pub requests: Option<u64>,
    /// What the client does while no answer is there.
    pub waiting: WaitMode,
}

impl Default for SmallOptions {
    /// 32 connections, 64 files, all sizes.
    fn default() -> SmallOptions {
        SmallOptions {
            servers: Vec::new(),
            sizes: Vec::new(),
            files: 64,
            connections: 32,
            requests: None,
            waiting: WaitMode::default(),
        }
    }
}

const METRICS: [MetricReader<ServerSample>; 6] = [
    read::REQUESTS_PER_CPU,
    read::REQUESTS,
    read::CPU_PER_GIB,
    read::CPU_SHARE,
    read::P50,
    read::P99,
];

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &SmallOptions, scale: RunScale, rounds: usize) -> u64 {
    let contenders = 2 + options.servers.len() as u64;
    // Beside the rounds of each size a warm-up, and one under strace in all.
    let plays = options.sizes(scale).len() as u64 * (rounds as u64 + 1) + 1;
    plays * contenders * options.weight_of_play(scale)
}

/// Asks our server in both ways, and the others, for bodies of each size.
pub(crate) fn run(
    options: &SmallOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    options.check()?;
    allow_connections(options.connections)?;
    let variants = [
        ServerVariant::new("one write", &["--join", &JOIN_MAX.to_string()]),
        ServerVariant::new("head, then sendfile", &["--join", "0"]),
    ];
    let mut bench = ServerSet::start("small", &variants, &options.servers, ground, None)?;
    let mut experiment = describe(&bench, options.connections, run.rounds);
    experiment.notes.extend(bench.left_out());
    let played = play_all(options, &mut bench, &mut experiment.cases, ground, run);
    bench.finish_after(played)?;
    experiment
        .notes
        .extend(crossover(&findings(&experiment.cases)));
    Ok(vec![experiment])
}

fn play_all(
    options: &SmallOptions,
    bench: &mut ServerSet,
    cases: &mut Vec<Case>,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<()> {
    for size in options.sizes(ground.scale) {
        if run.is_stopped() {
            break;
        }
        let mut closed = options.load(ground.scale).of_size(size, bench, run)?;
        let weight = options.weight_of_play(ground.scale);
        let Some(mut case) = closed.case(&METRICS, weight, run)? else {
            break;
        };
        // Once is enough: what differs between the two is the same at every size.
        if cases.is_empty() {
            closed.add_calls(&mut case, weight, run)?;
        }
        cases.push(case);
    }
    Ok(())
}

impl SmallOptions {
    fn check(&self) -> Result<()> {
        match self.sizes.iter().find(|&&size| size > JOINED_BODY_MAX) {
            None => Ok(()),
            Some(size) => Err(Error::Setting(format!(
                "a body of {} never leaves in one write; the most is {} bytes",
                size_label(*size),
                JOINED_BODY_MAX
            ))),
        }
    }

    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        let usual = scale.pick(CROSSOVER_KIB, CROSSOVER_KIB_QUICK).iter();
        sizes_of_cases(&self.sizes, &usual.map(|kib| kib << 10).collect::<Vec<_>>())
    }

    fn load(&self, scale: RunScale) -> LoadSettings {
        LoadSettings {
            name: "small",
            files: self.files,
            connections: self.connections,
            connection: ConnectionReuse::KeepAlive,
            quota: Quota::of(self.requests, scale.pick(SPAN_FULL, SPAN_QUICK)),
            waiting: self.waiting,
        }
    }

    /// Of one contender, in milliseconds.
    fn weight_of_play(&self, scale: RunScale) -> u64 {
        let span = scale.pick(SPAN_FULL, SPAN_QUICK).as_millis() as u64;
        AROUND_MS + self.requests.map_or(span, |requests| requests / 40)
    }
}

fn describe(bench: &ServerSet, connections: usize, rounds: usize) -> Experiment {
    Experiment {
        name: "small".into(),
        variant: format!("{connections} connections"),
        title: "Small bodies: one write, or a head and a sendfile".into(),
        measured: "The same server answers in two ways: head and body in one write, for which the \
                   body is read (`serve --join` larger than all), and the head followed by \
                   sendfile (`--join 0`). Requests come over kept-alive connections for files in \
                   the page cache."
            .into(),
        reading:
            "CopyWorkload a small body costs less than another call. Where the lines cross is the \
                  size that `serve --join` should name on this machine, head included."
                .into(),
        axis: Axis {
            label: "body size".into(),
            unit: Unit::Bytes,
        },
        rounds,
        contenders: bench.contenders(),
        ..Experiment::default()
    }
}

/// What one write is at some size, against the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Wins,
    Loses,
    /// The spread swallows it.
    Nothing,
    TooFewRounds,
}

impl Finding {
    /// Of a comparison of figures of which more are better.
    fn of(comparison: &RatioEstimate) -> Finding {
        match comparison.verdict {
            RatioVerdict::Different if comparison.ratio > 1.0 => Finding::Wins,
            RatioVerdict::Different => Finding::Loses,
            RatioVerdict::NotDistinguishable => Finding::Nothing,
            RatioVerdict::TooFewRounds => Finding::TooFewRounds,
        }
    }
}

/// By size, as the first metric compares the first two contenders.
fn findings(cases: &[Case]) -> Vec<(u64, Finding)> {
    let of_case = |case: &Case| {
        let comparison = case.metrics.first()?.comparisons.get(1)?.as_ref()?;
        Some((case.x as u64, Finding::of(comparison)))
    };
    cases.iter().filter_map(of_case).collect()
}

/// At which sizes one write wins, at which it loses, and of which nothing can be said.
fn crossover(findings: &[(u64, Finding)]) -> Option<String> {
    findings.first()?;
    let sizes = |wanted: Finding| {
        let found = findings.iter().filter(|(_, finding)| *finding == wanted);
        let labels: Vec<String> = found.map(|&(size, _)| size_label(size)).collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    };
    if sizes(Finding::TooFewRounds).is_some() {
        return Some("too few rounds to tell where one write wins; see --rounds".into());
    }
    let at = |wanted| sizes(wanted).unwrap_or_else(|| "none of these sizes".to_owned());
    let line = format!(
        "one write wins at {}; it loses at {}",
        at(Finding::Wins),
        at(Finding::Loses)
    );
    Some(match sizes(Finding::Nothing) {
        None => line,
        Some(undecided) => format!("{line}; at {undecided} the two can't be told apart"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(findings: &[(u64, Finding)]) -> String {
        let sizes = findings.iter().map(|&(kib, finding)| (kib << 10, finding));
        crossover(&sizes.collect::<Vec<_>>()).unwrap_or_default()
    }

    use Finding::{Loses, Nothing, TooFewRounds, Wins};

    #[test]
    fn every_size_is_told_once_where_it_belongs() {
        let mixed = [
            (1, Wins),
            (16, Wins),
            (24, Nothing),
            (48, Loses),
            (64, Loses),
        ];
        assert_eq!(
            said(&mixed),
            "one write wins at 1 KiB, 16 KiB; it loses at 48 KiB, 64 KiB; at 24 KiB the two can't \
             be told apart"
        );
        assert_eq!(
            said(&[(1, Loses), (2, Loses)]),
            "one write wins at none of these sizes; it loses at 1 KiB, 2 KiB"
        );
    }

    #[test]
    fn where_nothing_is_sure_nothing_is_claimed() {
        assert!(said(&[(1, Wins), (2, TooFewRounds)]).starts_with("too few rounds"));
        assert_eq!(said(&[]), "");
    }

    #[test]
    fn more_requests_for_the_same_time_are_a_win() {
        let comparison = |verdict, ratio| RatioEstimate {
            verdict,
            ratio,
            low: ratio,
            high: ratio,
            confidence: 0.97,
        };
        assert_eq!(Finding::of(&comparison(RatioVerdict::Different, 1.4)), Wins);
        assert_eq!(
            Finding::of(&comparison(RatioVerdict::Different, 0.7)),
            Loses
        );
        let unclear = comparison(RatioVerdict::NotDistinguishable, 1.4);
        assert_eq!(Finding::of(&unclear), Nothing);
    }

    #[test]
    fn a_body_that_never_leaves_in_one_write_is_refused() {
        let with = |size| SmallOptions {
            sizes: vec![size],
            ..SmallOptions::default()
        };
        assert!(with(256 << 10).check().is_ok());
        assert!(with(1 << 20).check().is_err());
    }
}
