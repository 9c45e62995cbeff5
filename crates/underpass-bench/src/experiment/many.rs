//! `bench many`: what a server needs for thousands of connections, slow readers of one large file
//! or idle ones, and what others notice of them.
//!
//! ```text
//!  started anew ─► hot requests ─► all connect, ─► all are held, beside hot requests ─► next
//!                  alone,          buffers fill    memory with them
//!                  memory before
//! ```

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use underpass::Mechanism;

use super::observation::{
    self as read, FileResidency, HeldConnections, ServerSample, latencies, targets_of,
};
use super::serving::{ServerSet, ServerVariant, WATCHED};
use super::{ExperimentContext, RunScale, size_label};
use crate::contender::named::NamedCommand;
use crate::contender::server::ServerProcess;
use crate::document::{Case, Experiment, Timeline};
use crate::error::{Error, Result};
use crate::load::{
    ClientBehavior, ConnectionLoad, ConnectionReuse, FileSet, LoadClient, LoadPace, LoadStream,
    RequestTarget, TestFile, WaitMode, allow_connections,
};
use crate::machine::proc;
use crate::machine::window::observe;
use crate::rounds::interleave::Played;
use crate::rounds::run::{MetricReader, RoundRunner, Workload, read_off};

/// Larger than what all buffers between a server and a slow reader hold.
const SIZE_FULL: u64 = 1 << 30;
const SIZE_QUICK: u64 = 64 << 20;

/// How long all readers are in the middle of their answers at once.
const HOLD_FULL: Duration = Duration::from_secs(2);
const HOLD_QUICK: Duration = Duration::from_millis(100);

/// How long buffers may fill before all are taken to be held.
const FILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests beside those that are held: enough for a 99th percentile, few enough that an unhindered
/// server has no queue.
const HOT_INTERVAL: Duration = Duration::from_micros(500);
const HOT_BYTES: u64 = 1 << 10;
const HOT_CONNECTIONS: usize = 16;

/// The promise of our own server: a thousand readers, a file of any size.
const PROMISED_CONNECTIONS: usize = 1000;
const PROMISED_BYTES: u64 = 64 << 20;

/// And for each idle connection; so many at least, or what a server needs once would count.
const PROMISED_BYTES_EACH: f64 = 4096.0;
const JUDGED_CONNECTIONS: usize = 1000;

/// What to ask for.
#[derive(Clone, Debug)]
pub struct ManyOptions {
    /// Servers beside our own.
    pub servers: Vec<NamedCommand>,
    /// Mechanisms that our server is also measured with when it may use no other.
    pub only: Vec<Mechanism>,
    /// Size of the file in bytes; 1 GiB if none, 64 MiB in a hurry.
    pub size: Option<u64>,
    /// Connections at once.
    pub connections: usize,
    /// What they do.
    pub pastime: ClientBehavior,
}

impl Default for ManyOptions {
    /// A thousand readers, our server as it is.
    fn default() -> ManyOptions {
        ManyOptions {
            servers: Vec::new(),
            only: Vec::new(),
            size: None,
            connections: PROMISED_CONNECTIONS,
            pastime: ClientBehavior::SlowReader,
        }
    }
}

const METRICS: [MetricReader<ServerSample>; 8] = [
    read::PEAK_RESIDENT,
    read::RESIDENT_EACH,
    read::P99,
    read::P99_BEFORE,
    read::TCP_BUFFERS,
    read::PAGE_FAULTS,
    read::CONTEXT_SWITCHES,
    read::CPU_SHARE,
];

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &ManyOptions, scale: RunScale, rounds: usize) -> u64 {
    let contenders = (1 + options.only.len() + options.servers.len()) as u64;
    // Beside the rounds a warm-up, and one for looking at memory.
    contenders * (rounds as u64 + 2) * options.weight_of_play(scale)
}

