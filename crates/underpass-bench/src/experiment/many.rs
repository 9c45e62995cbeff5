//! `bench many`: the memory of a server for thousands of connections, slow readers of one large
//! file or idle ones, and the latency of other requests meanwhile.
//!
//! ```text
//!  restarted ─► hot requests ─► all connect, ─► all are held, with hot requests ─► next
//!               alone,          buffers fill    memory with them
//!               memory before
//! ```

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::cold::{HOT_BYTES, HOT_CONNECTIONS, HOT_INTERVAL, hot_stream};
use super::sample::{self as read, HeldConnections, PlayMetric, PlaySample};
use super::serving::{ServerContenders, ServerSet, ServerVariant};
use super::sizes::{parse_count, parse_size, size_label};
use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::named::NamedCommand;
use crate::contender::server::ServerProcess;
use crate::document::{Case, Experiment};
use crate::error::{Error, Result};
use crate::load::{
    ClientBehavior, ConnectionLoad, ConnectionReuse, FileSet, LoadClient, OpenEnd, TestFile,
    allow_connections, give_way, targets_of,
};
use crate::machine::proc;
use crate::machine::window::observe;
use crate::rounds::interleave::Played;
use crate::rounds::metric::read_all;
use crate::stats::Spread;
use crate::tls::options::{TlsLoadOptions, TlsResumption};

/// Larger than what all buffers between a server and a slow reader hold.
const SIZE_FULL: u64 = 1 << 30;
const SIZE_QUICK: u64 = 64 << 20;

/// The time for which all connections are held.
const HOLD_FULL: Duration = Duration::from_secs(2);
const HOLD_QUICK: Duration = Duration::from_millis(100);

/// The limit for filling buffers; then all readers count as held.
const FILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The promise of our own server: a thousand readers, a file of any size.
const PROMISED_CONNECTIONS: usize = 1000;
const PROMISED_BYTES: u64 = 64 << 20;

/// The promises for each connection: idle, idle over HTTPS, a slow reader over HTTPS. With fewer
/// than a thousand, what a server needs once would count.
const IDLE_BYTES: f64 = 4096.0;
const IDLE_TLS_BYTES: f64 = 8192.0;
const READER_TLS_BYTES: f64 = 24.0 * 1024.0;
const JUDGED_CONNECTIONS: usize = 1000;

/// The promise for an idle connection over HTTPS: its share of the memory of other servers.
const IDLE_TLS_SHARE: f64 = 0.5;

/// The options of `bench many`.
#[derive(Args, Clone, Debug)]
pub struct ManyOptions {
    /// Have readers request a file of this size [default: 1 GiB, with --quick 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Hold this many connections
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = parse_count::<usize>)]
    connections: usize,
    /// Leave connections idle after a response of 1 KiB, instead of reading slowly
    #[arg(long, conflicts_with = "size")]
    idle: bool,
    #[command(flatten)]
    tls: TlsLoadOptions,
    /// Measure this server too, as in 'nginx=nginx -p {own} -c {file:nginx.conf}' (docs/bench.md)
    #[arg(long = "server", value_name = "NAME=COMMAND")]
    servers: Vec<NamedCommand>,
}

const METRICS: [PlayMetric; 8] = [
    read::RESIDENT_EACH,
    read::PEAK_RESIDENT,
    read::P99,
    read::P99_BEFORE,
    read::TCP_BUFFERS,
    read::PAGE_FAULTS,
    read::CONTEXT_SWITCHES,
    read::CPU_SHARE,
];

impl Measurable for ManyOptions {
    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let contenders = 1 + self.servers.len() as u64;
        // Besides the rounds: a warm-up, and a pass that samples memory.
        contenders * (rounds as u64 + 2) * self.weight_of_play(scale)
    }

    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        allow_connections(self.connections + HOT_CONNECTIONS)?;
        setting.runner.progress.begin("many");
        let contenders = ServerContenders {
            own: &[ServerVariant::plain()],
            others: &self.servers,
            tls: Some((&self.tls, TlsResumption::Never)),
        };
        ServerSet::run(self.describe(), contenders, (setting, None), |servers| {
            self.case(servers, setting)
        })
    }
}

