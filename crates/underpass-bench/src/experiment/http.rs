//! `bench http`: connections that ask for files again and again, from one server after the other.

use std::time::Duration;

use underpass::Mechanism;

use super::closed::LoadSettings;
use super::observation::{self as read, ServerSample};
use super::serving::{ServerSet, ServerVariant};
use super::{ExperimentContext, RunScale, sizes_of_cases};
use crate::contender::named::NamedCommand;
use crate::document::{Axis, Experiment, Unit};
use crate::error::Result;
use crate::load::{ConnectionReuse, Quota, WaitMode, allow_connections};
use crate::rounds::run::{MetricReader, RoundRunner};

/// What is asked for, if nobody says otherwise, in bytes.
const SIZE_FULL: u64 = 300_000_000;
const SIZE_QUICK: u64 = 20_000_000;

/// For how long connections go on asking in a round. What is under way then is still taken.
const SPAN_FULL: Duration = Duration::from_millis(1500);
const SPAN_QUICK: Duration = Duration::from_millis(120);

/// Below this a request costs more than its body.
const LARGE: u64 = 1 << 20;

/// About what two processors move over a loopback in a millisecond, in bytes.
const MOVED_IN_A_MILLISECOND: u64 = 2_000_000;

/// What to ask for.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Servers beside our own.
    pub servers: Vec<NamedCommand>,
    /// Mechanisms that our server is also measured with when it may use no other.
    pub only: Vec<Mechanism>,
    /// Sizes of the files in bytes, a case each; one of 300 MB if empty, of 20 MB in a hurry.
    pub sizes: Vec<u64>,
    /// How many files of each size, asked for in turns.
    pub files: usize,
    /// Connections open at once, each asking again when its answer is complete.
    pub connections: usize,
    /// What becomes of a connection after an answer.
    pub connection: ConnectionReuse,
    /// Requests of a round, all connections together; as many as begin in a while if none.
    pub requests: Option<u64>,
    /// What the client does while no answer is there.
    pub waiting: WaitMode,
}

impl Default for HttpOptions {
    /// 30 connections and one file: our server as it is, and by splice or read/write only.
    fn default() -> HttpOptions {
        HttpOptions {
            servers: Vec::new(),
            only: vec![Mechanism::Splice, Mechanism::ReadWrite],
            sizes: Vec::new(),
            files: 1,
            connections: 30,
            connection: ConnectionReuse::KeepAlive,
            requests: None,
            waiting: WaitMode::default(),
        }
    }
}

/// What tells most about large files.
const METRICS_LARGE: [MetricReader<ServerSample>; 3] =
    [read::CPU_PER_GIB, read::THROUGHPUT, read::REQUESTS];

/// The same for small ones.
const METRICS_SMALL: [MetricReader<ServerSample>; 4] = [
    read::REQUESTS_PER_CPU,
    read::REQUESTS,
    read::CPU_PER_GIB,
    read::THROUGHPUT,
];

/// What tells of any.
const METRICS_FURTHER: [MetricReader<ServerSample>; 8] = [
    read::CPU_SHARE,
    read::P50,
    read::P90,
    read::P99,
    read::WORST,
    read::PEAK_RESIDENT,
    read::PAGE_FAULTS,
    read::CONTEXT_SWITCHES,
];

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &HttpOptions, scale: RunScale, rounds: usize) -> u64 {
    let contenders = (1 + options.only.len() + options.servers.len()) as u64;
    // Beside the rounds: a warm-up, one for memory, one for how bodies travel, one under strace.
    let plays = rounds as u64 + 4;
    let sizes = options.sizes(scale).into_iter();
    let of_all = sizes.map(|size| options.weight_of(size, scale) * contenders * plays);
    of_all.sum()
}

/// Asks all servers for files of each size.
pub(crate) fn run(
    options: &HttpOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    allow_connections(options.connections)?;
    let variants = ServerVariant::of_mechanisms(&options.only);
    let mut bench = ServerSet::start("http", &variants, &options.servers, ground, None)?;
    let mut experiment = options.describe(&bench, run.rounds);
    experiment.notes.extend(bench.left_out());
    let played = play_all(options, &mut bench, &mut experiment, ground, run);
    bench.finish_after(played)?;
    Ok(vec![experiment])
}

fn play_all(
    options: &HttpOptions,
    bench: &mut ServerSet,
    experiment: &mut Experiment,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<()> {
    for size in options.sizes(ground.scale) {
        if run.is_stopped() {
            break;
        }
        let mut closed = options.load(ground.scale).of_size(size, bench, run)?;
        let weight = options.weight_of(size, ground.scale);
        let case = closed.case(metrics(size), weight, run)?;
        let Some(mut case) = case else { break };
        closed.add_timelines(&mut case, weight, run)?;
        closed.add_travelled(&mut case, weight, run)?;
        closed.add_calls(&mut case, weight, run)?;
        experiment.cases.push(case);
    }
    Ok(())
}

/// What tells most about files of that size comes first.
fn metrics(size: u64) -> impl Iterator<Item = &'static MetricReader<ServerSample>> {
    let first: &[_] = match size {
        LARGE.. => &METRICS_LARGE,
        _ => &METRICS_SMALL,
    };
    first.iter().chain(&METRICS_FURTHER)
}

impl HttpOptions {
    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        sizes_of_cases(&self.sizes, &[scale.pick(SIZE_FULL, SIZE_QUICK)])
    }

    fn load(&self, scale: RunScale) -> LoadSettings {
        LoadSettings {
            name: "http",
            files: self.files,
            connections: self.connections,
            connection: self.connection,
            quota: Quota::of(self.requests, scale.pick(SPAN_FULL, SPAN_QUICK)),
            waiting: self.waiting,
        }
    }

    /// Of one round of one contender, in milliseconds.
    fn weight_of(&self, size: u64, scale: RunScale) -> u64 {
        let span = scale.pick(SPAN_FULL, SPAN_QUICK).as_millis() as u64;
        let one_each = self.connections as u64 * size / MOVED_IN_A_MILLISECOND;
        match self.requests {
            Some(requests) => 60 + requests / 20 + requests * size / MOVED_IN_A_MILLISECOND,
            None => 60 + span.max(one_each),
        }
    }

    fn describe(&self, bench: &ServerSet, rounds: usize) -> Experiment {
        let connections = match self.connection {
            ConnectionReuse::KeepAlive => self.connections.to_string(),
            ConnectionReuse::PerRequest => format!("{} new", self.connections),
        };
        let variant = match self.files {
            0 | 1 => format!("{connections} connections"),
            files => format!("{connections} connections, {files} files"),
        };
        Experiment {
            name: "http".into(),
            variant,
            title: format!("Files over HTTP to {connections} connections"),
            measured: format!(
                "Every connection asks for a file, takes the whole answer {}. A server has one \
                 processor, the client another. Bodies were compared by hash beforehand and \
                 counted to their last byte while measuring.",
                match self.connection {
                    ConnectionReuse::KeepAlive => "and asks again",
                    ConnectionReuse::PerRequest =>
                        "to the end of the connection, and opens the next one",
                }
            ),
            reading: "Processor time is what the server costs and does not depend on how fast the \
                      client is; throughput and times of answers do. The same server by sendfile \
                      and by read_write is the difference between handing pages to the socket \
                      and copying them through a buffer."
                .into(),
            axis: Axis {
                label: match self.sizes.len() {
                    0 | 1 => String::new(),
                    _ => "file size".into(),
                },
                unit: Unit::Bytes,
            },
            rounds,
            contenders: bench.contenders(),
            ..Experiment::default()
        }
    }
}
