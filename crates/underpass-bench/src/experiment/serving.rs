//! Servers side by side: the ground of `http`, `small`, `cold` and `many`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use underpass::Mechanism;

use super::ExperimentContext;
use super::observation::{FileResidency, ServerSample, notes_of, observe_lanes};
use crate::contender::named::NamedCommand;
use crate::contender::server::{MetricsMode, ServerProcess, ServerSetup};
use crate::contender::server_metrics;
use crate::document::{Contender, PayloadPath, Timeline, Unit};
use crate::error::{self, Error, Result};
use crate::load::{FileSet, LoadStream, TestFile, WaitMode, flush_to_disk, verify};
use crate::machine::proc::{self, ProcessMemory};
use crate::machine::throttle::DiskThrottle;
use crate::rounds::interleave::Played;
use crate::rounds::lineup::{ContenderList, ContenderSet};
use crate::rounds::run::notes_of_rounds;

/// How often memory is looked at, in the pass that is for looking.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);

/// How long a server may take to count what has left.
const TOLD_TIMEOUT: Duration = Duration::from_secs(2);

/// When a server can fail outside of the rounds, as it goes on behind its name.
const COMPARED: &str = "when its answers were compared with the files";
pub(crate) const WATCHED: &str = "while its memory was looked at";
pub(crate) const LISTENED: &str = "while it told how bodies travelled";

/// Our own server, under a name and with some more arguments.
pub(crate) struct ServerVariant {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
}

impl ServerVariant {
    /// As it is, and with each of these mechanisms alone.
    pub(crate) fn of_mechanisms(only: &[Mechanism]) -> Vec<ServerVariant> {
        let as_it_is = ServerVariant::new("underpass", &[]);
        let only = only.iter().map(|mechanism| {
            let mechanism = mechanism.name();
            let name = format!("underpass, {mechanism} only");
            ServerVariant::new(&name, &["--only", mechanism])
        });
        std::iter::once(as_it_is).chain(only).collect()
    }

    pub(crate) fn new(name: &str, arguments: &[&str]) -> ServerVariant {
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        ServerVariant {
            name: name.to_owned(),
            arguments: arguments.collect(),
        }
    }
}

/// The servers of an experiment, and the folder that all of them serve.
pub(crate) struct ServerSet {
    site: PathBuf,
    processor: Option<usize>,
    throttle: Option<DiskThrottle>,
    entrants: Vec<ServerEntry>,
    lineup: ContenderList,
    left_out: Vec<String>,
    /// What is to be said, with the next case, of servers that have failed before its rounds.
    unsaid: Vec<String>,
}

/// What a server is tried with before anything is measured.
const TRIAL: FileSet = FileSet {
    name: "trial",
    count: 1,
    bytes: 100_003,
};

/// A server with its setup; running from `ServerSet::start` on.
struct ServerEntry {
    setup: ServerSetup,
    server: Option<ServerProcess>,
}

impl ServerSet {
    /// Starts all servers: our own ones, then those of the user. `name` is the experiment's.
    pub(crate) fn start(
        name: &str,
        variants: &[ServerVariant],
        others: &[NamedCommand],
        ground: &ExperimentContext,
        throttle: Option<DiskThrottle>,
    ) -> Result<ServerSet> {
        let place = |what: &str| ground.scratch.subdirectory(&format!("{name}/{what}"));
        let mut bench = ServerSet {
            site: place("www")?,
            processor: ground.seats.contender,
            throttle,
            entrants: Vec::new(),
            lineup: ContenderList::default(),
            left_out: Vec::new(),
            unsaid: Vec::new(),
        };
        match bench.admit_all(variants, others, place) {
            Ok(()) => {
                let names = bench.entrants.iter().map(|e| e.setup.name().to_owned());
                bench.lineup = ContenderList::of(names);
                Ok(bench)
            }
            // Why one of them did not start is what matters.
            Err(error) => bench.finish_after(Err(error)),
        }
    }