impl ManyOptions {
    /// The one case; `None` if it was stopped before a round was complete.
    fn case(&self, servers: &mut ServerSet, setting: &ExperimentContext) -> Result<Option<Case>> {
        let runner = &setting.runner;
        let load = self.held_load(servers, setting)?;
        let weight = self.weight_of_play(setting.scale);
        // Peak memory never falls, so each play needs a fresh server.
        let played = runner.play(servers, weight, |servers, contender| {
            servers.restart(contender)?;
            let mut files = load.hot.iter().chain(&load.held);
            files.try_for_each(TestFile::warm)?;
            load.observe(servers.server(contender)?)
        })?;
        let Some(played) = played else {
            return Ok(None);
        };
        let mut notes = servers.notes(&played);
        notes.extend(self.judge(servers, &played));
        let (connections, hold) = (load.connections, load.hold);
        let (label, what) = match self.idle {
            false => {
                let size = size_label(load.held[0].bytes);
                ("readers", format!("slow readers of one file of {size}"))
            }
            true => ("idle", "connections that have had one response".into()),
        };
        Ok(Some(Case {
            label: format!("{connections} {label}"),
            x: connections as f64,
            load: format!(
                "{connections} {what} at once, held for {hold:?}, beside a request for {} every \
                 {HOT_INTERVAL:?}; the server is restarted for each round",
                size_label(HOT_BYTES)
            ),
            metrics: read_all(&METRICS, &played),
            notes,
            ..Case::default()
        }))
    }

    fn held_load<'a>(
        &self,
        servers: &mut ServerSet,
        setting: &ExperimentContext<'a>,
    ) -> Result<HeldLoad<'a>> {
        let scale = setting.scale;
        let hot = servers.make(FileSet {
            name: "small",
            count: 1,
            bytes: HOT_BYTES,
        })?;
        let large = FileSet {
            name: "large",
            count: 1,
            bytes: self.size.unwrap_or(scale.pick(SIZE_FULL, SIZE_QUICK)),
        };
        let (behavior, held) = match self.idle {
            false => (ClientBehavior::SlowReader, servers.make(large)?),
            true => (ClientBehavior::Idle, hot.clone()),
        };
        Ok(HeldLoad {
            hot,
            held,
            behavior,
            connections: self.connections.max(1),
            hold: scale.pick(HOLD_FULL, HOLD_QUICK),
            stop: setting.runner.stop,
        })
    }

    /// Of one contender, in milliseconds: hot requests alone, until all connections have a head,
    /// and then for as long as they are held.
    fn weight_of_play(&self, scale: RunScale) -> u64 {
        let hold = scale.pick(HOLD_FULL, HOLD_QUICK).as_millis() as u64;
        2 * hold + 100 + self.connections as u64 / 2
    }

    /// Returns notes on the promises that our own server kept or broke.
    fn judge(&self, servers: &ServerSet, played: &Played<PlaySample>) -> Vec<String> {
        let (own, samples) = (servers.name(0), &played.of(0)[..]);
        let first = match (self.idle, &self.tls.suite) {
            (false, None) => self.judge_peak(own, samples),
            (false, Some(_)) => self.judge_each(own, samples, READER_TLS_BYTES),
            (true, None) => self.judge_each(own, samples, IDLE_BYTES),
            (true, Some(_)) => self.judge_each(own, samples, IDLE_TLS_BYTES),
        };
        let others = match self.idle && self.tls.suite.is_some() {
            true => 1..played.contenders(),
            false => 0..0,
        };
        let beside = others.filter_map(|other| {
            let theirs = (servers.name(other), &played.of(other)[..]);
            self.judge_beside((own, samples), theirs)
        });
        first.into_iter().chain(beside).collect()
    }

    /// Whether our own server kept its promise for slow readers.
    fn judge_peak(&self, name: &str, samples: &[&PlaySample]) -> Option<String> {
        let peaks = samples.iter().filter_map(|one| one.peak_resident_bytes);
        let peak = peaks
            .max()
            .filter(|_| self.connections <= PROMISED_CONNECTIONS)?;
        Some(format!(
            "{name} used at most {:.1} MiB, {} ({} for {PROMISED_CONNECTIONS} connections)",
            peak as f64 / (1 << 20) as f64,
            kept(peak < PROMISED_BYTES),
            size_label(PROMISED_BYTES)
        ))
    }

    /// The same for each connection.
    fn judge_each(&self, name: &str, samples: &[&PlaySample], promised: f64) -> Option<String> {
        let most = bytes_each(samples).reduce(f64::max)?;
        let judged = self.judged(most <= promised);
        let promised = size_label(promised as u64);
        Some(format!(
            "{name} used at most {most:.0} bytes per connection, {judged} ({promised} each)"
        ))
    }

    /// Whether our own server kept the promise for idle connections compared with another one.
    fn judge_beside(
        &self,
        (name, samples): (&str, &[&PlaySample]),
        (other, others): (&str, &[&PlaySample]),
    ) -> Option<String> {
        let median = |samples| Some(Spread::of(&bytes_each(samples).collect::<Vec<_>>())?.median);
        let share = median(samples)? / median(others)?;
        let judged = self.judged(share <= IDLE_TLS_SHARE);
        Some(format!(
            "{name} used {share:.2} of what {other} used per connection, {judged} (at most \
             {IDLE_TLS_SHARE})"
        ))
    }

    /// In a debug build connections are larger.
    fn judged(&self, is_kept: bool) -> String {
        if cfg!(debug_assertions) {
            "not judged: this is a debug build".to_owned()
        } else if self.connections < JUDGED_CONNECTIONS {
            format!("not judged: that requires {JUDGED_CONNECTIONS} connections")
        } else {
            kept(is_kept).to_owned()
        }
    }

    fn describe(&self) -> Experiment {
        let connections = self.connections;
        let (variant, title, measured, reading) = match self.idle {
            false => (
                "connections",
                "slow readers of one large file",
                "Every reader requests the same large file over its own connection and then \
                 hardly reads, until all of them are in the middle of their responses.",
                "The kernel's buffers are not part of it: they are shown separately, for both \
                 ends together, and hold references to the same pages where a server uses \
                 sendfile.",
            ),
            true => (
                "idle connections",
                "idle connections",
                "Every client requests a small file over its own connection and then keeps the \
                 connection open, until all of them have had their response.",
                "Neither the kernel's buffers are part of it, nor what a server allocates before \
                 the first connection.",
            ),
        };
        Experiment {
            name: "many".into(),
            variant: format!("{connections} {variant}{}", self.tls.suffix()),
            title: format!("{connections} {title}{}", self.tls.suffix()),
            measured: format!(
                "{measured} Requests for a small file become due at a steady pace, first alone \
                 and then beside them."
            ),
            reading: format!(
                "A server's resident memory shows what it keeps for each connection. {reading}"
            ),
            ..Experiment::default()
        }
    }
}

