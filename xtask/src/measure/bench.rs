//! One measurement from start to end: servers up, each case verified, played, told of.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::case::{Case, Load};
use super::client::Waiting;
use super::error::{Error, Result};
use super::load::Site;
use super::machine::Machine;
use super::metric::{Metric, Observation};
use super::noise::wait_until_quiet;
use super::notes;
use super::peer::{Contender, Place, Setup};
use super::report::{CallsEntry, CaseEntry, Figures, MetricEntry, ServerEntry};
use super::rounds::{Played, Stage, interleave};
use super::scratch::Scratch;
use super::server::{Processor, Server, free_address};
use super::stats::{Comparison, Spread};
use super::throttle::Throttle;

/// Whether the extra pass under strace is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracing {
    Count,
    Skip,
}

pub(crate) struct Bench {
    site: Site,
    ground: Ground,
    entrants: Vec<Entrant>,
    rounds: usize,
    patience: Duration,
    tracing: Tracing,
}

/// What all servers share.
pub(crate) struct Ground {
    pub(crate) processor: Processor,
    /// The program of this project's server.
    pub(crate) underpass: PathBuf,
    pub(crate) throttle: Option<Throttle>,
    /// How the client waits for all of them.
    pub(crate) waiting: Waiting,
}

/// A server with its place; running from `Bench::start` on.
struct Entrant {
    setup: Setup,
    own: PathBuf,
    server: Option<Server>,
}

impl Bench {
    pub(crate) fn start(
        scratch: &Scratch,
        contenders: &[Contender],
        ground: Ground,
    ) -> Result<Bench> {
        let root = scratch.subdirectory("root")?;
        let mut entrants = Vec::new();
        for (index, contender) in contenders.iter().enumerate() {
            let own = scratch.subdirectory(&format!("server-{index}"))?;
            let place = Place {
                root: &root,
                own: &own,
                address: free_address()?,
                underpass: &ground.underpass,
            };
            let setup = contender.set_up(&place)?;
            let mut entrant = Entrant {
                setup,
                own,
                server: None,
            };
            entrant.start(&ground)?;
            entrants.push(entrant);
        }
        Ok(Bench {
            site: Site::new(root),
            ground,
            entrants,
            rounds: 0,
            patience: Duration::ZERO,
            tracing: Tracing::Skip,
        })
    }

    pub(crate) fn with_rounds(self, rounds: usize) -> Bench {
        Bench { rounds, ..self }
    }

    /// How long the rounds of one case may wait for other load to end, or be repeated.
    pub(crate) fn with_patience(self, patience: Duration) -> Bench {
        Bench { patience, ..self }
    }

    pub(crate) fn with_tracing(self, tracing: Tracing) -> Bench {
        Bench { tracing, ..self }
    }

    /// Verifies and plays one case. What this machine cannot do is an entry that says so.
    pub(crate) fn run(&mut self, case: &Case) -> Result<CaseEntry> {
        let mut entry = CaseEntry {
            name: case.title(),
            part: case.part.clone(),
            load: case.describe(),
            metrics: Vec::new(),
            calls: Vec::new(),
            notes: Vec::new(),
        };
        if let Some(reason) = self.cannot(&case.load) {
            entry.notes.push(format!("not run: {reason}"));
            return Ok(entry);
        }
        self.site.make(&case.load)?;
        for index in 0..self.entrants.len() {
            let server = self.entrants[index].server()?;
            case.load
                .verify(&self.site, server)
                .map_err(|e| self.name_it(index, e))?;
        }
        let count = self.rounds;
        let servers = self.entrants.len();
        let mut stage = OnStage {
            patient_until: Instant::now() + self.patience,
            bench: self,
            case,
        };
        let played = interleave(&mut stage, servers, count)?;
        entry.metrics = case
            .metrics
            .iter()
            .map(|&metric| compare(metric, &played))
            .collect();
        entry.notes = self.notes(case, &played);
        if self.tracing == Tracing::Count {
            entry.calls = self.count_calls(case)?;
        }
        Ok(entry)
    }

    pub(crate) fn servers(&self) -> Vec<ServerEntry> {
        self.entrants
            .iter()
            .map(|entrant| entrant.setup.entry())
            .collect()
    }

    /// Stops every server; the first failure is told, after all were tried.
    pub(crate) fn finish(self) -> Result<()> {
        let servers = self
            .entrants
            .into_iter()
            .filter_map(|entrant| entrant.server);
        let stopped: Vec<Result<()>> = servers.map(Server::stop).collect();
        stopped.into_iter().collect()
    }