/// Lets readers at all servers in turns, each started anew for it.
pub(crate) fn run(
    options: &ManyOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    allow_connections(options.connections + HOT_CONNECTIONS)?;
    run.progress.begin("many");
    let variants = ServerVariant::of_mechanisms(&options.only);
    let mut bench = ServerSet::start("many", &variants, &options.servers, ground, None)?;
    let mut experiment = options.describe(&bench, run.rounds);
    experiment.notes.extend(bench.left_out());
    let played = play(options, &mut bench, ground, run);
    experiment.cases.extend(bench.finish_after(played)?);
    Ok(vec![experiment])
}

/// The one case; nothing if it was stopped before a round was complete.
fn play(
    options: &ManyOptions,
    bench: &mut ServerSet,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Option<Case>> {
    let batch = FileSet {
        name: "large",
        count: 1,
        bytes: options.size(ground.scale),
    };
    let small = FileSet {
        name: "small",
        count: 1,
        bytes: HOT_BYTES,
    };
    let hot = small.make(bench.site())?;
    let large = match options.pastime {
        ClientBehavior::SlowReader => batch.make(bench.site())?,
        ClientBehavior::Idle => Vec::new(),
    };
    bench.verify(&hot)?;
    bench.verify(&large)?;
    let mut reading = HoldWorkload {
        bench,
        hot,
        large,
        pastime: options.pastime,
        connections: options.connections.max(1),
        hold: ground.scale.pick(HOLD_FULL, HOLD_QUICK),
        stop: run.stop,
    };
    let weight = options.weight_of_play(ground.scale);
    let played = run.play(&mut reading, weight)?;
    if played.rounds.is_empty() {
        return Ok(None);
    }
    let mut case = reading.told(&played);
    let watch = |reading: &mut HoldWorkload, contender| reading.timelines_of(contender);
    let lines = run.once_each(&mut reading, WATCHED, weight, &mut case.notes, watch)?;
    case.timelines.extend(lines.into_iter().flatten());
    Ok(Some(case))
}

/// The load on the stage.
struct HoldWorkload<'b> {
    bench: &'b mut ServerSet,
    hot: Vec<TestFile>,
    /// What slow readers read.
    large: Vec<TestFile>,
    pastime: ClientBehavior,
    connections: usize,
    hold: Duration,
    stop: &'b AtomicBool,
}

impl Workload for HoldWorkload<'_> {
    type Sample = ServerSample;
    type ContenderSet = ServerSet;

    fn contenders(&mut self) -> &mut ServerSet {
        self.bench
    }

    /// Peak memory only ever rises, so it needs a server that has done nothing yet.
    fn play(&mut self, contender: usize) -> Result<ServerSample> {
        self.bench.restart(contender)?;
        let mut files = self.hot.iter().chain(&self.large);
        files.try_for_each(TestFile::warm)?;
        self.observe(self.bench.server(contender)?)
    }

    fn is_disturbed(&self, observation: &ServerSample) -> bool {
        observation.window.is_disturbed()
    }
}

