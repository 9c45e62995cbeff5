//! `bench cold`: how long a hot file takes while cold ones stream from the disk.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass::Mechanism;

use super::observation::{self as read, FileResidency, ServerSample, latencies, targets_of};
use super::serving::{ServerSet, ServerVariant};
use super::{ExperimentContext, RunScale, size_label};
use crate::contender::named::NamedCommand;
use crate::document::{Case, Experiment};
use crate::error::{Error, Result};
use crate::load::{ConnectionReuse, FileSet, LoadPace, LoadStream, Quota, TestFile, WaitMode};
use crate::machine::throttle::DiskThrottle;
use crate::rounds::interleave::Played;
use crate::rounds::run::{MetricReader, RoundRunner, Workload, read_off};

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
pub struct ColdOptions {
    /// Servers beside our own.
    pub servers: Vec<NamedCommand>,
    /// Mechanisms that our server is also measured with when it may use no other.
    pub only: Vec<Mechanism>,
    /// Size of a cold file in bytes.
    pub size: u64,
    /// How many of them; 8 if none, 2 in a hurry.
    pub files: Option<usize>,
    /// Connections over which they stream.
    pub streams: usize,
    /// Where the streams come from.
    pub streamed: StreamOrigin,
    /// What servers may read from the disk, in MiB per second: as root, by a control group. As
    /// fast as it goes if none.
    pub disk_mib: Option<u64>,
    /// What the client does while no answer is there.
    pub waiting: WaitMode,
}

/// Where streams come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamOrigin {
    /// The page cache is dropped before each round.
    #[default]
    FromDisk,
    /// From the page cache, as fast as the client takes them.
    FromMemory,
}

impl Default for ColdOptions {
    /// Two streams of files of 100 MiB, our server as it is.
    fn default() -> ColdOptions {
        ColdOptions {
            servers: Vec::new(),
            only: Vec::new(),
            size: SIZE,
            files: None,
            streams: 2,
            streamed: StreamOrigin::FromDisk,
            disk_mib: None,
            waiting: WaitMode::default(),
        }
    }
}