    /// Lets servers in that deliver a small file as it is; says why of the others. Without our own
    /// there is nothing to measure.
    fn admit_all(
        &mut self,
        variants: &[ServerVariant],
        others: &[NamedCommand],
        place: impl Fn(&str) -> Result<PathBuf>,
    ) -> Result<()> {
        let trial = TRIAL.make(&self.site)?;
        for (index, variant) in variants.iter().enumerate() {
            let own = place(&format!("server-{index}"))?;
            let setup = ServerSetup::own(&variant.name, &variant.arguments, &self.site, own)?;
            self.admit(setup, &trial)?;
        }
        for (index, named) in others.iter().enumerate() {
            let own = place(&format!("server-{}", variants.len() + index))?;
            let setup = ServerSetup::of(named, &self.site, own)?;
            match self.admit(setup, &trial) {
                Err(Error::Contender(why) | Error::Answer(why)) => {
                    self.left_out.push(format!("not measured: {why}"));
                }
                admitted => admitted?,
            }
        }
        Ok(())
    }

    fn admit(&mut self, setup: ServerSetup, trial: &[TestFile]) -> Result<()> {
        let index = self.entrants.len();
        let server = None;
        self.entrants.push(ServerEntry { setup, server });
        let admitted = self.restart(index).and_then(|()| {
            let verified = verify(self.server(index)?.address(), trial);
            verified.map_err(|error| error.of(self.name(index)))
        });
        if admitted.is_err() {
            let refused = self.entrants.pop();
            refused
                .and_then(|e| e.server)
                .map_or(Ok(()), ServerProcess::stop)?;
        }
        admitted
    }

    /// Who is not measured, and why.
    pub(crate) fn left_out(&self) -> Vec<String> {
        self.left_out.clone()
    }

    /// The folder that is served.
    pub(crate) fn site(&self) -> &Path {
        &self.site
    }

    pub(crate) fn contenders(&self) -> Vec<Contender> {
        self.entrants.iter().map(|e| e.setup.entry()).collect()
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        self.entrants[index].setup.name()
    }

    /// For files that are about this server.
    pub(crate) fn own_directory(&self, index: usize) -> &Path {
        self.entrants[index].setup.own_directory()
    }

    pub(crate) fn server(&self, index: usize) -> Result<&ServerProcess> {
        let server = self.entrants[index].server.as_ref();
        server.ok_or_else(|| Error::Contender(format!("{} is not running", self.name(index))))
    }

    /// Starts a server anew: one that has done nothing yet.
    pub(crate) fn restart(&mut self, index: usize) -> Result<()> {
        self.restart_as(index, MetricsMode::Nothing)
    }

    /// How bodies travel in some work that is not timed, from a server that tells; `work` says how
    /// many bytes of bodies came. The server is started anew for it, and once more afterwards.
    pub(crate) fn listen(
        &mut self,
        index: usize,
        work: impl FnOnce(&ServerProcess) -> Result<u64>,
    ) -> Result<Vec<PayloadPath>> {
        let Some(socket) = self.entrants[index].setup.telling().map(Path::to_owned) else {
            return Ok(Vec::new());
        };
        self.restart_as(index, MetricsMode::Metrics)?;
        let bytes = work(self.server(index)?)?;
        let start = Instant::now();
        loop {
            let told = server_metrics::travelled(&socket, index)?;
            let sum: u64 = told.iter().map(|one| one.bytes).sum();
            // The last answers are counted a moment after they have left.
            if sum >= bytes || start.elapsed() > TOLD_TIMEOUT {
                self.restart(index)?;
                return Ok(told);
            }
            thread::sleep(SAMPLE_INTERVAL);
        }
    }

    fn restart_as(&mut self, index: usize, telling: MetricsMode) -> Result<()> {
        let entrant = &mut self.entrants[index];
        entrant.server.take().map_or(Ok(()), ServerProcess::stop)?;
        let server = entrant.setup.start(self.processor, telling)?;
        if let Some(throttle) = &self.throttle {
            throttle.add(server.pid())?;
        }
        entrant.server = Some(server);
        Ok(())
    }