impl HoldWorkload<'_> {
    fn observe(&self, server: &ServerProcess) -> Result<ServerSample> {
        let latencies_before_ns = self.ask_hot(server)?;
        let before_bytes = proc::resident_bytes(server.pid())?;
        let mut buffers = None;
        let look = || {
            buffers = buffers.max(proc::tcp_buffer_bytes());
            Ok(())
        };
        let ((bytes, latencies_ns), window) =
            observe(server.pid(), || self.hold_all(server, look))?;
        Ok(ServerSample {
            window,
            requests: self.connections as u64,
            body_bytes: 0,
            latencies_ns,
            peak_resident_bytes: proc::peak_resident_bytes(server.pid())?,
            tcp_buffer_bytes: buffers,
            storage_read_bytes: None,
            held: Some(HeldConnections {
                connections: self.connections as u64,
                before_bytes,
                bytes,
                latencies_before_ns,
            }),
        })
    }

    /// How memory goes, of a server that is started anew for it too.
    fn timelines_of(&mut self, contender: usize) -> Result<Vec<Timeline>> {
        self.bench.restart(contender)?;
        let work = |server: &ServerProcess| self.hold_all(server, || Ok(())).map(drop);
        self.bench.watch(contender, work)
    }

    /// Has all connections held for a while, beside hot requests. Returns the server's resident
    /// memory with all of them, and how long those requests took.
    fn hold_all(
        &self,
        server: &ServerProcess,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<(u64, Vec<u64>)> {
        let (address, stop) = (server.address(), self.stop);
        let target = self.target(server)?;
        let mut crowd = ConnectionLoad::gather(address, &target, self.connections, self.pastime)?;
        crowd.settle(stop, &mut look)?;
        crowd.hold(stop, &mut look, are_buffers_full())?;
        let resident_bytes = proc::resident_bytes(server.pid())?;
        let latencies = thread::scope(|scope| {
            let hot = scope.spawn(|| self.ask_hot(server));
            crowd.hold(stop, &mut look, || hot.is_finished())?;
            let died = |_| Err(Error::Answer("the hot requests broke off".into()));
            hot.join().unwrap_or_else(died)
        })?;
        Ok((resident_bytes, latencies))
    }

    /// What each of the connections asks for.
    fn target(&self, server: &ServerProcess) -> Result<RequestTarget> {
        let files = match self.pastime {
            ClientBehavior::SlowReader => &self.large,
            ClientBehavior::Idle => &self.hot,
        };
        let targets = targets_of(files, server, ConnectionReuse::KeepAlive);
        let first = targets.into_iter().next();
        first.ok_or_else(|| Error::Setting("there is no file to ask for".into()))
    }

    /// How long requests for a small file take, in ascending order.
    fn ask_hot(&self, server: &ServerProcess) -> Result<Vec<u64>> {
        let targets = targets_of(&self.hot, server, ConnectionReuse::KeepAlive);
        let lane = LoadStream {
            targets: &targets,
            connections: HOT_CONNECTIONS,
            pace: LoadPace::Open {
                interval: HOT_INTERVAL,
                span: Some(self.hold),
            },
            receive_bytes_max: HOT_BYTES as usize,
        };
        let mut client = LoadClient::connect(server.address(), vec![lane], WaitMode::Sleep)?;
        let mut outcome = client.run(self.stop)?;
        let mut latencies = std::mem::take(&mut outcome.tallies[0].latencies_ns);
        latencies.sort_unstable();
        Ok(latencies)
    }

    fn told(&mut self, played: &Played<ServerSample>) -> Case {
        let mut notes = self.bench.notes(played, FileResidency::Cached);
        let name = self.bench.name(0);
        notes.extend(match self.pastime {
            ClientBehavior::SlowReader => self.promise(name, &played.of(0)),
            ClientBehavior::Idle => self.promise_each(name, &played.of(0)),
        });
        let (connections, hold) = (self.connections, self.hold);
        let (label, what) = match self.large.first() {
            Some(file) => (
                format!("{connections} readers"),
                format!("slow readers of one file of {}", size_label(file.bytes)),
            ),
            None => (
                format!("{connections} idle"),
                "connections that have had one answer".to_owned(),
            ),
        };
        Case {
            label,
            x: connections as f64,
            load: format!(
                "{connections} {what} at once, held for {hold:?}, beside a request for {} every \
                 {HOT_INTERVAL:?}; the server is started anew for each round",
                size_label(HOT_BYTES)
            ),
            metrics: read_off(&METRICS, played),
            latencies: latencies(played),
            notes,
            ..Case::default()
        }
    }

    /// Whether our own server kept its promise.
    fn promise(&self, name: &str, observations: &[&ServerSample]) -> Option<String> {
        let peaks = observations.iter().map(|o| o.peak_resident_bytes);
        let peak = peaks
            .max()
            .filter(|_| self.connections <= PROMISED_CONNECTIONS)?;
        let kept = kept(peak < PROMISED_BYTES);
        Some(format!(
            "{name} had {:.1} MiB at the most, {kept} ({} for {PROMISED_CONNECTIONS} connections)",
            peak as f64 / (1 << 20) as f64,
            size_label(PROMISED_BYTES)
        ))
    }

    /// The same of idle connections. In a debug build they are larger, and nothing is promised.
    fn promise_each(&self, name: &str, observations: &[&ServerSample]) -> Option<String> {
        let each = observations.iter().filter_map(|o| o.held.as_ref());
        let most = each.map(HeldConnections::bytes_each).reduce(f64::max)?;
        let why_not = match (
            cfg!(debug_assertions),
            self.connections < JUDGED_CONNECTIONS,
        ) {
            (true, _) => Some("this is a debug build".to_owned()),
            (_, true) => Some(format!("that takes {JUDGED_CONNECTIONS} connections")),
            _ => None,
        };
        let judged = match why_not {
            Some(why) => format!("not judged: {why}"),
            None => kept(most <= PROMISED_BYTES_EACH).to_owned(),
        };
        let promised = size_label(PROMISED_BYTES_EACH as u64);
        Some(format!(
            "{name} took {most:.0} bytes for each at the most, {judged} ({promised} each)"
        ))
    }
}

