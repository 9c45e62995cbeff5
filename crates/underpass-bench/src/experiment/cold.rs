//! `bench cold`: how long a hot file takes while cold ones stream from the disk.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass::Mechanism;

use super::observation::{self as read, Observation, Pages, latencies, targets_of};
use super::serving::{Bench, Variant};
use super::{Ground, Scale, size_label};
use crate::contender::named::Named;
use crate::document::{Case, Experiment};
use crate::error::{Error, Result};
use crate::load::{Batch, Connection, Lane, Pace, Quota, Specimen, Waiting};
use crate::machine::throttle::Throttle;
use crate::rounds::interleave::Played;
use crate::rounds::run::{Metric, Run, Trial, read_off};

/// The file system on which nothing is ever cold.
const IN_MEMORY: &str = "tmpfs";

/// Cold files; each streams once in a round.
const SIZE: u64 = 100 << 20;
const FILES_FULL: usize = 8;
const FILES_QUICK: usize = 2;

/// Hot requests: enough per second for a 99th percentile, few enough that an unhindered server has
/// no queue.
const HOT_INTERVAL: Duration = Duration::from_micros(500);
const HOT_BYTES: u64 = 1 << 10;
const HOT_FILES: usize = 100;

/// Connections for the hot requests: more than can be waiting unless the server stalls.
const HOT_CONNECTIONS: usize = 16;

/// One receive of a stream beside requests whose latency is measured.
const RECEIVE_BYTES_BESIDE: usize = 256 << 10;

/// About what a disk without a limit delivers in a millisecond, in bytes.
const READ_IN_A_MILLISECOND: u64 = 500_000;

/// What to ask for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers beside our own.
    pub servers: Vec<Named>,
    /// Mechanisms that our server is also measured with when it may use no other.
    pub only: Vec<Mechanism>,
    /// Size of a cold file in bytes.
    pub size: u64,
    /// How many of them; 8 if none, 2 in a hurry.
    pub files: Option<usize>,
    /// Connections over which they stream.
    pub streams: usize,
    /// Where the streams come from.
    pub streamed: Streamed,
    /// What servers may read from the disk, in MiB per second: as root, by a control group. As
    /// fast as it goes if none.
    pub disk_mib: Option<u64>,
    /// What the client does while no answer is there.
    pub waiting: Waiting,
}

/// Where streams come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streamed {
    /// The page cache is dropped before each round.
    #[default]
    FromDisk,
    /// From the page cache, as fast as the client takes them.
    FromMemory,
}

impl Default for Options {
    /// Two streams of files of 100 MiB, our server as it is.
    fn default() -> Options {
        Options {
            servers: Vec::new(),
            only: Vec::new(),
            size: SIZE,
            files: None,
            streams: 2,
            streamed: Streamed::FromDisk,
            disk_mib: None,
            waiting: Waiting::default(),
        }
    }
}

const METRICS: [Metric<Observation>; 8] = [
    read::P50,
    read::P99,
    read::WORST,
    read::THROUGHPUT,
    read::REQUESTS,
    read::STORAGE_READ,
    read::CPU_PER_GIB,
    read::CPU_SHARE,
];

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &Options, scale: Scale, rounds: usize) -> u64 {
    let contenders = (1 + options.only.len() + options.servers.len()) as u64;
    contenders * (rounds as u64 + 1) * options.weight_of_play(scale)
}

/// Asks all servers; on a file system in memory it is said that nothing was.
pub(crate) fn run(options: &Options, ground: &Ground, run: &Run) -> Result<Vec<Experiment>> {
    let mut experiment = options.describe(ground.scale, run.rounds);
    if options.streamed == Streamed::FromDisk && ground.machine.file_system == IN_MEMORY {
        experiment.notes.push(format!(
            "not run: the files would be on {IN_MEMORY}, where nothing is ever cold; name a \
             directory on a disk"
        ));
        return Ok(vec![experiment]);
    }
    let throttle = options.throttle(ground)?;
    let variants = Variant::of_mechanisms(&options.only);
    let mut bench = Bench::start("cold", &variants, &options.servers, ground, throttle)?;
    experiment.contenders = bench.contenders();
    experiment.notes.extend(bench.left_out());
    run.progress.begin("cold");
    let played = play(options, &mut bench, ground, run);
    experiment.cases.extend(bench.finish_after(played)?);
    Ok(vec![experiment])
}

/// The one case; nothing if it was stopped before a round was complete.
fn play(options: &Options, bench: &mut Bench, ground: &Ground, run: &Run) -> Result<Option<Case>> {
    let hot = Batch {
        name: "hot",
        count: HOT_FILES,
        bytes: HOT_BYTES,
    };
    let cold = Batch {
        name: "cold",
        count: options.files(ground.scale),
        bytes: options.size,
    };
    let (hot, cold) = (hot.make(bench.site())?, cold.make(bench.site())?);
    bench.verify(&hot)?;
    bench.verify(&cold)?;
    let mut streaming = Streaming {
        bench,
        hot,
        cold,
        streams: options.streams.max(1),
        streamed: options.streamed,
        waiting: options.waiting,
        stop: run.stop,
    };
    let weight = options.weight_of_play(ground.scale);
    let played = run.play(&mut streaming, weight)?;
    let load = options.load(ground.scale);
    Ok((!played.rounds.is_empty()).then(|| streaming.told(load, &played)))
}