    /// Puts the files on disk, then has every server send every one of them, and compares hashes.
    /// Those who fail are left out from here on, which is said with the next case.
    pub(crate) fn verify(&mut self, specimens: &[TestFile]) -> Result<()> {
        flush_to_disk(&self.site)?;
        for index in self.lineup.standing() {
            let server = self.server(index)?;
            if let Err(error) = verify(server.address(), specimens) {
                let failure = self.leave_out(index, COMPARED, error)?;
                self.unsaid.push(failure);
            }
        }
        Ok(())
    }

    /// Puts these lanes on a server, and reads what it cost. Requests and latencies are those of
    /// the first lane, bytes those of all. Broken off with an error once `stop` is set.
    pub(crate) fn observe(
        &self,
        index: usize,
        lanes: Vec<LoadStream<'_>>,
        waiting: WaitMode,
        stop: &AtomicBool,
    ) -> Result<ServerSample> {
        observe_lanes(self.server(index)?, lanes, waiting, stop)
    }

    /// What has to be said of a case, the failures before its rounds included. `pages` is where the
    /// files were to be.
    pub(crate) fn notes(
        &mut self,
        played: &Played<ServerSample>,
        pages: FileResidency,
    ) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.unsaid);
        notes.extend(notes_of_rounds(played));
        for index in 0..played.contenders() {
            notes.extend(notes_of(self.name(index), &played.of(index), pages));
        }
        notes
    }

    /// How memory of a server goes during some work that is not timed.
    pub(crate) fn watch(
        &self,
        index: usize,
        work: impl FnOnce(&ServerProcess) -> Result<()>,
    ) -> Result<Vec<Timeline>> {
        let server = self.server(index)?;
        let processes = proc::process_tree(server.pid())?;
        let is_over = AtomicBool::new(false);
        let samples = thread::scope(|scope| {
            let sampler = scope.spawn(|| sample(&processes, &is_over));
            let done = work(server);
            is_over.store(true, Ordering::Relaxed);
            let samples = sampler.join().unwrap_or_default();
            done.map(|()| samples)
        });
        Ok(timelines(index, &samples?))
    }

    /// Stops every server, whatever `played` came to: that is told first, then the first server
    /// that did not stop.
    pub(crate) fn finish_after<T>(self, played: Result<T>) -> Result<T> {
        let servers = self.entrants.into_iter().filter_map(|e| e.server);
        let stopped = error::all(servers.map(ServerProcess::stop));
        let played = played?;
        stopped?;
        Ok(played)
    }
}

impl ContenderSet for ServerSet {
    fn lineup(&mut self) -> &mut ContenderList {
        &mut self.lineup
    }

    fn dismiss(&mut self, contender: usize) -> Result<()> {
        let server = self.entrants[contender].server.take();
        let _ = server.map_or(Ok(()), ServerProcess::stop);
        Ok(())
    }
}

/// Looks at memory again and again until it is over, and once more then.
fn sample(processes: &[u32], is_over: &AtomicBool) -> Vec<(f64, ProcessMemory)> {
    let start = Instant::now();
    let mut samples = Vec::new();
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        let memory = proc::memory_of(processes);
        samples.push((start.elapsed().as_secs_f64(), memory));
        if is_last {
            return samples;
        }
        thread::sleep(SAMPLE_INTERVAL);
    }
}

fn timelines(contender: usize, samples: &[(f64, ProcessMemory)]) -> Vec<Timeline> {
    let first = samples.first().map_or(0, |(_, memory)| memory.page_faults);
    let line = |label: &str, unit, value: &dyn Fn(&ProcessMemory) -> u64| Timeline {
        contender,
        label: label.to_owned(),
        unit,
        points: samples
            .iter()
            .map(|(at, memory)| (*at, value(memory) as f64))
            .collect(),
    };
    vec![
        line("resident memory", Unit::Bytes, &|m| m.resident_bytes),
        line("page faults since the load began", Unit::Count, &|m| {
            m.page_faults.saturating_sub(first)
        }),
    ]
}
