//! `bench cold`: response times of a hot file while cold ones stream from the disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::sample::{self as read, FileResidency, PlayMetric, PlaySample};
use super::serving::{IN_CACHE, ServerContenders, ServerSet, ServerVariant, observe_work};
use super::sizes::{parse_count, parse_size, size_label};
use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::named::NamedCommand;
use crate::contender::server::ServerProcess;
use crate::document::{Case, Experiment};
use crate::error::{Error, Result};
use crate::load::{
    ConnectionReuse, FileSet, LoadClient, LoadPace, LoadStream, OpenEnd, Quota, RequestTarget,
    TestFile, give_way, targets_of,
};
use crate::machine::throttle::DiskThrottle;
use crate::rounds::metric::read_all;
use crate::tls::options::{TlsLoadOptions, TlsResumption};

/// The file system on which no file is ever cold.
const IN_MEMORY: &str = "tmpfs";

const FILES_FULL: usize = 8;
const FILES_QUICK: usize = 2;

/// Hot requests: enough per second for a 99th percentile, few enough that an unhindered server has
/// no queue.
pub(crate) const HOT_INTERVAL: Duration = Duration::from_micros(500);
pub(crate) const HOT_BYTES: u64 = 1 << 10;
const HOT: FileSet = FileSet {
    name: "hot",
    count: 100,
    bytes: HOT_BYTES,
};

/// Connections for the hot requests: more than can be waiting unless the server stalls.
pub(crate) const HOT_CONNECTIONS: usize = 16;

/// Bytes per receive of a stream while latencies are measured.
const RECEIVE_BYTES_BESIDE: usize = 256 << 10;

/// About what a disk without a limit delivers in a millisecond, in bytes.
const READ_IN_A_MILLISECOND: u64 = 500_000;

/// The options of `bench cold`.
#[derive(Args, Clone, Debug)]
pub struct ColdOptions {
    /// Use cold files of this size
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = parse_size)]
    size: u64,
    /// Stream this many cold files in each round [default: 8, with --quick 2]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>)]
    files: Option<usize>,
    /// Stream them over this many connections
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_count::<usize>)]
    streams: usize,
    /// Stream files from memory instead, to show how a small request fares beside fast readers
    #[arg(long, conflicts_with = "disk_mib")]
    warm: bool,
    #[command(flatten)]
    tls: TlsLoadOptions,
    /// Limit what servers read from the disk, in MiB per second, as root; use it where the disk of
    /// a virtual machine is its host's memory
    #[arg(long, value_name = "MIB", value_parser = parse_count::<u64>)]
    disk_mib: Option<u64>,
    /// Measure this server too, as in 'nginx=nginx -p {own} -c {file:nginx.conf}' (docs/bench.md)
    #[arg(long = "server", value_name = "NAME=COMMAND")]
    servers: Vec<NamedCommand>,
}

const METRICS: [PlayMetric; 8] = [
    read::P99,
    read::P50,
    read::WORST,
    read::THROUGHPUT,
    read::REQUESTS,
    read::STORAGE_READ,
    read::CPU_PER_GIB,
    read::CPU_SHARE,
];

/// Requests for a hot file at a steady pace.
pub(crate) fn hot_stream<'a>(targets: &'a [RequestTarget], end: OpenEnd<'a>) -> LoadStream<'a> {
    LoadStream {
        targets,
        connections: HOT_CONNECTIONS,
        pace: LoadPace::Open {
            interval: HOT_INTERVAL,
            end,
        },
        receive_bytes_max: RECEIVE_BYTES_BESIDE,
    }
}

impl Measurable for ColdOptions {
    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let contenders = 1 + self.servers.len() as u64;
        contenders * (rounds as u64 + 1) * self.weight_of_play(scale)
    }

    /// On a file system in memory, a note says that nothing was measured.
    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        let mut experiment = self.describe(setting.scale);
        if self.reads_disk() && setting.machine.file_system == IN_MEMORY {
            experiment.notes.push(format!(
                "not run: files on {IN_MEMORY} are never cold; choose a directory on a disk with \
                 --scratch"
            ));
            return Ok(vec![experiment]);
        }
        let throttle = self.throttle(setting)?;
        let contenders = ServerContenders {
            own: &[ServerVariant::plain()],
            others: &self.servers,
            tls: Some((&self.tls, TlsResumption::Never)),
        };
        setting.runner.progress.begin("cold");
        ServerSet::run(experiment, contenders, (setting, throttle), |servers| {
            self.case(servers, setting)
        })
    }
}

impl ColdOptions {
    /// The one case; `None` if it was stopped before a round was complete.
    fn case(&self, servers: &mut ServerSet, setting: &ExperimentContext) -> Result<Option<Case>> {
        let (scale, runner) = (setting.scale, &setting.runner);
        let hot = servers.make(HOT)?;
        let cold = servers.make(FileSet {
            name: "cold",
            count: self.files(scale),
            bytes: self.size,
        })?;
        let (residency, prepare): (_, fn(&TestFile) -> Result<()>) = match self.warm {
            true => (IN_CACHE, TestFile::warm),
            false => (FileResidency::OnDisk, TestFile::evict),
        };
        let connections = self.streams.max(1);
        let played = runner.play(servers, self.weight_of_play(scale), |servers, contender| {
            cold.iter().try_for_each(prepare)?;
            hot.iter().try_for_each(TestFile::warm)?;
            let server = servers.server(contender)?;
            let address = server.address().socket;
            let hot = targets_of(&hot, address, ConnectionReuse::KeepAlive);
            let cold = targets_of(&cold, address, ConnectionReuse::KeepAlive);
            let streams = LoadStream {
                targets: &cold,
                connections,
                pace: LoadPace::Closed(Quota::Requests(cold.len() as u64)),
                receive_bytes_max: RECEIVE_BYTES_BESIDE,
            };
            observe_beside(server, &hot, streams, residency, runner.stop)
        })?;
        Ok(played.map(|played| Case {
            label: format!("{connections} streams"),
            x: connections as f64,
            load: self.load(scale),
            metrics: read_all(&METRICS, &played),
            notes: servers.notes(&played),
            ..Case::default()
        }))
    }

