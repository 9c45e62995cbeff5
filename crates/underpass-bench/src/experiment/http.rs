//! `bench http`: connections that request files again and again, from one server after the other.

use std::time::Duration;

use clap::Args;
use underpass::Mechanism;
use underpass::kernel_tls::probe_sending;

use super::closed::{ClosedCase, ClosedLoad, ExtraPasses};
use super::sample::{self as read, PlayMetric};
use super::serving::{ServerContenders, ServerSet, ServerVariant};
use super::sizes::{parse_count, parse_size, sizes_of_cases};
use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::named::NamedCommand;
use crate::contender::worker_process::WorkerProcess;
use crate::document::{Axis, Case, Experiment, Unit};
use crate::error::Result;
use crate::load::{ConnectionReuse, Quota, allow_connections};
use crate::machine::network::USUAL_CONTROLS;
use crate::stats::Spread;
use crate::tls::options::{TlsLoadOptions, TlsResumption};
use crate::tls::sealing_seconds_per_gib;

/// The usual file size, in bytes.
const SIZE_FULL: u64 = 300_000_000;
const SIZE_QUICK: u64 = 20_000_000;

/// For how long connections begin requests in a round.
const SPAN_FULL: Duration = Duration::from_millis(1500);
const SPAN_QUICK: Duration = Duration::from_millis(120);

/// Below this a request costs more than its body.
const LARGE: u64 = 1 << 20;

/// The promise of our own server over HTTPS: its cost divided by that of plain HTTP and encryption.
const PROMISED_OVERHEAD: f64 = 1.15;

/// About what two processors move over a loopback in a millisecond, in bytes.
const MOVED_IN_A_MILLISECOND: u64 = 2_000_000;

/// The options of `bench http`.
#[derive(Args, Clone, Debug)]
pub struct HttpOptions {
    /// Request files of these sizes, such as 300MB,1KiB [default: 300 MB]
    #[arg(long, alias = "size", value_name = "SIZE,…", value_delimiter = ',',
          value_parser = parse_size)]
    sizes: Vec<u64>,
    /// Request this many different files of each size in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count::<usize>)]
    files: usize,
    /// Keep this many connections open
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = parse_count::<usize>)]
    connections: usize,
    /// Open a new connection for each request and have the server close it
    #[arg(long)]
    reconnect: bool,
    /// Resume a session with each new connection, instead of a full handshake
    #[arg(long, requires_all = ["reconnect", "suite"])]
    resume: bool,
    #[command(flatten)]
    tls: TlsLoadOptions,
    /// Lead a separate loopback over another path, as in '40 ms=path 40 100' (docs/bench.md)
    #[arg(long, value_name = "NAME=COMMAND")]
    path: Option<NamedCommand>,
    /// Send this many requests in each round [default: those that begin within about a second]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    requests: Option<u64>,
    /// Measure our server also with each of these mechanisms alone; `none` measures it once
    #[arg(long, value_name = "MECHANISM,…", value_delimiter = ',',
          default_values = ["sendfile", "read_write"], value_parser = mechanism_or_none)]
    only: Vec<Option<Mechanism>>,
    /// Measure this server too, as in 'nginx=nginx -p {own} -c {file:nginx.conf}' (docs/bench.md)
    #[arg(long = "server", value_name = "NAME=COMMAND")]
    servers: Vec<NamedCommand>,
}

fn mechanism_or_none(text: &str) -> Result<Option<Mechanism>, String> {
    match text {
        "none" => Ok(None),
        name => name.parse().map(Some).map_err(|_| {
            let known = Mechanism::ALL.map(Mechanism::name).join(", ");
            format!("unknown mechanism; expected none or one of {known}")
        }),
    }
}

const METRICS_LARGE: [PlayMetric; 3] = [read::CPU_PER_GIB, read::THROUGHPUT, read::REQUESTS];
const METRICS_FAR: [PlayMetric; 3] = [read::P50, read::HEAD, read::CPU_PER_GIB];

const METRICS_SMALL: [PlayMetric; 4] = [
    read::REQUESTS_PER_CPU,
    read::REQUESTS,
    read::CPU_PER_GIB,
    read::THROUGHPUT,
];

