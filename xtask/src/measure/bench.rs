//! One measurement from start to end: servers up, each case verified, played, told of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::case::{Case, Load};
use super::error::{Error, Result};
use super::load::Site;
use super::machine::Machine;
use super::metric::{Metric, Observation};
use super::noise::wait_until_quiet;
use super::peer::{Peer, Place, Setup};
use super::proc::CpuSource;
use super::report::{CallsEntry, CaseEntry, Figures, MetricEntry, ServerEntry};
use super::rounds::{Played, Stage, interleave};
use super::scratch::Scratch;
use super::server::{Processor, Server, free_address};
use super::stats::{Comparison, Spread};

/// Whether the extra pass under strace is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracing {
    Count,
    Skip,
}

/// A server to compare, and whatever sets this variant of it apart.
pub(crate) struct Contender {
    pub(crate) peer: Peer,
    /// `NAME=VALUE` goes to the environment, anything else behind the arguments.
    pub(crate) variant: Option<String>,
}

pub(crate) struct Bench {
    site: Site,
    root: PathBuf,
    entrants: Vec<Entrant>,
    rounds: usize,
    patience: Duration,
    tracing: Tracing,
}

/// A server with its place; running from `Bench::start` on.
struct Entrant {
    setup: Setup,
    own: PathBuf,
    processor: Processor,
    server: Option<Server>,
}

impl Bench {
    pub(crate) fn start(
        scratch: &Scratch,
        contenders: &[Contender],
        underpass: &Path,
        processor: Processor,
    ) -> Result<Bench> {
        let root = scratch.subdirectory("root")?;
        let mut entrants = Vec::new();
        for (index, contender) in contenders.iter().enumerate() {
            let own = scratch.subdirectory(&format!("server-{index}"))?;
            let place = Place {
                root: &root,
                own: &own,
                address: free_address()?,
                underpass,
            };
            let setup = contender.set_up(&place)?;
            let mut entrant = Entrant {
                setup,
                own,
                processor,
                server: None,
            };
            entrant.start()?;
            entrants.push(entrant);
        }
        Ok(Bench {
            site: Site::new(root.clone()),
            root,
            entrants,
            rounds: 0,
            patience: Duration::ZERO,
            tracing: Tracing::Skip,
        })
    }

    pub(crate) fn with_rounds(self, rounds: usize) -> Bench {
        Bench { rounds, ..self }
    }

    /// How long all rounds together may wait for other load to end.
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
        let played = interleave(&mut OnStage { bench: self, case }, servers, count)?;
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
        let in_memory = Machine::look(&self.root).files_are_in_memory();
        (matches!(load, Load::Cold { .. }) && in_memory)
            .then(|| "the directory is on tmpfs, where nothing is ever cold".into())
    }

    fn count_calls(&self, case: &Case) -> Result<Vec<CallsEntry>> {
        let mut entries = Vec::new();
        for entrant in &self.entrants {
            let summary = entrant.own.join("calls.txt");
            let counted = case
                .load
                .count_calls(&self.site, entrant.server()?, &summary)?;
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
        let mut notes = noise_notes(played);
        for (index, entrant) in self.entrants.iter().enumerate() {
            let name = &entrant.setup.name;
            let of_server: Vec<&Observation> = played.rounds.iter().map(|r| &r[index]).collect();
            notes.extend(server_notes(name, &of_server));
            notes.extend(case.bar.and_then(|bar| bar_note(name, bar, &of_server)));
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
}

impl Stage for OnStage<'_> {
    type Figure = Observation;

    fn before_round(&mut self) -> Result<()> {
        let waited = wait_until_quiet(self.bench.patience)?;
        self.bench.patience = self.bench.patience.saturating_sub(waited);
        Ok(())
    }

    fn play(&mut self, index: usize) -> Result<Observation> {
        if self.case.needs_fresh_server() {
            self.bench.entrants[index].restart()?;
        }
        let server = self.bench.entrants[index].server()?;
        let observation = self.case.load.measure(&self.bench.site, server);
        observation.map_err(|error| self.bench.name_it(index, error))
    }

    fn is_disturbed(&self, observation: &Observation) -> bool {
        observation.window.is_disturbed()
    }
}

impl Contender {
    fn set_up(&self, place: &Place<'_>) -> Result<Setup> {
        let mut setup = self.peer.set_up(place)?;
        let Some(variant) = &self.variant else {
            return Ok(setup);
        };
        match variant
            .split_once('=')
            .filter(|_| !variant.starts_with('-'))
        {
            Some((name, value)) => setup.environment.push((name.to_owned(), value.to_owned())),
            None => setup.arguments.push(variant.clone()),
        }
        setup.name = format!("{} {variant}", setup.name);
        Ok(setup)
    }
}

impl Entrant {
    fn start(&mut self) -> Result<()> {
        self.server = Some(Server::start(&self.setup, &self.own, self.processor)?);
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::stop)?;
        self.start()
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

fn noise_notes(played: &Played<Observation>) -> Vec<String> {
    let mut notes = Vec::new();
    if played.repeated > 0 {
        notes.push(format!(
            "{} rounds were played again: other programs or the hypervisor took more than a \
             tenth of a processor",
            played.repeated
        ));
    }
    if played.disturbed > 0 {
        let all = || {
            played
                .rounds
                .iter()
                .flatten()
                .map(|observation| &observation.window)
        };
        let foreign = all()
            .map(|window| window.share_of_elapsed(window.foreign_cpu))
            .fold(0.0, f64::max);
        let steal = all()
            .map(|window| window.share_of_elapsed(window.steal))
            .fold(0.0, f64::max);
        notes.push(format!(
            "{} of {} rounds are disturbed and count all the same: other programs took up to \
             {:.0} % of a processor, the hypervisor up to {:.0} %",
            played.disturbed,
            played.rounds.len(),
            foreign * 100.0,
            steal * 100.0
        ));
    }
    notes
}

fn server_notes(name: &str, observations: &[&Observation]) -> Vec<String> {
    let rounds = observations.len();
    let count = |is: &dyn Fn(&Observation) -> bool| observations.iter().filter(|o| is(o)).count();
    let shares = |share: &dyn Fn(&Observation) -> f64| {
        let shares: Vec<f64> = observations.iter().map(|o| share(o)).collect();
        Spread::of(&shares).map_or(0.0, |spread| spread.median * 100.0)
    };
    let mut notes = Vec::new();
    let bound = count(&|o| o.window.is_client_bound());
    if bound > 0 {
        notes.push(format!(
            "with {name} the client was the bottleneck in {bound} of {rounds} rounds (client \
             {:.0} %, server {:.0} % of a processor): only processor time tells, not throughput",
            shares(&|o| o.window.client_share()),
            shares(&|o| o.window.server_share())
        ));
    }
    let coarse = count(&|o| o.window.server_cpu_source == CpuSource::Ticks);
    if coarse > 0 {
        notes.push(format!(
            "{name}'s processor time is in ticks of 10 ms in {coarse} of {rounds} rounds, since \
             threads came or went"
        ));
    }
    notes
}

fn bar_note(name: &str, bar: (Metric, f64), observations: &[&Observation]) -> Option<String> {
    let (metric, limit) = bar;
    let figures: Vec<f64> = observations.iter().map(|o| metric.of(o)).collect();
    let max = Spread::of(&figures)?.max;
    let verdict = if max < limit { "below" } else { "NOT below" };
    Some(format!(
        "{name}: {} at most {max:.1}, {verdict} the bar of {limit}",
        metric.label()
    ))
}
