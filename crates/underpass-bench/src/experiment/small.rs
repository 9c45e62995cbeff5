//! `bench small`: up to which size one write of head and body beats a head followed by sendfile.

use std::time::Duration;

use clap::Args;

use super::closed::{ClosedCase, ClosedLoad, ExtraPasses};
use super::sample::{self as read, PlayMetric};
use super::serving::{ServerContenders, ServerSet, ServerVariant};
use super::sizes::{parse_count, parse_size, size_label, sizes_of_cases};
use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::named::NamedCommand;
use crate::document::{Axis, Experiment, Unit};
use crate::error::{Error, Result};
use crate::load::{ConnectionReuse, Quota, allow_connections};

/// Sizes of bodies around the crossover, in KiB.
const CROSSOVER_KIB: &[u64] = &[1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256];
const CROSSOVER_KIB_QUICK: &[u64] = &[1, 8, 16, 64, 256];

/// Number of files of each size, requested in turn.
const FILES: usize = 64;

/// For how long connections begin requests in a round.
const SPAN_FULL: Duration = Duration::from_millis(450);
const SPAN_QUICK: Duration = Duration::from_millis(50);

/// The time around a round: opening connections, waiting until the server is settled.
const AROUND_MS: u64 = 50;

/// The maximum of `serve --join`, in bytes, and the part of it that is left for a body.
const JOIN_MAX: u64 = 1 << 20;
const JOINED_BODY_MAX: u64 = JOIN_MAX - (4 << 10);

/// The options of `bench small`.
#[derive(Args, Clone, Debug)]
pub struct SmallOptions {
    /// Request bodies of these sizes, such as 1KiB,64KiB [default: 1 to 256 KiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<u64>,
    /// Keep this many connections open
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
        ServerSet::run(self.describe(), contenders, (setting, None), |servers| {
            load.cases(cases, servers, &setting.runner)
        })
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

#[cfg(test)]
mod tests {
    use super::*;

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
