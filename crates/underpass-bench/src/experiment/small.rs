//! `bench small`: up to which size one write of head and body beats a head followed by sendfile.

use std::time::Duration;

use clap::Args;

use super::closed::{ClosedCase, ClosedLoad, ExtraPasses};
use super::sample::{self as read, PlayMetric};
use super::serving::{ServerContenders, ServerSet, ServerVariant};
use super::sizes::{parse_count, parse_size, size_label, sizes_of_cases};
use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::named::NamedCommand;
use crate::document::{Axis, Case, Experiment, Unit};
use crate::error::{Error, Result};
use crate::load::{ConnectionReuse, Quota, allow_connections};
use crate::stats::{RatioEstimate, RatioVerdict};

/// Sizes of bodies around the crossover, in KiB.
const CROSSOVER_KIB: &[u64] = &[1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256];
const CROSSOVER_KIB_QUICK: &[u64] = &[1, 8, 16, 64, 256];

/// How many files of each size are requested in turn.
const FILES: usize = 64;

/// For how long connections begin requests in a round.
const SPAN_FULL: Duration = Duration::from_millis(450);
const SPAN_QUICK: Duration = Duration::from_millis(50);

/// The time around a round: opening connections, waiting until the server is settled.
const AROUND_MS: u64 = 50;

/// The maximum of `serve --join`, in bytes, and the part of it that is left for a body.
const JOIN_MAX: u64 = 1 << 20;
const JOINED_BODY_MAX: u64 = JOIN_MAX - (4 << 10);

/// What to request.
#[derive(Args, Clone, Debug)]
pub struct SmallOptions {
    /// Request bodies of these sizes, such as 1KiB,64KiB [default: 1 to 256 KiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<u64>,
    /// Keep this many connections open at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = parse_count::<usize>)]
    connections: usize,
    /// Measure this server too, as in 'nginx=nginx -p {own} -c {file:nginx.conf}' (docs/bench.md)
    #[arg(long = "server", value_name = "NAME=COMMAND")]
    servers: Vec<NamedCommand>,
}

const METRICS: [PlayMetric; 6] = [
    read::REQUESTS_PER_CPU,
    read::REQUESTS,
    read::CPU_PER_GIB,
    read::CPU_SHARE,
    read::P50,
    read::P99,
];

impl Measurable for SmallOptions {
    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let contenders = 2 + self.servers.len() as u64;
        // Besides the rounds: a warm-up for each size, and one pass under strace.
        let plays = self.sizes(scale).len() as u64 * (rounds as u64 + 1) + 1;
        plays * contenders * weight_of_play(scale)
    }

    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        self.check()?;
        allow_connections(self.connections)?;
        let variants = [
            ServerVariant::new("one write", &["--join", &JOIN_MAX.to_string()]),
            ServerVariant::new("head, then sendfile", &["--join", "0"]),
        ];
        let scale = setting.scale;
        let load = ClosedLoad {
            name: "small",
            files: FILES,
            connections: self.connections,
            reuse: ConnectionReuse::KeepAlive,
            quota: Quota::Span(scale.pick(SPAN_FULL, SPAN_QUICK)),
        };
        let case_of = |(index, bytes)| ClosedCase {
            bytes,
            metrics: METRICS.iter().collect(),
            // The calls of the two ways differ in the same manner at every size.
            extra: match index {
                0 => ExtraPasses::SystemCalls,
                _ => ExtraPasses::Nothing,
            },
            weight: weight_of_play(scale),
        };
        let cases = self.sizes(scale).into_iter().enumerate().map(case_of);
        let contenders = ServerContenders {
            own: &variants,
            others: &self.servers,
            tls: None,
        };
        let measured = ServerSet::run(self.describe(), contenders, (setting, None), |servers| {
            load.cases(cases, servers, &setting.runner)
        });
        let mut experiments = measured?;
        for experiment in &mut experiments {
            let findings = findings(&experiment.cases);
            experiment.notes.extend(crossover(&findings));
        }
        Ok(experiments)
    }
}

/// Of one contender, in milliseconds.
fn weight_of_play(scale: RunScale) -> u64 {
    AROUND_MS + scale.pick(SPAN_FULL, SPAN_QUICK).as_millis() as u64
}

impl SmallOptions {
    fn check(&self) -> Result<()> {
        match self.sizes.iter().find(|&&size| size > JOINED_BODY_MAX) {
            None => Ok(()),
            Some(size) => Err(Error::Setting(format!(
                "a body of {} is never sent in one write; the maximum is {JOINED_BODY_MAX} bytes",
                size_label(*size),
            ))),
        }
    }

    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        let usual = scale.pick(CROSSOVER_KIB, CROSSOVER_KIB_QUICK).iter();
        sizes_of_cases(&self.sizes, &usual.map(|kib| kib << 10).collect::<Vec<_>>())
    }

    fn describe(&self) -> Experiment {
        Experiment {
            name: "small".into(),
            variant: format!("{} connections", self.connections),
            title: "Small bodies: one write, or a head and a sendfile".into(),
            measured: "The same server responds in two ways: with head and body in one write, for \
                       which it reads the body (`serve --join` larger than all), and with the \
                       head followed by sendfile (`--join 0`). Requests come over persistent \
                       connections for files in the page cache."
                .into(),
            reading: "Copying a small body costs less than another call. The size at which the \
                      lines cross is the best value of `serve --join` on this machine, head \
                      included."
                .into(),
            axis: Axis {
                label: "body size".into(),
                unit: Unit::Bytes,
            },
            ..Experiment::default()
        }
    }
}

/// How one write compares with the other way at some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Wins,
    Loses,
    /// The difference is within the spread.
    Nothing,
    TooFewRounds,
}

impl Finding {
    /// From a comparison of figures of which higher ones are better.
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

/// At which sizes one write wins, at which it loses, and at which the difference is not known.
fn crossover(findings: &[(u64, Finding)]) -> Option<String> {
    findings.first()?;
    let sizes = |wanted: Finding| {
        let found = findings.iter().filter(|(_, finding)| *finding == wanted);
        let labels: Vec<String> = found.map(|&(size, _)| size_label(size)).collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    };
    if sizes(Finding::TooFewRounds).is_some() {
        return Some("too few rounds to show where one write wins; see --rounds".into());
    }
    let at = |wanted| sizes(wanted).unwrap_or_else(|| "none of these sizes".to_owned());
    let line = format!(
        "one write wins at {}; it loses at {}",
        at(Finding::Wins),
        at(Finding::Loses)
    );
    Some(match sizes(Finding::Nothing) {
        None => line,
        Some(undecided) => format!("{line}; at {undecided} there is no distinguishable difference"),
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
    fn every_size_is_listed_once() {
        let mixed = [
            (1, Wins),
            (16, Wins),
            (24, Nothing),
            (48, Loses),
            (64, Loses),
        ];
        assert_eq!(
            said(&mixed),
            "one write wins at 1 KiB, 16 KiB; it loses at 48 KiB, 64 KiB; at 24 KiB there is no \
             distinguishable difference"
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
    fn a_body_that_is_never_sent_in_one_write_is_rejected() {
        let with = |size| SmallOptions {
            sizes: vec![size],
            connections: 1,
            servers: Vec::new(),
        };
        assert!(with(256 << 10).check().is_ok());
        assert!(with(1 << 20).check().is_err());
    }
}
