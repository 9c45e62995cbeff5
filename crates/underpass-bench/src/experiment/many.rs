//! `bench many`: what a server needs for a thousand slow readers of one large file.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass::Mechanism;

use super::observation::{self as read, Observation, Pages};
use super::serving::{Bench, Variant, WATCHED};
use super::{Ground, Scale, size_label};
use crate::document::{Case, Experiment, Timeline};
use crate::error::Result;
use crate::load::{Batch, Connection, Specimen, allow_connections, read_slowly};
use crate::named::Named;
use crate::proc;
use crate::rounds::Played;
use crate::run::{Metric, Run, Trial, read_off};
use crate::server::Server;
use crate::window::observe;

/// Larger than what all buffers between a server and a slow reader hold.
const SIZE_FULL: u64 = 1 << 30;
const SIZE_QUICK: u64 = 64 << 20;

/// How long all readers are in the middle of their answers at once.
const HOLD_FULL: Duration = Duration::from_secs(2);
const HOLD_QUICK: Duration = Duration::from_millis(100);

/// The promise of our own server: a thousand connections, a file of any size.
const PROMISED_CONNECTIONS: usize = 1000;
const PROMISED_BYTES: u64 = 64 << 20;

/// What to ask for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers beside our own.
    pub servers: Vec<Named>,
    /// Mechanisms that our server is also measured with when it may use no other.
    pub only: Vec<Mechanism>,
    /// Size of the file in bytes; 1 GiB if none, 64 MiB in a hurry.
    pub size: Option<u64>,
    /// Readers at once.
    pub connections: usize,
}

impl Default for Options {
    /// A thousand readers, our server as it is.
    fn default() -> Options {
        Options {
            servers: Vec::new(),
            only: Vec::new(),
            size: None,
            connections: PROMISED_CONNECTIONS,
        }
    }
}

const METRICS: [Metric<Observation>; 5] = [
    read::PEAK_RESIDENT,
    read::TCP_BUFFERS,
    read::PAGE_FAULTS,
    read::CONTEXT_SWITCHES,
    read::CPU_SHARE,
];

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &Options, scale: Scale, rounds: usize) -> u64 {
    let contenders = (1 + options.only.len() + options.servers.len()) as u64;
    // Beside the rounds a warm-up, and one for looking at memory.
    contenders * (rounds as u64 + 2) * options.weight_of_play(scale)
}

/// Lets readers at all servers in turns, each started anew for it.
pub(crate) fn run(options: &Options, ground: &Ground, run: &Run) -> Result<Vec<Experiment>> {
    allow_connections(options.connections)?;
    run.progress.begin("many");
    let variants = Variant::of_mechanisms(&options.only);
    let mut bench = Bench::start("many", &variants, &options.servers, ground, None)?;
    let mut experiment = options.describe(&bench, run.rounds);
    experiment.notes.extend(bench.left_out());
    let played = play(options, &mut bench, ground, run);
    experiment.cases.extend(bench.finish_after(played)?);
    Ok(vec![experiment])
}

/// The one case; nothing if it was stopped before a round was complete.
fn play(options: &Options, bench: &mut Bench, ground: &Ground, run: &Run) -> Result<Option<Case>> {
    let batch = Batch {
        name: "large",
        count: 1,
        bytes: options.size(ground.scale),
    };
    let specimens = batch.make(bench.site())?;
    bench.verify(&specimens)?;
    let Some(file) = specimens.into_iter().next() else {
        return Ok(None);
    };
    let mut reading = Reading {
        bench,
        file,
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
    let watch = |reading: &mut Reading, contender| reading.timelines_of(contender);
    let lines = run.once_each(&mut reading, WATCHED, weight, &mut case.notes, watch)?;
    case.timelines.extend(lines.into_iter().flatten());
    Ok(Some(case))
}

/// The load on the stage.
struct Reading<'b> {
    bench: &'b mut Bench,
    file: Specimen,
    connections: usize,
    hold: Duration,
    stop: &'b AtomicBool,
}

