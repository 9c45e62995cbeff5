//! Connections that ask again as soon as an answer is complete: the load of `http` and `small`.

use std::sync::atomic::AtomicBool;

use super::observation::{Observation, Pages, latencies, notes_of, of_contender, targets_of};
use super::serving::Bench;
use super::size_label;
use crate::document::{Calls, Case, Timeline};
use crate::error::{Error, Result};
use crate::load::{Client, Lane, Pace, Quota, Specimen, Target, Waiting};
use crate::rounds::Played;
use crate::run::{Metric, Run, Trial, notes_of_rounds, read_off};
use crate::server::Server;
use crate::trace;
use crate::window::settled;

/// One receive of a connection that is alone in wanting to be fast.
const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// Requests of the pass that counts system calls: strace makes each a hundred times slower.
const TRACED_BODY_BYTES_MAX: u64 = 1 << 30;
const TRACED_REQUESTS_MAX: u64 = 2000;

/// Such a load, on all servers in turns.
pub(crate) struct Closed<'b> {
    pub(crate) bench: &'b Bench,
    /// What is asked for, in turns; all of one size.
    pub(crate) specimens: &'b [Specimen],
    pub(crate) connections: usize,
    pub(crate) quota: Quota,
    pub(crate) waiting: Waiting,
    /// Set by whoever wants it to end.
    pub(crate) stop: &'b AtomicBool,
}

/// Whether calls could be counted, or why not.
pub(crate) enum Counted {
    Calls(Vec<Calls>),
    Not(String),
}

impl Closed<'_> {
    /// Plays the rounds; nothing if it was stopped before one was complete. `weight` is that of
    /// one contender in one round.
    pub(crate) fn case(
        &mut self,
        metrics: &[Metric<Observation>],
        weight: u64,
        run: &Run,
    ) -> Result<Option<Case>> {
        let contenders = self.bench.len();
        let played = run.play(self, contenders, weight)?;
        Ok((!played.rounds.is_empty()).then(|| self.told(metrics, &played)))
    }

    /// How memory goes while all of it is asked for once more, server by server.
    pub(crate) fn timelines(&self, weight: u64, run: &Run) -> Result<Vec<Timeline>> {
        let mut all = Vec::new();
        for contender in 0..self.bench.len() {
            let targets = targets_of(self.specimens, self.bench.server(contender)?);
            let lane = self.lane(&targets, self.quota);
            let work = |server: &Server| {
                let mut client = Client::connect(server.address(), vec![lane], self.waiting)?;
                client.run(self.stop).map(drop)
            };
            match self.bench.watch(contender, work) {
                Err(_) if run.is_stopped() => break,
                lines => all.extend(lines?),
            }
            run.progress.done(weight);
        }
        Ok(all)
    }

    /// Counts the system calls of some requests of each server, under strace.
    pub(crate) fn count_calls(&self, weight: u64, run: &Run) -> Result<Counted> {
        let bytes = self.specimens.first().map_or(1, |s| s.bytes.max(1));
        let requests = TRACED_REQUESTS_MAX
            .min((TRACED_BODY_BYTES_MAX / bytes).max(1))
            .max(self.connections as u64);
        let mut all = Vec::new();
        for contender in 0..self.bench.len() {
            let calls = match self.calls_of(contender, requests) {
                Ok(calls) => calls,
                Err(Error::Setting(why)) => return Ok(Counted::Not(why)),
                Err(_) if run.is_stopped() => break,
                Err(error) => return Err(error.of(self.bench.name(contender))),
            };
            let mut by_name: Vec<(String, u64)> = calls.into_iter().collect();
            by_name.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
            all.push(Calls {
                contender,
                operations: requests,
                by_name,
            });
            run.progress.done(weight);
        }
        Ok(Counted::Calls(all))
    }

    fn calls_of(&self, contender: usize, requests: u64) -> Result<trace::Calls> {
        let server = self.bench.server(contender)?;
        let targets = targets_of(self.specimens, server);
        let lane = self.lane(&targets, Quota::Requests(requests));
        let mut client = Client::connect(server.address(), vec![lane], Waiting::Sleeping)?;
        settled(server.pid())?;
        let log = self.bench.own_directory(contender).join("calls.log");
        trace::count_calls(server.pid(), &log, || client.run(self.stop).map(drop))
    }

    fn lane<'t>(&self, targets: &'t [Target], quota: Quota) -> Lane<'t> {
        Lane {
            targets,
            connections: self.connections,
            pace: Pace::Closed(quota),
            receive_bytes_max: RECEIVE_BYTES_MAX,
        }
    }

    fn told(&self, metrics: &[Metric<Observation>], played: &Played<Observation>) -> Case {
        let bytes = self.specimens.first().map_or(0, |specimen| specimen.bytes);
        let mut notes = notes_of_rounds(played);
        for index in 0..self.bench.len() {
            let own = of_contender(played, index);
            notes.extend(notes_of(self.bench.name(index), &own, Pages::Cached));
        }
        Case {
            label: size_label(bytes),
            x: bytes as f64,
            load: self.describe(bytes),
            metrics: read_off(metrics, played),
            latencies: latencies(played),
            notes,
            ..Case::default()
        }
    }

    /// The load in plain words.
    fn describe(&self, bytes: u64) -> String {
        let what = match self.specimens.len() {
            1 => format!("a file of {}", size_label(bytes)),
            files => format!("{files} files of {}", size_label(bytes)),
        };
        let how_long = match self.quota {
            Quota::Requests(requests) => format!("{requests} requests a round"),
            Quota::Span(span) => format!("requests begin for {span:?} a round"),
        };
        let connections = self.connections;
        format!(
            "{connections} connections, each asking again at once; {what} in the page cache; \
             {how_long}, and every answer is taken whole"
        )
    }
}

impl Trial for Closed<'_> {
    type Observation = Observation;

    fn play(&mut self, contender: usize) -> Result<Observation> {
        self.specimens.iter().try_for_each(Specimen::warm)?;
        let targets = targets_of(self.specimens, self.bench.server(contender)?);
        let lane = self.lane(&targets, self.quota);
        self.bench
            .observe(contender, vec![lane], self.waiting, self.stop)
    }

    fn is_disturbed(&self, observation: &Observation) -> bool {
        observation.lost_page_cache() || observation.window.is_disturbed()
    }
}
