//! Puts a case's load on one server and reads off what it cost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};

use super::case::Load;
use super::client::{Client, Lane, Pace, Tally, Waiting};
use super::data::{Batch, Specimen};
use super::error::{Doing, Error, Result};
use super::exchange::{Discard, Exchange, Progress, Target};
use super::metric::{Latency, Observation};
use super::proc;
use super::server::Server;
use super::stats::percentile;
use super::trace::{self, Calls};
use super::verify::verify;
use super::window::observe;

/// One receive of a connection that is alone in wanting to be fast.
const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// One receive of a stream beside requests whose latency is measured.
const RECEIVE_BYTES_BESIDE: usize = 256 << 10;

/// Connections for the hot requests: more than can be waiting unless the server stalls.
const HOT_CONNECTIONS: usize = 16;

/// What a slow reader takes at a time, and how long all of them then pause.
const SLOW_RECEIVE_BYTES: usize = 16 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(50);

/// A server that lets a reader wait longer for its head, among all the others, has failed.
const SLOW_ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests of the pass that counts system calls: strace makes each a hundred times slower.
const TRACED_BODY_BYTES_MAX: u64 = 1 << 30;
const TRACED_REQUESTS_MAX: u64 = 2000;

/// The files that exist so far, by batch.
pub(crate) struct Site {
    root: PathBuf,
    made: BTreeMap<(&'static str, u64), Vec<Specimen>>,
}

impl Site {
    pub(crate) fn new(root: PathBuf) -> Site {
        Site {
            root,
            made: BTreeMap::new(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes what a load needs, and waits until it is on disk, lest writing it back disturb.
    pub(crate) fn make(&mut self, load: &Load) -> Result<()> {
        for batch in load.batches() {
            let key = (batch.name, batch.bytes);
            if !self.made.contains_key(&key) {
                self.made.insert(key, batch.make(&self.root)?);
            }
        }
        let root = rustix::fs::openat(CWD, &self.root, OFlags::DIRECTORY, Mode::empty());
        root.and_then(rustix::fs::syncfs)
            .doing(|| "writing the files to disk".into())
    }

    fn specimens(&self, batch: &Batch) -> &[Specimen] {
        self.made
            .get(&(batch.name, batch.bytes))
            .map_or(&[], Vec::as_slice)
    }

    fn targets(&self, batch: &Batch, server: &Server) -> Vec<Target> {
        let address = server.setup.address;
        self.specimens(batch)
            .iter()
            .map(|specimen| specimen.target(address))
            .collect()
    }
}

impl Load {
    fn batches(&self) -> Vec<Batch> {
        match *self {
            Load::Closed { batch, .. } | Load::Slow { batch, .. } => vec![batch],
            Load::Cold { hot, cold, .. } => vec![hot, cold],
        }
    }

    /// Fetches every file once and compares hashes.
    pub(crate) fn verify(&self, site: &Site, server: &Server) -> Result<()> {
        let verify = |batch| verify(server.setup.address, site.specimens(&batch));
        self.batches().into_iter().try_for_each(verify)
    }

    /// Runs the load once, measured.
    pub(crate) fn measure(
        &self,
        site: &Site,
        server: &Server,
        waiting: Waiting,
    ) -> Result<Observation> {
        match self {
            Load::Closed {
                batch,
                connections,
                requests,
            } => {
                site.specimens(batch).iter().try_for_each(Specimen::warm)?;
                let targets = site.targets(batch, server);
                let lane = closed_lane(&targets, *connections, *requests);
                measure_lanes(server, vec![lane], waiting)
            }
            Load::Slow {
                batch,
                connections,
                hold,
            } => measure_slow(server, &site.targets(batch, server), *connections, *hold),
            Load::Cold {
                hot,
                interval,
                cold,
                streams,
            } => {
                site.specimens(cold).iter().try_for_each(Specimen::evict)?;
                site.specimens(hot).iter().try_for_each(Specimen::warm)?;
                let (hot, cold) = (site.targets(hot, server), site.targets(cold, server));
                let files = cold.len() as u64;
                let mut stream = closed_lane(&cold, *streams, files);
                stream.receive_bytes_max = RECEIVE_BYTES_BESIDE;
                let pace = Pace::Open {
                    interval: *interval,
                };
                let connections = HOT_CONNECTIONS;
                let receive_bytes_max = RECEIVE_BYTES_BESIDE;
                let hot = Lane {
                    targets: &hot,
                    connections,
                    pace,
                    receive_bytes_max,
                };
                measure_lanes(server, vec![hot, stream], waiting)
            }
        }
    }

    /// Counts the system calls of a closed load; the others would say nothing new.
    pub(crate) fn count_calls(
        &self,
        site: &Site,
        server: &Server,
        log: &Path,
    ) -> Result<Option<(Calls, u64)>> {
        let Load::Closed {
            batch,
            connections,
            requests,
        } = self
        else {
            return Ok(None);
        };
        let targets = site.targets(batch, server);
        let requests = (*requests)
            .min(TRACED_REQUESTS_MAX)
            .min((TRACED_BODY_BYTES_MAX / batch.bytes).max(1))
            .max(*connections as u64);
        let lane = closed_lane(&targets, *connections, requests);
        let mut client = Client::connect(server.setup.address, vec![lane], Waiting::Sleeping)?;
        server.settled_cpu()?;
        let calls = trace::count_calls(server, log, || client.run().map(drop))?;
        Ok(Some((calls, requests)))
    }
}

fn closed_lane(targets: &[Target], connections: usize, requests: u64) -> Lane<'_> {
    let pace = Pace::Closed { requests };
    Lane {
        targets,
        connections,
        pace,
        receive_bytes_max: RECEIVE_BYTES_MAX,
    }
}

/// Requests and latencies are those of the first lane, bytes those of all.
fn measure_lanes(server: &Server, lanes: Vec<Lane<'_>>, waiting: Waiting) -> Result<Observation> {
    let mut client = Client::connect(server.setup.address, lanes, waiting)?;
    let stored = proc::storage_read_bytes(server.pid())?.unwrap_or(0);
    let (mut outcome, mut window) = observe(server, || client.run())?;
    window.client_idle = match waiting {
        Waiting::Spinning => outcome.idle,
        Waiting::Sleeping => Duration::ZERO,
    };
    let stored = proc::storage_read_bytes(server.pid())?
        .unwrap_or(0)
        .saturating_sub(stored);
    let body_bytes = outcome.tallies.iter().map(|tally| tally.body_bytes).sum();
    let timed = &mut outcome.tallies[0];
    Ok(Observation {
        window,
        requests: timed.requests,
        body_bytes,
        latency: latency(timed),
        peak_resident_bytes: proc::peak_resident_bytes(server.pid())?,
        tcp_buffer_bytes: proc::tcp_buffer_bytes().unwrap_or(0),
        storage_read_bytes: stored,
    })
}

fn latency(tally: &mut Tally) -> Latency {
    let mut at = |share| {
        let nanoseconds = percentile(&mut tally.latencies_ns, share).unwrap_or(0);
        Duration::from_nanos(nanoseconds)
    };
    Latency {
        p50: at(0.50),
        p99: at(0.99),
        max: at(1.0),
    }
}

fn measure_slow(
    server: &Server,
    targets: &[Target],
    connections: usize,
    hold: Duration,
) -> Result<Observation> {
    let target = targets
        .first()
        .ok_or_else(|| Error::Setting("no file to read".into()))?;
    let (outcome, window) = observe(server, || read_slowly(server, target, connections, hold))?;
    Ok(Observation {
        window,
        requests: connections as u64,
        body_bytes: 0,
        latency: Latency::default(),
        peak_resident_bytes: outcome.peak_resident_bytes,
        tcp_buffer_bytes: outcome.tcp_buffer_bytes,
        storage_read_bytes: 0,
    })
}

struct SlowOutcome {
    peak_resident_bytes: u64,
    tcp_buffer_bytes: u64,
}

/// All connections ask, then each takes a little per pass: until every one is in its body, and
/// then for as long as they are to be held.
fn read_slowly(
    server: &Server,
    target: &Target,
    connections: usize,
    hold: Duration,
) -> Result<SlowOutcome> {
    let mut readers = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut reader = Exchange::connect(server.setup.address)?;
        reader.begin(target, Instant::now())?;
        readers.push(reader);
    }
    let mut tcp_buffer_bytes = 0;
    let start = Instant::now();
    let mut all_answered = None;
    while all_answered.is_none_or(|since: Instant| since.elapsed() < hold) {
        read_a_little(&mut readers)?;
        tcp_buffer_bytes = tcp_buffer_bytes.max(proc::tcp_buffer_bytes().unwrap_or(0));
        let waiting = readers.iter().filter(|reader| !reader.is_in_body()).count();
        if waiting == 0 {
            all_answered.get_or_insert_with(Instant::now);
        } else if start.elapsed() > SLOW_ANSWER_TIMEOUT {
            return Err(Error::Answer(format!(
                "{waiting} of {connections} got no answer"
            )));
        }
        sleep(SLOW_PAUSE);
    }
    let peak_resident_bytes = proc::peak_resident_bytes(server.pid())?;
    Ok(SlowOutcome {
        peak_resident_bytes,
        tcp_buffer_bytes,
    })
}

fn read_a_little(readers: &mut [Exchange]) -> Result<()> {
    let mut discard = Discard::new(SLOW_RECEIVE_BYTES);
    for reader in readers {
        if reader.advance(&mut discard)? == Progress::Complete {
            return Err(Error::Setting(
                "the file is too small for slow readers".into(),
            ));
        }
    }
    Ok(())
}