/// The metrics of files of any size.
const METRICS_FURTHER: [PlayMetric; 9] = [
    read::CPU_SHARE,
    read::HEAD,
    read::P50,
    read::P90,
    read::P99,
    read::WORST,
    read::PEAK_RESIDENT,
    read::PAGE_FAULTS,
    read::CONTEXT_SWITCHES,
];

impl Measurable for HttpOptions {
    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let own = 1 + self.only().count() + usize::from(self.kernel_tls(scale).is_some());
        let contenders = (own + self.servers.len()) as u64;
        // Besides the rounds: the warm-up, and the passes for memory, mechanisms and strace.
        let plays = rounds as u64 + 4;
        let sizes = self.sizes(scale).into_iter();
        let of_all = sizes.map(|size| self.weight_of(size, scale) * contenders * plays);
        of_all.sum()
    }

    fn usual_controls(&self, _: RunScale) -> Option<&'static [&'static str]> {
        Some(&USUAL_CONTROLS)
    }

    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        allow_connections(self.connections)?;
        let only = self.only().map(ServerVariant::only);
        let only = only.map(|variant| match &self.tls.suite {
            None => variant,
            Some(_) => variant.over_plain_http(),
        });
        let scale = setting.scale;
        let kernel = self.kernel_tls(scale);
        let variants = [ServerVariant::plain()].into_iter().chain(kernel);
        let variants: Vec<_> = variants.chain(only).collect();
        let load = ClosedLoad {
            name: "http",
            files: self.files,
            connections: self.connections,
            reuse: self.reuse(),
            quota: Quota::of(self.requests, scale.pick(SPAN_FULL, SPAN_QUICK)),
        };
        let sizes = self.sizes(scale).into_iter();
        let cases = sizes.map(|bytes| self.case(bytes, scale));
        let resumption = match self.resume {
            true => TlsResumption::Tickets,
            false => TlsResumption::Never,
        };
        let contenders = ServerContenders {
            own: &variants,
            others: &self.servers,
            tls: Some((&self.tls, resumption)),
        };
        let mut path = self.path.as_ref().map(|path| path.command(&[]));
        let path = path.as_mut();
        let path = path.map(|path| WorkerProcess::start(path, None, setting.runner.stop));
        let path = path.transpose()?;
        let measured = ServerSet::run(self.describe(), contenders, (setting, None), |servers| {
            let mut cases = load.cases(cases, servers, &setting.runner)?;
            for case in &mut cases {
                let note = self.note_of_sealing(case, &variants);
                case.notes.extend(note);
            }
            Ok(cases)
        });
        let led_to_the_end = path.map_or(Ok(()), WorkerProcess::end);
        measured.and_then(|measured| led_to_the_end.map(|()| measured))
    }
}

impl HttpOptions {
    fn only(&self) -> impl Iterator<Item = Mechanism> {
        self.only.iter().copied().flatten()
    }

    /// Our server whose bodies the kernel encrypts, where it can and they are worth it.
    fn kernel_tls(&self, scale: RunScale) -> Option<ServerVariant> {
        let suite = self.tls.kernel_suite()?;
        let is_worth = self.sizes(scale).iter().all(|size| *size >= LARGE);
        let is_known = || probe_sending().is_ok_and(|support| support.suites.contains(&suite));
        if !is_worth || !is_known() {
            return None;
        }
        let suites = format!("tls.cipher-suites=[{:?}]", self.tls.suite.as_ref()?);
        let offload = ["--set", "tls.offload=require", "--set", &suites];
        Some(ServerVariant::new("underpass, kernel TLS", &offload))
    }

    /// The cost of a large file over HTTPS compared with plain HTTP by `read_write` and encryption
    /// of as many bytes; `None` if one of them was not measured.
    fn note_of_sealing(&self, case: &Case, own: &[ServerVariant]) -> Option<String> {
        let (_, cipher) = self.tls.kernel_suite().filter(|_| case.x >= LARGE as f64)?;
        let plain = ServerVariant::only(Mechanism::ReadWrite).over_plain_http();
        let plain = own.iter().position(|variant| variant.name == plain.name)?;
        let mut metrics = case.metrics.iter();
        let metric = metrics.find(|one| one.metric == read::CPU_PER_GIB.name)?;
        let rounds = |place: usize| Some(&metric.figures.get(place)?.as_ref()?.rounds[..]);
        let rounds = [rounds(0)?, rounds(plain)?];
        note_of_sealing(rounds, sealing_seconds_per_gib(cipher)?)
    }