/// Whether buffers have grown since the last look: a server that fills them is not yet held up by
/// its readers, and how far one has come by now depends on the order in which it answers.
fn are_buffers_full() -> impl Fn() -> bool {
    let start = Instant::now();
    let before = Cell::new(0);
    move || {
        let now = proc::tcp_buffer_bytes().unwrap_or(0);
        let before = before.replace(now);
        now <= before + before / 100 || start.elapsed() > FILL_TIMEOUT
    }
}

fn kept(is_kept: bool) -> &'static str {
    match is_kept {
        true => "as promised",
        false => "which breaks the promise",
    }
}

impl ManyOptions {
    fn size(&self, scale: RunScale) -> u64 {
        let usual = scale.pick(SIZE_FULL, SIZE_QUICK);
        self.size.unwrap_or(usual)
    }

    /// Of one contender, in milliseconds: hot requests alone, until all have their head, and then
    /// for as long as they are held.
    fn weight_of_play(&self, scale: RunScale) -> u64 {
        let hold = scale.pick(HOLD_FULL, HOLD_QUICK).as_millis() as u64;
        2 * hold + 100 + self.connections as u64 / 2
    }

    fn describe(&self, bench: &ServerSet, rounds: usize) -> Experiment {
        let connections = self.connections;
        let (variant, title, measured, reading) = match self.pastime {
            ClientBehavior::SlowReader => (
                "connections",
                "slow readers of one large file",
                "Every reader asks for the same large file over a connection of its own and \
                 then hardly reads, until all of them are in the middle of their answers.",
                "Buffers of the kernel are not in it: they are told apart, for both ends \
                 together, and hold references to the same pages where a server sends by \
                 sendfile.",
            ),
            ClientBehavior::Idle => (
                "idle connections",
                "idle connections",
                "Every client asks for a small file over a connection of its own and then keeps \
                 it open, until all of them have had their answer.",
                "Buffers of the kernel are not in it, nor what a server sets aside before the \
                 first connection.",
            ),
        };
        Experiment {
            name: "many".into(),
            variant: format!("{connections} {variant}"),
            title: format!("{connections} {title}"),
            measured: format!(
                "{measured} Requests for a small file fall due at a steady pace, first alone and \
                 then beside them."
            ),
            reading: format!(
                "What a server keeps for each connection shows in its resident memory. {reading}"
            ),
            rounds,
            contenders: bench.contenders(),
            ..Experiment::default()
        }
    }
}