const METRICS: [MetricReader<ServerSample>; 8] = [
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
pub(crate) fn weight(options: &ColdOptions, scale: RunScale, rounds: usize) -> u64 {
    let contenders = (1 + options.only.len() + options.servers.len()) as u64;
    contenders * (rounds as u64 + 1) * options.weight_of_play(scale)
}

/// Asks all servers; on a file system in memory it is said that nothing was.
pub(crate) fn run(
    options: &ColdOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    let mut experiment = options.describe(ground.scale, run.rounds);
    if options.streamed == StreamOrigin::FromDisk && ground.machine.file_system == IN_MEMORY {
        experiment.notes.push(format!(
            "not run: the files would be on {IN_MEMORY}, where nothing is ever cold; name a \
             directory on a disk"
        ));
        return Ok(vec![experiment]);
    }
    let throttle = options.throttle(ground)?;
    let variants = ServerVariant::of_mechanisms(&options.only);
    let mut bench = ServerSet::start("cold", &variants, &options.servers, ground, throttle)?;
    experiment.contenders = bench.contenders();
    experiment.notes.extend(bench.left_out());
    run.progress.begin("cold");
    let played = play(options, &mut bench, ground, run);
    experiment.cases.extend(bench.finish_after(played)?);
    Ok(vec![experiment])
}

/// The one case; nothing if it was stopped before a round was complete.
fn play(
    options: &ColdOptions,
    bench: &mut ServerSet,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Option<Case>> {
    let hot = FileSet {
        name: "hot",
        count: HOT_FILES,
        bytes: HOT_BYTES,
    };
    let cold = FileSet {
        name: "cold",
        count: options.files(ground.scale),
        bytes: options.size,
    };
    let (hot, cold) = (hot.make(bench.site())?, cold.make(bench.site())?);
    bench.verify(&hot)?;
    bench.verify(&cold)?;
    let mut streaming = StreamWorkload {
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
struct StreamWorkload<'b> {
    bench: &'b mut ServerSet,
    hot: Vec<TestFile>,
    cold: Vec<TestFile>,
    streams: usize,
    streamed: StreamOrigin,
    waiting: WaitMode,
    stop: &'b AtomicBool,
}

impl Workload for StreamWorkload<'_> {
    type Sample = ServerSample;
    type ContenderSet = ServerSet;

    fn contenders(&mut self) -> &mut ServerSet {
        self.bench
    }

    fn play(&mut self, contender: usize) -> Result<ServerSample> {
        match self.streamed {
            StreamOrigin::FromDisk => self.cold.iter().try_for_each(TestFile::evict)?,
            StreamOrigin::FromMemory => self.cold.iter().try_for_each(TestFile::warm)?,
        }
        self.hot.iter().try_for_each(TestFile::warm)?;
        let server = self.bench.server(contender)?;
        let (hot, cold) = (
            targets_of(&self.hot, server, ConnectionReuse::KeepAlive),
            targets_of(&self.cold, server, ConnectionReuse::KeepAlive),
        );
        let requests = LoadStream {
            targets: &hot,
            connections: HOT_CONNECTIONS,
            pace: LoadPace::Open {
                interval: HOT_INTERVAL,
                span: None,
            },
            receive_bytes_max: RECEIVE_BYTES_BESIDE,
        };
        let streams = LoadStream {
            targets: &cold,
            connections: self.streams,
            pace: LoadPace::ClosedLoad(Quota::Requests(cold.len() as u64)),
            receive_bytes_max: RECEIVE_BYTES_BESIDE,
        };
        self.bench
            .observe(contender, vec![requests, streams], self.waiting, self.stop)
    }

    fn is_disturbed(&self, observation: &ServerSample) -> bool {
        observation.window.is_disturbed()
    }
}

impl StreamWorkload<'_> {
    fn told(&mut self, load: String, played: &Played<ServerSample>) -> Case {
        Case {
            label: format!("{} streams", self.streams),
            x: self.streams as f64,
            load,
            metrics: read_off(&METRICS, played),
            latencies: latencies(played),
            notes: self.bench.notes(
                played,
                match self.streamed {
                    StreamOrigin::FromDisk => FileResidency::OnDisk,
                    StreamOrigin::FromMemory => FileResidency::Cached,
                },
            ),
            ..Case::default()
        }
    }
}

impl ColdOptions {
    fn files(&self, scale: RunScale) -> usize {
        let usual = scale.pick(FILES_FULL, FILES_QUICK);
        self.files.unwrap_or(usual).max(1)
    }

    fn throttle(&self, ground: &ExperimentContext) -> Result<Option<DiskThrottle>> {
        let Some(mib) = self.disk_mib else {
            return Ok(None);
        };
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Setting("limiting the disk takes root".into()));
        }
        DiskThrottle::create(ground.scratch.path(), mib << 20).map(Some)
    }

    /// Of one contender, in milliseconds.
    fn weight_of_play(&self, scale: RunScale) -> u64 {
        let bytes = self.size * self.files(scale) as u64;
        let speed = self
            .disk_mib
            .map_or(READ_IN_A_MILLISECOND, |mib| (mib << 20) / 1000);
        60 + bytes / speed.max(1)
    }

    /// In plain words.
    fn load(&self, scale: RunScale) -> String {
        let (files, size) = (self.files(scale), size_label(self.size));
        let disk = match self.disk_mib {
            Some(mib) => format!(" from a disk that delivers {mib} MiB a second at the most"),
            None => String::new(),
        };
        let state = match self.streamed {
            StreamOrigin::FromDisk => "dropped from the page cache before",
            StreamOrigin::FromMemory => "in the page cache too",
        };
        format!(
            "a hot file of {} every {HOT_INTERVAL:?} while {files} files of {size}, {state}, \
             stream over {} other connections{disk}",
            size_label(HOT_BYTES),
            self.streams
        )
    }

    fn describe(&self, scale: RunScale, rounds: usize) -> Experiment {
        let limit = self.disk_mib.map(|mib| format!(", {mib} MiB/s"));
        let (files, size) = (self.files(scale), size_label(self.size));
        let (kind, title, where_from, reading) = match self.streamed {
            StreamOrigin::FromDisk => (
                "",
                "A hot file while cold ones stream",
                "not in memory",
                "A sendfile of pages that are not in memory stops the thread, and with it \
                 everybody whom that thread serves. A server that waits for the disk shows it in \
                 the last percent of its answers to the hot requests.",
            ),
            StreamOrigin::FromMemory => (
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
        let mut options = ColdOptions::default();
        assert_eq!(
            options.load(RunScale::Quick),
            "a hot file of 1 KiB every 500µs while 2 files of 100 MiB, dropped from the page cache \
             before, stream over 2 other connections"
        );
        options.disk_mib = Some(80);
        let limit = "from a disk that delivers 80 MiB a second at the most";
        assert!(options.load(RunScale::Full).ends_with(limit));
        assert_eq!(weight(&options, RunScale::Quick, 6), 7 * (60 + 2500));
    }
}