    /// The most important metrics for files of that size come first.
    fn case(&self, bytes: u64, scale: RunScale) -> ClosedCase {
        let (first, further, extra): (&[_], &[_], _) = match (&self.path, bytes) {
            (Some(_), _) => (&METRICS_FAR, &[], ExtraPasses::Nothing),
            (_, LARGE..) => (&METRICS_LARGE, &METRICS_FURTHER, ExtraPasses::All),
            _ => (&METRICS_SMALL, &METRICS_FURTHER, ExtraPasses::All),
        };
        ClosedCase {
            bytes,
            metrics: first.iter().chain(further).collect(),
            extra,
            weight: self.weight_of(bytes, scale),
        }
    }

    fn reuse(&self) -> ConnectionReuse {
        match self.reconnect {
            true => ConnectionReuse::PerRequest,
            false => ConnectionReuse::KeepAlive,
        }
    }

    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        sizes_of_cases(&self.sizes, &[scale.pick(SIZE_FULL, SIZE_QUICK)])
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

    fn describe(&self) -> Experiment {
        let (connections, then) = match self.reconnect {
            false => (self.connections.to_string(), "and sends the next request"),
            true => (
                format!("{} new", self.connections),
                "to the end of the connection, and is replaced by a new one",
            ),
        };
        let mut variant = match self.files {
            1 => format!("{connections} connections"),
            files => format!("{connections} connections, {files} files"),
        };
        variant += &self.tls.suffix();
        if self.resume {
            variant += ", resumed";
        }
        let path = self.path.as_ref();
        let over = path.map_or(String::new(), |path| format!(" over {}", path.name));
        variant += &over;
        Experiment {
            name: "http".into(),
            variant,
            title: format!("Files over HTTP to {connections} connections{over}"),
            measured: format!(
                "Every connection requests a file, receives the whole response {then}. A server \
                 has one processor, the client another. Bodies were compared by hash beforehand \
                 and are counted to their last byte while measuring."
            ),
            reading: "Processor time is what the server costs and does not depend on how fast the \
                      client is; throughput and response times do. The difference between the \
                      same server with sendfile and with read_write is that between handing \
                      pages to the socket and copying them through a buffer."
                .into(),
            axis: Axis {
                label: match self.sizes.len() {
                    0 | 1 => String::new(),
                    _ => "file size".into(),
                },
                unit: Unit::Bytes,
            },
            ..Experiment::default()
        }
    }
}

/// From the seconds of each round, encrypted and plain, and those of encryption alone.
fn note_of_sealing([encrypted, plain]: [&[f64]; 2], sealing: f64) -> Option<String> {
    let pairs = encrypted.iter().zip(plain);
    let shares: Vec<_> = pairs.map(|(tls, plain)| tls / (plain + sealing)).collect();
    let [tls, plain] = [encrypted, plain].map(|rounds| Some(Spread::of(rounds)?.median));
    let (tls, plain, share) = (tls?, plain?, Spread::of(&shares)?.median);
    let judged = match (cfg!(debug_assertions), share <= PROMISED_OVERHEAD) {
        (true, _) => "not judged: this is a debug build",
        (_, true) => "as promised",
        (_, false) => "which breaks the promise",
    };
    Some(format!(
        "encryption alone takes {sealing:.3} s per GiB, plain HTTP by read_write {plain:.3} s: \
         {tls:.3} s are {share:.2} of their sum, {judged} (at most {PROMISED_OVERHEAD})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_encryption_costs_is_compared_within_rounds() {
        let note = note_of_sealing([&[0.44, 0.66, 0.55], &[0.3, 0.5, 0.4]], 0.1).unwrap();
        let expected = "encryption alone takes 0.100 s per GiB, plain HTTP by read_write 0.400 s: \
                        0.550 s are 1.10 of their sum";
        assert!(note.starts_with(expected), "{note}");
        assert_eq!(note_of_sealing([&[], &[]], 0.1), None);
    }
}
