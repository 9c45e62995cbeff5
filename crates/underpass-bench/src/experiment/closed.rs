//! Connections that send the next request once a response is complete: the load of `http` and
//! `small`.

use std::sync::atomic::AtomicBool;

use super::sample::PlayMetric;
use super::serving::{COUNTED, IN_CACHE, ServerSet, observe_stream};
use super::sizes::size_label;
use crate::contender::server::ServerProcess;
use crate::document::{Case, SystemCalls};
use crate::error::Result;
use crate::load::{
    ConnectionReuse, FileSet, LoadClient, LoadPace, LoadStream, Quota, RequestTarget, StreamResult,
    TestFile, targets_of,
};
use crate::machine::trace;
use crate::machine::window::settled;
use crate::rounds::metric::read_all;
use crate::rounds::runner::RoundRunner;

/// One receive of a connection that doesn't share the client with a timed one.
const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// Requests of the pass that counts system calls: strace makes each a hundred times slower.
const TRACED_BODY_BYTES_MAX: u64 = 1 << 30;
const TRACED_REQUESTS_MAX: u64 = 2000;

/// Such a load, whatever the size of the files.
#[derive(Clone, Copy)]
pub(crate) struct ClosedLoad {
    pub(crate) name: &'static str,
    /// Number of files of each size, requested in turn.
    pub(crate) files: usize,
    pub(crate) connections: usize,
    pub(crate) reuse: ConnectionReuse,
    pub(crate) quota: Quota,
}

/// The measurements of each server outside of the rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtraPasses {
    Nothing,
    SystemCalls,
    /// Memory, mechanisms and system calls.
    All,
}

pub(crate) struct ClosedCase {
    pub(crate) bytes: u64,
    pub(crate) metrics: Vec<&'static PlayMetric>,
    pub(crate) extra: ExtraPasses,
    /// Of one contender in one round.
    pub(crate) weight: u64,
}

impl ClosedLoad {
    /// Measures these cases until it is stopped.
    pub(crate) fn cases(
        &self,
        cases: impl Iterator<Item = ClosedCase>,
        servers: &mut ServerSet,
        runner: &RoundRunner,
    ) -> Result<Vec<Case>> {
        let measured = cases
            .take_while(|_| !runner.is_stopped())
            .map(|case| self.case(case, servers, runner));
        measured.filter_map(Result::transpose).collect()
    }

    /// `None` if it was stopped before a round was complete.
    fn case(
        &self,
        ClosedCase {
            bytes,
            metrics,
            extra,
            weight,
        }: ClosedCase,
        servers: &mut ServerSet,
        runner: &RoundRunner,
    ) -> Result<Option<Case>> {
        let label = size_label(bytes);
        runner.progress.begin(&format!("{}, {label}", self.name));
        let files = servers.make(FileSet {
            name: "file",
            count: self.files.max(1),
            bytes,
        })?;
        let stop = runner.stop;
        let played = runner.play(servers, weight, |servers, contender| {
            files.iter().try_for_each(TestFile::warm)?;
            let server = servers.server(contender)?;
            let targets = targets_of(&files, server.address().socket, self.reuse);
            let stream = self.stream(&targets, self.quota);
            observe_stream(server, stream, IN_CACHE, stop)
        })?;
        let Some(played) = played else {
            return Ok(None);
        };
        let mut case = Case {
            x: bytes as f64,
            load: self.describe(&files, &label),
            label,
            metrics: read_all(metrics, &played),
            notes: servers.notes(&played),
            ..Case::default()
        };
        if extra == ExtraPasses::All {
            let paths = runner.once_each(servers, COUNTED, weight, |servers, contender| {
                servers.count_payload(contender, |server| {
                    Ok(self.load(&files, server, self.quota, stop)?.body_bytes)
                })
            })?;
            case.travelled = paths.concat();
        }
        if extra != ExtraPasses::Nothing {
            self.count_calls(&files, &mut case, (servers, weight, runner))?;
        }
        Ok(Some(case))
    }

    /// Counts the system calls of some requests of each server under strace.
    fn count_calls(
        &self,
        files: &[TestFile],
        case: &mut Case,
        (servers, weight, runner): (&mut ServerSet, u64, &RoundRunner),
    ) -> Result<()> {
        let requests = TRACED_REQUESTS_MAX
            .min((TRACED_BODY_BYTES_MAX / files[0].bytes.max(1)).max(1))
            .max(self.connections as u64);
        let count = |servers: &mut ServerSet, contender| {
            let server = servers.server(contender)?;
            let targets = targets_of(files, server.address().socket, self.reuse);
            let stream = self.stream(&targets, Quota::Requests(requests));
            let mut client = LoadClient::connect(server.address(), stream)?;
            settled(server.pid())?;
            let log = servers.own_directory(contender).join("calls.log");
            let work = || client.run(runner.stop).map(drop);
            let calls = trace::count_calls(server.pid(), &log, work)?;
            Ok(Some(SystemCalls::of(contender, requests, calls)))
        };
        runner.count_calls(servers, weight, case, count)
    }

    /// Puts the load on a server once.
    fn load(
        &self,
        files: &[TestFile],
        server: &ServerProcess,
        quota: Quota,
        stop: &AtomicBool,
    ) -> Result<StreamResult> {
        let targets = targets_of(files, server.address().socket, self.reuse);
        let stream = self.stream(&targets, quota);
        LoadClient::connect(server.address(), stream)?.run(stop)
    }

    fn stream<'t>(&self, targets: &'t [RequestTarget], quota: Quota) -> LoadStream<'t> {
        LoadStream {
            targets,
            connections: self.connections,
            pace: LoadPace::Closed(quota),
            receive_bytes_max: RECEIVE_BYTES_MAX,
        }
    }

    fn describe(&self, files: &[TestFile], size: &str) -> String {
        let what = match files.len() {
            1 => format!("a file of {size}"),
            files => format!("{files} files of {size}"),
        };
        let how_long = match self.quota {
            Quota::Requests(requests) => format!("{requests} requests a round"),
            Quota::Span(span) => format!("requests begin for {span:?} a round"),
        };
        let next = match self.reuse {
            ConnectionReuse::KeepAlive => "each sends the next request at once",
            ConnectionReuse::PerRequest => {
                "the server closes each after its response, and a new one replaces it at once"
            }
        };
        format!(
            "{} connections, {next}; {what} in the page cache; {how_long}, and every response is \
             received whole",
            self.connections
        )
    }
}
