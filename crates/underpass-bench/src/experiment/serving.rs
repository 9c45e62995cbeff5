//! Servers side by side: the ground of `http`, `small`, `cold` and `many`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Ground;
use super::observation::{Observation, observe_lanes};
use crate::document::{Calls, Contender, Timeline, Unit};
use crate::error::{Error, Result};
use crate::load::{Client, Lane, Pace, Quota, Specimen, Target, Waiting, flush_to_disk, verify};
use crate::named::Named;
use crate::proc::{self, Memory};
use crate::run::Run;
use crate::server::{Server, Setup};
use crate::throttle::Throttle;
use crate::trace;
use crate::window::settled;

/// One receive of a connection that is alone in wanting to be fast.
const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// How often memory is looked at, in the pass that is for looking.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);

/// Requests of the pass that counts system calls: strace makes each a hundred times slower.
const TRACED_BODY_BYTES_MAX: u64 = 1 << 30;
const TRACED_REQUESTS_MAX: u64 = 2000;

/// Our own server, under a name and with some more arguments.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
}

impl Variant {
    pub(crate) fn new(name: &str, arguments: &[&str]) -> Variant {
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        Variant {
            name: name.to_owned(),
            arguments: arguments.collect(),
        }
    }
}

/// The servers of an experiment, and the folder that all of them serve.
pub(crate) struct Bench {
    site: PathBuf,
    processor: Option<usize>,
    throttle: Option<Throttle>,
    entrants: Vec<Entrant>,
}

/// A server with its setup; running from `Bench::start` on.
struct Entrant {
    setup: Setup,
    server: Option<Server>,
}

impl Bench {
    /// Starts all servers: our own ones, then those of the user. `name` is the experiment's.
    pub(crate) fn start(
        name: &str,
        variants: &[Variant],
        others: &[Named],
        ground: &Ground,
        throttle: Option<Throttle>,
    ) -> Result<Bench> {
        let place = |what: &str| ground.scratch.subdirectory(&format!("{name}/{what}"));
        let site = place("www")?;
        let mut setups = Vec::new();
        for variant in variants {
            let own = place(&format!("server-{}", setups.len()))?;
            setups.push(Setup::own(&variant.name, &variant.arguments, &site, own)?);
        }
        for named in others {
            let own = place(&format!("server-{}", setups.len()))?;
            setups.push(Setup::of(named, &site, own)?);
        }
        let entrants = setups.into_iter().map(|setup| Entrant {
            setup,
            server: None,
        });
        let mut bench = Bench {
            site,
            processor: ground.seats.contender,
            throttle,
            entrants: entrants.collect(),
        };
        for index in 0..bench.len() {
            bench.restart(index)?;
        }
        Ok(bench)
    }