/// Connections that are held while hot requests are sent.
struct HeldLoad<'a> {
    hot: Vec<TestFile>,
    /// The file that the held connections request.
    held: Vec<TestFile>,
    behavior: ClientBehavior,
    connections: usize,
    hold: Duration,
    stop: &'a AtomicBool,
}

impl HeldLoad<'_> {
    fn observe(&self, server: &ServerProcess) -> Result<PlaySample> {
        let latencies_before_ns = self.request_hot(server)?;
        let before_bytes = proc::resident_bytes(server.pid())?;
        let mut buffers = None;
        let look = || {
            buffers = buffers.max(proc::tcp_buffer_bytes());
            Ok(())
        };
        let ((bytes, latencies_ns), window) =
            observe(server.pid(), || self.hold_all(server, look))?;
        Ok(PlaySample {
            latencies_ns,
            peak_resident_bytes: Some(proc::peak_resident_bytes(server.pid())?),
            tcp_buffer_bytes: buffers,
            held: Some(HeldConnections {
                connections: self.connections as u64,
                before_bytes,
                bytes,
                latencies_before_ns,
            }),
            ..PlaySample::of(window, self.connections as u64, 0)
        })
    }

    /// Holds all connections while hot requests are sent. Returns the server's resident memory with
    /// all of them, and the latencies of the requests.
    fn hold_all(
        &self,
        server: &ServerProcess,
        mut look: impl FnMut() -> Result<()> + Send,
    ) -> Result<(u64, Vec<u64>)> {
        let (address, stop) = (server.address(), self.stop);
        let target = self.held[0].target(address.socket, ConnectionReuse::KeepAlive);
        let mut load = ConnectionLoad::open(address, &target, self.connections, self.behavior)?;
        load.settle(stop, &mut look)?;
        load.hold(stop, &mut look, are_buffers_full())?;
        let resident_bytes = proc::resident_bytes(server.pid())?;
        let is_over = AtomicBool::new(false);
        let latencies = thread::scope(|scope| {
            let held = scope.spawn(|| {
                give_way();
                load.hold(stop, &mut look, || is_over.load(Ordering::Relaxed))
            });
            let latencies = self.request_hot(server);
            is_over.store(true, Ordering::Relaxed);
            let panicked = |_| Err(Error::Answer("the held connections broke off".into()));
            held.join().unwrap_or_else(panicked).and(latencies)
        })?;
        Ok((resident_bytes, latencies))
    }

    /// The latencies of requests for a small file, in ascending order.
    fn request_hot(&self, server: &ServerProcess) -> Result<Vec<u64>> {
        let targets = targets_of(
            &self.hot,
            server.address().socket,
            ConnectionReuse::KeepAlive,
        );
        let stream = hot_stream(&targets, OpenEnd::After(self.hold));
        let mut latencies = LoadClient::connect(server.address(), stream)?
            .run(self.stop)?
            .latencies_ns;
        latencies.sort_unstable();
        Ok(latencies)
    }
}