impl Trial for Reading<'_> {
    type Observation = Observation;
    type Contenders = Bench;

    fn contenders(&mut self) -> &mut Bench {
        self.bench
    }

    /// Peak memory only ever rises, so it needs a server that has done nothing yet.
    fn play(&mut self, contender: usize) -> Result<Observation> {
        self.bench.restart(contender)?;
        self.file.warm()?;
        self.observe(self.bench.server(contender)?)
    }

    fn is_disturbed(&self, observation: &Observation) -> bool {
        observation.window.is_disturbed()
    }
}

impl Reading<'_> {
    fn observe(&self, server: &Server) -> Result<Observation> {
        let mut buffers = None;
        let look = || {
            buffers = buffers.max(proc::tcp_buffer_bytes());
            Ok(())
        };
        let ((), window) = observe(server.pid(), || self.read(server, look))?;
        Ok(Observation {
            window,
            requests: self.connections as u64,
            body_bytes: 0,
            latencies_ns: Vec::new(),
            peak_resident_bytes: proc::peak_resident_bytes(server.pid())?,
            tcp_buffer_bytes: buffers,
            storage_read_bytes: None,
        })
    }

    /// How memory goes, of a server that is started anew for it too.
    fn timelines_of(&mut self, contender: usize) -> Result<Vec<Timeline>> {
        self.bench.restart(contender)?;
        let work = |server: &Server| self.read(server, || Ok(()));
        self.bench.watch(contender, work)
    }

    fn read(&self, server: &Server, look: impl FnMut() -> Result<()>) -> Result<()> {
        let target = self.file.target(server.address(), Connection::Kept);
        let (address, connections) = (server.address(), self.connections);
        read_slowly(address, &target, connections, self.hold, self.stop, look)
    }

    fn told(&mut self, played: &Played<Observation>) -> Case {
        let mut notes = self.bench.notes(played, Pages::Cached);
        notes.extend(self.promise(self.bench.name(0), &played.of(0)));
        let (connections, hold) = (self.connections, self.hold);
        Case {
            label: format!("{connections} readers"),
            x: connections as f64,
            load: format!(
                "{connections} slow readers of one file of {} at once, held for {hold:?}; the \
                 server is started anew for each round",
                size_label(self.file.bytes)
            ),
            metrics: read_off(&METRICS, played),
            notes,
            ..Case::default()
        }
    }

    /// Whether our own server kept its promise.
    fn promise(&self, name: &str, observations: &[&Observation]) -> Option<String> {
        let peaks = observations.iter().map(|o| o.peak_resident_bytes);
        let peak = peaks
            .max()
            .filter(|_| self.connections <= PROMISED_CONNECTIONS)?;
        let kept = match peak < PROMISED_BYTES {
            true => "as promised",
            false => "which breaks the promise",
        };
        Some(format!(
            "{name} had {:.1} MiB at the most, {kept} ({} for {PROMISED_CONNECTIONS} connections)",
            peak as f64 / (1 << 20) as f64,
            size_label(PROMISED_BYTES)
        ))
    }
}

impl Options {
    fn size(&self, scale: Scale) -> u64 {
        let usual = scale.pick(SIZE_FULL, SIZE_QUICK);
        self.size.unwrap_or(usual)
    }

    /// Of one contender, in milliseconds: until all have their head, and then for as long as they
    /// are held.
    fn weight_of_play(&self, scale: Scale) -> u64 {
        let hold = scale.pick(HOLD_FULL, HOLD_QUICK).as_millis() as u64;
        hold + 100 + self.connections as u64 / 2
    }

    fn describe(&self, bench: &Bench, rounds: usize) -> Experiment {
        let connections = self.connections;
        Experiment {
            name: "many".into(),
            variant: format!("{connections} connections"),
            title: format!("{connections} slow readers of one large file"),
            measured: "Every reader asks for the same large file over a connection of its own and \
                       then hardly reads, until all of them are in the middle of their answers."
                .into(),
            reading: "What a server keeps for each connection shows in its resident memory. \
                      Buffers of the kernel are not in it: they are told apart, for both ends \
                      together, and hold references to the same pages where a server sends by \
                      sendfile."
                .into(),
            rounds,
            contenders: bench.contenders(),
            ..Experiment::default()
        }
    }
}