    pub(crate) fn len(&self) -> usize {
        self.entrants.len()
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

    pub(crate) fn server(&self, index: usize) -> Result<&Server> {
        let server = self.entrants[index].server.as_ref();
        server.ok_or_else(|| Error::Contender(format!("{} is not running", self.name(index))))
    }

    /// Starts a server anew: one that has done nothing yet.
    pub(crate) fn restart(&mut self, index: usize) -> Result<()> {
        let entrant = &mut self.entrants[index];
        entrant.server.take().map_or(Ok(()), Server::stop)?;
        let server = entrant.setup.start(self.processor)?;
        if let Some(throttle) = &self.throttle {
            throttle.add(server.pid())?;
        }
        entrant.server = Some(server);
        Ok(())
    }

    /// Puts the files on disk, then has every server send every one of them, and compares hashes.
    pub(crate) fn verify(&self, specimens: &[Specimen]) -> Result<()> {
        flush_to_disk(&self.site)?;
        (0..self.len()).try_for_each(|index| {
            let verified = verify(self.server(index)?.address(), specimens);
            verified.map_err(|error| error.of(self.name(index)))
        })
    }

    /// Puts these lanes on a server, and reads what it cost. Requests and latencies are those of
    /// the first lane, bytes those of all.
    pub(crate) fn observe(
        &self,
        index: usize,
        lanes: Vec<Lane<'_>>,
        waiting: Waiting,
    ) -> Result<Observation> {
        let server = self.server(index)?;
        let observed = observe_lanes(server, lanes, waiting);
        observed.map_err(|error| error.of(self.name(index)))
    }

    /// Counts the system calls of so many requests of each server; says why where it can't be done.
    pub(crate) fn count_calls(&self, asked: &Asked<'_>, run: &Run) -> Result<Counted> {
        let mut all = Vec::new();
        let bytes = asked.specimens.first().map_or(1, |s| s.bytes.max(1));
        let requests = TRACED_REQUESTS_MAX
            .min((TRACED_BODY_BYTES_MAX / bytes).max(1))
            .max(asked.connections as u64);
        for (contender, entrant) in self.entrants.iter().enumerate() {
            let server = self.server(contender)?;
            let targets = asked.targets(server);
            let lane = asked.lane(&targets, Quota::Requests(requests));
            let mut client = Client::connect(server.address(), vec![lane], Waiting::Sleeping)?;
            settled(server.pid())?;
            let log = entrant.setup.own_directory().join("calls.log");
            let counted = trace::count_calls(server.pid(), &log, || client.run().map(drop));
            let calls = match counted {
                Ok(calls) => calls,
                Err(Error::Setting(why)) => return Ok(Counted::Not(why)),
                Err(error) => return Err(error.of(self.name(contender))),
            };
            let mut by_name: Vec<(String, u64)> = calls.into_iter().collect();
            by_name.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
            all.push(Calls {
                contender,
                operations: requests,
                by_name,
            });
        }
        Ok(Counted::Calls(all))
    }

    /// How memory of a server goes during such a load, in a pass that is not timed.
    pub(crate) fn watch(&self, index: usize, asked: &Asked<'_>) -> Result<Vec<Timeline>> {
        let server = self.server(index)?;
        let targets = asked.targets(server);
        let lane = asked.lane(&targets, asked.quota);
        let mut client = Client::connect(server.address(), vec![lane], asked.waiting)?;
        let processes = proc::process_tree(server.pid())?;
        let is_over = AtomicBool::new(false);
        let samples = thread::scope(|scope| {
            let sampler = scope.spawn(|| sample(&processes, &is_over));
            let done = client.run();
            is_over.store(true, Ordering::Relaxed);
            let samples = sampler.join().unwrap_or_default();
            done.map(|_| samples)
        });
        let samples = samples.map_err(|error| error.of(self.name(index)))?;
        Ok(timelines(index, &samples))
    }

    /// Stops every server; the first failure is told, after all were tried.
    pub(crate) fn finish(self) -> Result<()> {
        let servers = self.entrants.into_iter().filter_map(|e| e.server);
        let stopped: Vec<Result<()>> = servers.map(Server::stop).collect();
        stopped.into_iter().collect()
    }
}

/// What a closed load asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) specimens: &'a [Specimen],
    pub(crate) connections: usize,
    pub(crate) quota: Quota,
    pub(crate) waiting: Waiting,
}

impl Asked<'_> {
    pub(crate) fn targets(&self, server: &Server) -> Vec<Target> {
        let address = server.address();
        self.specimens.iter().map(|s| s.target(address)).collect()
    }

    pub(crate) fn lane<'t>(&self, targets: &'t [Target], quota: Quota) -> Lane<'t> {
        Lane {
            targets,
            connections: self.connections,
            pace: Pace::Closed(quota),
            receive_bytes_max: RECEIVE_BYTES_MAX,
        }
    }
}

/// Whether calls could be counted, or why not.
pub(crate) enum Counted {
    Calls(Vec<Calls>),
    Not(String),
}

/// Looks at memory again and again until it is over, and once more then.
fn sample(processes: &[u32], is_over: &AtomicBool) -> Vec<(f64, Memory)> {
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

fn timelines(contender: usize, samples: &[(f64, Memory)]) -> Vec<Timeline> {
    let first = samples.first().map_or(0, |(_, memory)| memory.page_faults);
    let line = |label: &str, unit, value: &dyn Fn(&Memory) -> u64| Timeline {
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