    fn reads_disk(&self) -> bool {
        !self.warm
    }

    fn files(&self, scale: RunScale) -> usize {
        let usual = scale.pick(FILES_FULL, FILES_QUICK);
        self.files.unwrap_or(usual).max(1)
    }

    fn throttle(&self, setting: &ExperimentContext) -> Result<Option<DiskThrottle>> {
        let Some(mib) = self.disk_mib else {
            return Ok(None);
        };
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Setting("--disk-mib requires root".into()));
        }
        DiskThrottle::create(setting.scratch.path(), mib << 20).map(Some)
    }

    /// Of one contender, in milliseconds.
    fn weight_of_play(&self, scale: RunScale) -> u64 {
        let bytes = self.size * self.files(scale) as u64;
        let limit = self.disk_mib.map(|mib| (mib << 20) / 1000);
        60 + bytes / limit.unwrap_or(READ_IN_A_MILLISECOND).max(1)
    }

    fn load(&self, scale: RunScale) -> String {
        let (files, size) = (self.files(scale), size_label(self.size));
        let disk = self.disk_mib.map_or(String::new(), |mib| {
            format!(" from a disk that delivers at most {mib} MiB per second")
        });
        let state = match self.warm {
            false => "dropped from the page cache before",
            true => "in the page cache too",
        };
        format!(
            "a request for a hot file of {} every {HOT_INTERVAL:?} while {files} files of {size}, \
             {state}, stream over {} other connections{disk}",
            size_label(HOT_BYTES),
            self.streams
        )
    }

    fn describe(&self, scale: RunScale) -> Experiment {
        let suffix = self.tls.suffix();
        let limit = self.disk_mib.map(|mib| format!(", {mib} MiB/s"));
        let (files, size) = (self.files(scale), size_label(self.size));
        let (kind, title, origin, reading) = match self.warm {
            false => (
                "",
                "A hot file while cold ones stream",
                "not in memory",
                "A sendfile of pages that are not in memory blocks the thread and with it all \
                 clients of that thread. A server that waits for the disk shows it in the slowest \
                 percent of its responses to the hot requests.",
            ),
            true => (
                "hot ",
                "A small file while large ones stream from memory",
                "in memory too",
                "A reader that takes all it gets could occupy the thread. The waiting time of a \
                 small request shows how long the server sends to one client before it turns to \
                 the others.",
            ),
        };
        let limit = limit.unwrap_or_default();
        Experiment {
            name: "cold".into(),
            variant: format!("{} {kind}streams{limit}{suffix}", self.streams),
            title: format!("{title}{suffix}"),
            measured: format!(
                "Requests for a small file that is in memory become due at a steady pace and are \
                 timed from then, while {files} files of {size} that are {origin} stream to other \
                 connections of the same server."
            ),
            reading: reading.into(),
            ..Experiment::default()
        }
    }
}

/// Runs hot requests on a server, and the streams on a thread of the lowest priority.
fn observe_beside(
    server: &ServerProcess,
    hot: &[RequestTarget],
    streams: LoadStream<'_>,
    residency: FileResidency,
    stop: &AtomicBool,
) -> Result<PlaySample> {
    let (address, is_over) = (server.address(), AtomicBool::new(false));
    let mut hot = LoadClient::connect(address, hot_stream(hot, OpenEnd::With(&is_over)))?;
    let mut streams = LoadClient::connect(address, streams)?;
    let work = || {
        thread::scope(|scope| {
            let streams = scope.spawn(|| {
                give_way();
                let result = streams.run(stop);
                is_over.store(true, Ordering::Relaxed);
                result
            });
            let hot = hot.run(stop);
            let panicked = |_| Err(Error::Answer("the streams broke off".into()));
            let streams = streams.join().unwrap_or_else(panicked);
            Ok(vec![hot?, streams?])
        })
    };
    observe_work(server.pid(), residency, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::options::CertificateKey;

    #[test]
    fn the_load_is_described_in_words() {
        let mut options = ColdOptions {
            size: 100 << 20,
            files: None,
            streams: 2,
            warm: false,
            tls: TlsLoadOptions {
                suite: None,
                key: CertificateKey::P256,
            },
            disk_mib: None,
            servers: Vec::new(),
        };
        assert_eq!(
            options.load(RunScale::Quick),
            "a request for a hot file of 1 KiB every 500µs while 2 files of 100 MiB, dropped from \
             the page cache before, stream over 2 other connections"
        );
        options.disk_mib = Some(80);
        let limit = "from a disk that delivers at most 80 MiB per second";
        assert!(options.load(RunScale::Full).ends_with(limit));
        assert_eq!(options.weight(RunScale::Quick, 6), 7 * (60 + 2500));
    }
}