/// The load on the stage.
struct Streaming<'b> {
    bench: &'b mut Bench,
    hot: Vec<Specimen>,
    cold: Vec<Specimen>,
    streams: usize,
    streamed: Streamed,
    waiting: Waiting,
    stop: &'b AtomicBool,
}

impl Trial for Streaming<'_> {
    type Observation = Observation;
    type Contenders = Bench;

    fn contenders(&mut self) -> &mut Bench {
        self.bench
    }

    fn play(&mut self, contender: usize) -> Result<Observation> {
        match self.streamed {
            Streamed::FromDisk => self.cold.iter().try_for_each(Specimen::evict)?,
            Streamed::FromMemory => self.cold.iter().try_for_each(Specimen::warm)?,
        }
        self.hot.iter().try_for_each(Specimen::warm)?;
        let server = self.bench.server(contender)?;
        let (hot, cold) = (
            targets_of(&self.hot, server, Connection::Kept),
            targets_of(&self.cold, server, Connection::Kept),
        );
        let requests = Lane {
            targets: &hot,
            connections: HOT_CONNECTIONS,
            pace: Pace::Open {
                interval: HOT_INTERVAL,
                span: None,
            },
            receive_bytes_max: RECEIVE_BYTES_BESIDE,
        };
        let streams = Lane {
            targets: &cold,
            connections: self.streams,
            pace: Pace::Closed(Quota::Requests(cold.len() as u64)),
            receive_bytes_max: RECEIVE_BYTES_BESIDE,
        };
        self.bench
            .observe(contender, vec![requests, streams], self.waiting, self.stop)
    }

    fn is_disturbed(&self, observation: &Observation) -> bool {
        observation.window.is_disturbed()
    }
}

impl Streaming<'_> {
    fn told(&mut self, load: String, played: &Played<Observation>) -> Case {
        Case {
            label: format!("{} streams", self.streams),
            x: self.streams as f64,
            load,
            metrics: read_off(&METRICS, played),
            latencies: latencies(played),
            notes: self.bench.notes(
                played,
                match self.streamed {
                    Streamed::FromDisk => Pages::OnDisk,
                    Streamed::FromMemory => Pages::Cached,
                },
            ),
            ..Case::default()
        }
    }
}

impl Options {
    fn files(&self, scale: Scale) -> usize {
        let usual = scale.pick(FILES_FULL, FILES_QUICK);
        self.files.unwrap_or(usual).max(1)
    }

    fn throttle(&self, ground: &Ground) -> Result<Option<Throttle>> {
        let Some(mib) = self.disk_mib else {
            return Ok(None);
        };
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Setting("limiting the disk takes root".into()));
        }
        Throttle::create(ground.scratch.path(), mib << 20).map(Some)
    }

    /// Of one contender, in milliseconds.
    fn weight_of_play(&self, scale: Scale) -> u64 {
        let bytes = self.size * self.files(scale) as u64;
        let speed = self
            .disk_mib
            .map_or(READ_IN_A_MILLISECOND, |mib| (mib << 20) / 1000);
        60 + bytes / speed.max(1)
    }

    /// In plain words.
    fn load(&self, scale: Scale) -> String {
        let (files, size) = (self.files(scale), size_label(self.size));
        let disk = match self.disk_mib {
            Some(mib) => format!(" from a disk that delivers {mib} MiB a second at the most"),
            None => String::new(),
        };
        let state = match self.streamed {
            Streamed::FromDisk => "dropped from the page cache before",
            Streamed::FromMemory => "in the page cache too",
        };
        format!(
            "a hot file of {} every {HOT_INTERVAL:?} while {files} files of {size}, {state}, \
             stream over {} other connections{disk}",
            size_label(HOT_BYTES),
            self.streams
        )
    }

    fn describe(&self, scale: Scale, rounds: usize) -> Experiment {
        let limit = self.disk_mib.map(|mib| format!(", {mib} MiB/s"));
        let (files, size) = (self.files(scale), size_label(self.size));
        let (kind, title, where_from, reading) = match self.streamed {
            Streamed::FromDisk => (
                "",
                "A hot file while cold ones stream",
                "not in memory",
                "A sendfile of pages that are not in memory stops the thread, and with it \
                 everybody whom that thread serves. A server that waits for the disk shows it in \
                 the last percent of its answers to the hot requests.",
            ),
            Streamed::FromMemory => (
                "hot ",
                "A small file while large ones stream from memory",
                "in memory too",
                "A reader that takes all it gets could have the thread for itself. How long a \
                 small request waits is how long the server goes on sending before it looks \
                 around.",
            ),
        };
        Experiment {
            name: "cold".into(),
            variant: format!(
                "{} {kind}streams{}",
                self.streams,
                limit.unwrap_or_default()
            ),
            title: title.into(),
            measured: format!(
                "Requests for a small file that is in memory fall due at a steady pace, and are \
                 timed from then, while {files} files of {size} that are {where_from} stream to \
                 other connections of the same server."
            ),
            reading: reading.into(),
            rounds,
            ..Experiment::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_told_in_words() {
        let mut options = Options::default();
        assert_eq!(
            options.load(Scale::Quick),
            "a hot file of 1 KiB every 500µs while 2 files of 100 MiB, dropped from the page cache \
             before, stream over 2 other connections"
        );
        options.disk_mib = Some(80);
        let limit = "from a disk that delivers 80 MiB a second at the most";
        assert!(options.load(Scale::Full).ends_with(limit));
        assert_eq!(weight(&options, Scale::Quick, 6), 7 * (60 + 2500));
    }
}