    fn cannot(&self, load: &Load) -> Option<String> {
        let in_memory = Machine::look(self.site.root()).files_are_in_memory();
        (matches!(load, Load::Cold { .. }) && in_memory)
            .then(|| "the directory is on tmpfs, where nothing is ever cold".into())
    }

    fn count_calls(&self, case: &Case) -> Result<Vec<CallsEntry>> {
        let mut entries = Vec::new();
        for entrant in &self.entrants {
            let log = entrant.own.join("calls.log");
            let counted = case.load.count_calls(&self.site, entrant.server()?, &log)?;
            let server = entrant.setup.name.clone();
            entries.extend(counted.map(|(calls, requests)| CallsEntry {
                server,
                requests,
                calls,
            }));
        }
        Ok(entries)
    }

    fn notes(&self, case: &Case, played: &Played<Observation>) -> Vec<String> {
        let mut notes = notes::of_rounds(case, played);
        for (index, entrant) in self.entrants.iter().enumerate() {
            let name = &entrant.setup.name;
            let of_server: Vec<&Observation> = played.rounds.iter().map(|r| &r[index]).collect();
            notes.extend(notes::of_server(name, &of_server));
            notes.extend(
                case.bar
                    .and_then(|bar| notes::of_bar(name, bar, &of_server)),
            );
        }
        notes
    }

    fn name_it(&self, index: usize, error: Error) -> Error {
        let name = &self.entrants[index].setup.name;
        match error {
            Error::Answer(what) => Error::Answer(format!("{name}: {what}")),
            Error::System { doing, source } => Error::System {
                doing: format!("{name}: {doing}"),
                source,
            },
            other => other,
        }
    }
}

/// A case on the stage of `interleave`.
struct OnStage<'a> {
    bench: &'a mut Bench,
    case: &'a Case,
    /// Until when it may wait for quiet and repeat rounds.
    patient_until: Instant,
}

impl Stage for OnStage<'_> {
    type Figure = Observation;

    fn before_round(&mut self) -> Result<()> {
        wait_until_quiet(self.patient_until)
    }

    fn play(&mut self, index: usize) -> Result<Observation> {
        if self.case.needs_fresh_server() {
            let bench = &mut *self.bench;
            bench.entrants[index].restart(&bench.ground)?;
        }
        let server = self.bench.entrants[index].server()?;
        let observation =
            self.case
                .load
                .measure(&self.bench.site, server, self.bench.ground.waiting);
        observation.map_err(|error| self.bench.name_it(index, error))
    }

    fn is_disturbed(&self, observation: &Observation) -> bool {
        let lost = self.case.wants_page_cache() && observation.lost_page_cache();
        lost || observation.window.is_disturbed()
    }

    fn is_patient(&self) -> bool {
        Instant::now() < self.patient_until
    }
}

impl Entrant {
    fn start(&mut self, ground: &Ground) -> Result<()> {
        let server = Server::start(&self.setup, &self.own, ground.processor)?;
        if let Some(throttle) = &ground.throttle {
            throttle.add(server.pid())?;
        }
        self.server = Some(server);
        Ok(())
    }

    fn restart(&mut self, ground: &Ground) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::stop)?;
        self.start(ground)
    }

    fn server(&self) -> Result<&Server> {
        let name = &self.setup.name;
        self.server
            .as_ref()
            .ok_or_else(|| Error::Server(format!("{name} is not running")))
    }
}

impl Setup {
    fn entry(&self) -> ServerEntry {
        let program = self.program.display().to_string();
        ServerEntry {
            name: self.name.clone(),
            version: self.version.clone(),
            command: std::iter::once(program)
                .chain(self.arguments.iter().cloned())
                .collect(),
            environment: self.environment.clone(),
            configuration: self.configuration.clone(),
        }
    }
}

fn compare(metric: Metric, played: &Played<Observation>) -> MetricEntry {
    let servers = played.rounds.first().map_or(0, Vec::len);
    let by_server: Vec<Vec<f64>> = (0..servers)
        .map(|server| {
            played
                .rounds
                .iter()
                .map(|round| metric.of(&round[server]))
                .collect()
        })
        .collect();
    let comparisons = match metric.is_compared() {
        true => {
            let peers = by_server.iter().skip(1);
            peers
                .filter_map(|peer| Comparison::of(&by_server[0], peer))
                .collect()
        }
        false => Vec::new(),
    };
    let figures = by_server.into_iter().filter_map(|rounds| {
        Some(Figures {
            spread: Spread::of(&rounds)?,
            rounds,
        })
    });
    let figures = figures.collect();
    MetricEntry {
        metric: metric.label(),
        better: metric.better(),
        figures,
        comparisons,
    }
}
