//! Connections that ask again as soon as an answer is complete: the load of `http` and `small`.

use std::sync::atomic::AtomicBool;

use super::observation::{FileResidency, ServerSample, latencies, targets_of};
use super::serving::{LISTENED, ServerSet, WATCHED};
use super::{TRACED, size_label};
use crate::contender::server::ServerProcess;
use crate::document::{Case, PayloadPath, SystemCalls, Timeline};
use crate::error::{Error, Result};
use crate::load::{
    ConnectionReuse, FileSet, LoadClient, LoadPace, LoadStream, Quota, RequestTarget, TestFile,
    WaitMode,
};
use crate::machine::trace;
use crate::machine::window::settled;
use crate::rounds::interleave::Played;
use crate::rounds::run::{MetricReader, RoundRunner, Workload, read_off};

/// One receive of a connection that is alone in wanting to be fast.
const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// Requests of the pass that counts system calls: strace makes each a hundred times slower.
const TRACED_BODY_BYTES_MAX: u64 = 1 << 30;
const TRACED_REQUESTS_MAX: u64 = 2000;

/// Such a load, whatever the size of what is asked for.
#[derive(Clone, Copy)]
pub(crate) struct LoadSettings {
    /// The experiment it is of.
    pub(crate) name: &'static str,
    /// How many files of each size, asked for in turns.
    pub(crate) files: usize,
    pub(crate) connections: usize,
    pub(crate) connection: ConnectionReuse,
    pub(crate) quota: Quota,
    pub(crate) waiting: WaitMode,
}

impl LoadSettings {
    /// Makes the files of a size, and has them verified on all servers.
    pub(crate) fn of_size<'b>(
        self,
        bytes: u64,
        bench: &'b mut ServerSet,
        run: &RoundRunner<'b>,
    ) -> Result<ClosedLoad<'b>> {
        let what = format!("{}, {}", self.name, size_label(bytes));
        run.progress.begin(&what);
        let batch = FileSet {
            name: "file",
            count: self.files.max(1),
            bytes,
        };
        let specimens = batch.make(bench.site())?;
        bench.verify(&specimens)?;
        Ok(ClosedLoad {
            load: self,
            bench,
            specimens,
            stop: run.stop,
        })
    }
}

/// Such a load, on all servers in turns.
pub(crate) struct ClosedLoad<'b> {
    load: LoadSettings,
    bench: &'b mut ServerSet,
    /// What is asked for, in turns; all of one size.
    specimens: Vec<TestFile>,
    /// Set by whoever wants it to end.
    stop: &'b AtomicBool,
}