/// Whether buffers have stopped growing since the last look: while a server fills them, its readers
/// don't hold it up yet, and its progress depends on the order in which it responds.
fn are_buffers_full() -> impl Fn() -> bool {
    let start = Instant::now();
    let before = Cell::new(0);
    move || {
        let now = proc::tcp_buffer_bytes().unwrap_or(0);
        let before = before.replace(now);
        now <= before + before / 100 || start.elapsed() > FILL_TIMEOUT
    }
}

/// Resident memory per connection in each round, in bytes.
fn bytes_each(samples: &[&PlaySample]) -> impl Iterator<Item = f64> {
    let held = samples.iter().filter_map(|sample| sample.held.as_ref());
    held.map(HeldConnections::bytes_each)
}

fn kept(is_kept: bool) -> &'static str {
    match is_kept {
        true => "as promised",
        false => "which breaks the promise",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::window::tests::window;
    use crate::tls::options::CertificateKey;

    fn sample(bytes_each: u64) -> PlaySample {
        PlaySample {
            held: Some(HeldConnections {
                connections: 9000,
                before_bytes: 1 << 20,
                bytes: (1 << 20) + 9000 * bytes_each,
                latencies_before_ns: Vec::new(),
            }),
            ..PlaySample::of(window(1.0, 1.0, 0.0, 0.0), 9000, 0)
        }
    }

    #[test]
    fn idle_connections_are_judged_by_themselves_and_beside_others() {
        let options = ManyOptions {
            size: None,
            connections: 200,
            idle: true,
            tls: TlsLoadOptions {
                suite: Some("TLS_AES_128_GCM_SHA256".into()),
                key: CertificateKey::P256,
            },
            servers: Vec::new(),
        };
        let (ours, theirs) = ([6000, 5000, 5500].map(sample), [11_000, 10_000].map(sample));
        let (ours, theirs): (Vec<_>, Vec<_>) = (ours.iter().collect(), theirs.iter().collect());
        let each = options.judge_each("we", &ours, IDLE_TLS_BYTES);
        let each = each.expect("figures");
        assert!(each.starts_with("we used at most 6000 bytes"), "{each}");
        assert!(each.ends_with("(8 KiB each)"), "{each}");
        let beside = options.judge_beside(("we", &ours), ("they", &theirs));
        let beside = beside.expect("figures");
        assert!(
            beside.starts_with("we used 0.52 of what they used"),
            "{beside}"
        );
        assert_eq!(options.judge_beside(("we", &ours), ("they", &[])), None);
    }

    #[test]
    fn few_connections_and_debug_builds_are_not_judged() {
        let options = ManyOptions {
            size: None,
            connections: 999,
            idle: false,
            tls: TlsLoadOptions {
                suite: None,
                key: CertificateKey::P256,
            },
            servers: Vec::new(),
        };
        assert!(options.judged(true).starts_with("not judged"));
    }
}