impl ClosedLoad<'_> {
    /// Plays the rounds; nothing if it was stopped before one was complete. `weight` is that of
    /// one contender in one round.
    pub(crate) fn case(
        &mut self,
        metrics: impl IntoIterator<Item = &'static MetricReader<ServerSample>>,
        weight: u64,
        run: &RoundRunner,
    ) -> Result<Option<Case>> {
        let played = run.play(self, weight)?;
        Ok((!played.rounds.is_empty()).then(|| self.told(metrics, &played)))
    }

    /// Tells for the case how memory goes while all of it is asked for once more, server by server.
    pub(crate) fn add_timelines(
        &mut self,
        case: &mut Case,
        weight: u64,
        run: &RoundRunner,
    ) -> Result<()> {
        let watch = |closed: &mut Self, contender| closed.timelines_of(contender);
        let lines = run.once_each(self, WATCHED, weight, &mut case.notes, watch)?;
        case.timelines.extend(lines.into_iter().flatten());
        Ok(())
    }

    fn timelines_of(&self, contender: usize) -> Result<Vec<Timeline>> {
        let targets = targets_of(
            &self.specimens,
            self.bench.server(contender)?,
            self.load.connection,
        );
        let lane = self.lane(&targets, self.load.quota);
        let work = |server: &ServerProcess| {
            let mut client = LoadClient::connect(server.address(), vec![lane], self.load.waiting)?;
            client.run(self.stop).map(drop)
        };
        self.bench.watch(contender, work)
    }

    /// Tells for the case how bodies travel while all of it is asked for once more, as the servers
    /// count that do.
    pub(crate) fn add_travelled(
        &mut self,
        case: &mut Case,
        weight: u64,
        run: &RoundRunner,
    ) -> Result<()> {
        let listen = |closed: &mut Self, contender| closed.travelled_of(contender);
        let told = run.once_each(self, LISTENED, weight, &mut case.notes, listen)?;
        case.travelled.extend(told.into_iter().flatten());
        Ok(())
    }

    fn travelled_of(&mut self, contender: usize) -> Result<Vec<PayloadPath>> {
        let (load, stop, specimens) = (self.load, self.stop, &self.specimens);
        self.bench.listen(contender, |server| {
            let targets = targets_of(specimens, server, load.connection);
            let lane = lane(load, &targets, load.quota);
            let mut client = LoadClient::connect(server.address(), vec![lane], load.waiting)?;
            let outcome = client.run(stop)?;
            Ok(outcome.tallies.iter().map(|tally| tally.body_bytes).sum())
        })
    }

    /// Counts the system calls of some requests of each server, under strace, for the case; where
    /// they can't be counted it is said why.
    pub(crate) fn add_calls(
        &mut self,
        case: &mut Case,
        weight: u64,
        run: &RoundRunner,
    ) -> Result<()> {
        let bytes = self.specimens.first().map_or(1, |s| s.bytes.max(1));
        let requests = TRACED_REQUESTS_MAX
            .min((TRACED_BODY_BYTES_MAX / bytes).max(1))
            .max(self.load.connections as u64);
        let count = |closed: &mut Self, contender| {
            let calls = closed.calls_of(contender, requests)?;
            Ok(SystemCalls::of(contender, requests, calls))
        };
        match run.once_each(self, TRACED, weight, &mut case.notes, count) {
            Ok(calls) => case.calls = calls,
            Err(Error::Setting(why)) => {
                case.notes.push(format!("calls were not counted: {why}"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn calls_of(&self, contender: usize, requests: u64) -> Result<trace::CallCounts> {
        let server = self.bench.server(contender)?;
        let targets = targets_of(&self.specimens, server, self.load.connection);
        let lane = self.lane(&targets, Quota::Requests(requests));
        let mut client = LoadClient::connect(server.address(), vec![lane], WaitMode::Sleep)?;
        settled(server.pid())?;
        let log = self.bench.own_directory(contender).join("calls.log");
        trace::count_calls(server.pid(), &log, || client.run(self.stop).map(drop))
    }

    fn lane<'t>(&self, targets: &'t [RequestTarget], quota: Quota) -> LoadStream<'t> {
        lane(self.load, targets, quota)
    }

    fn told(
        &mut self,
        metrics: impl IntoIterator<Item = &'static MetricReader<ServerSample>>,
        played: &Played<ServerSample>,
    ) -> Case {
        let bytes = self.specimens.first().map_or(0, |specimen| specimen.bytes);
        Case {
            label: size_label(bytes),
            x: bytes as f64,
            load: self.describe(bytes),
            metrics: read_off(metrics, played),
            latencies: latencies(played),
            notes: self.bench.notes(played, FileResidency::Cached),
            ..Case::default()
        }
    }

    /// The load in plain words.
    fn describe(&self, bytes: u64) -> String {
        let what = match self.specimens.len() {
            1 => format!("a file of {}", size_label(bytes)),
            files => format!("{files} files of {}", size_label(bytes)),
        };
        let how_long = match self.load.quota {
            Quota::Requests(requests) => format!("{requests} requests a round"),
            Quota::Span(span) => format!("requests begin for {span:?} a round"),
        };
        let connections = self.load.connections;
        let again = match self.load.connection {
            ConnectionReuse::KeepAlive => "each asking again at once",
            ConnectionReuse::PerRequest => {
                "each closed by the server after its answer, and at once replaced"
            }
        };
        format!(
            "{connections} connections, {again}; {what} in the page cache; \
             {how_long}, and every answer is taken whole"
        )
    }
}

fn lane(load: LoadSettings, targets: &[RequestTarget], quota: Quota) -> LoadStream<'_> {
    LoadStream {
        targets,
        connections: load.connections,
        pace: LoadPace::ClosedLoad(quota),
        receive_bytes_max: RECEIVE_BYTES_MAX,
    }
}

impl Workload for ClosedLoad<'_> {
    type Sample = ServerSample;
    type ContenderSet = ServerSet;

    fn contenders(&mut self) -> &mut ServerSet {
        self.bench
    }

    fn play(&mut self, contender: usize) -> Result<ServerSample> {
        self.specimens.iter().try_for_each(TestFile::warm)?;
        let targets = targets_of(
            &self.specimens,
            self.bench.server(contender)?,
            self.load.connection,
        );
        let lane = self.lane(&targets, self.load.quota);
        self.bench
            .observe(contender, vec![lane], self.load.waiting, self.stop)
    }

    fn is_disturbed(&self, observation: &ServerSample) -> bool {
        observation.lost_page_cache() || observation.window.is_disturbed()
    }
}
