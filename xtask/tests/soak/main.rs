//! The real server for minutes under clients that come, stall and vanish, while its files are
//! replaced, cut short and appended to.
//!
//! ```text
//!  keeper ─► site (files, and every state each of them ever had)
//!                 │
//!  clients ◄──► server ◄── watch (descriptors, memory)
//!     └─► every complete body is one of those states, or the run has failed
//! ```
//!
//! The actions of clients are drawn from `UNDERPASS_SOAK_SEED`, one stream of random numbers for
//! each client; their timing depends on the machine. `UNDERPASS_SOAK_MINUTES` makes a run longer.

mod acts;
mod site;

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use underpass_testkit::{SeededRandom, ServerProcess};

use self::acts::Visitor;
use self::site::{Site, is_log};

/// Workers of the server.
const WORKERS: usize = 2;

/// Descriptors that each worker keeps: an instance of inotify once a file has been requested twice,
/// and both ends of 16 pipes used for large bodies.
const KEPT: usize = WORKERS * (1 + 2 * 16);

/// Concurrent clients: more than the workers of a small machine, fewer than its descriptors.
const VISITORS: u64 = 12;

/// The time that counts as warming up.
const WARM_UP: Duration = Duration::from_secs(10);

/// Allowed growth of memory after warming up. Allocators keep freed memory; a leak of one buffer
/// for each connection would be hundreds of times as much.
const GROWTH_BYTES_MAX: usize = 16 << 20;

/// A run with fewer compared bodies or vanished clients per minute has tested nothing. An idle
/// machine has a hundred times as many.
const BODIES_MIN: u64 = 200;
const LEFT_MIN: u64 = 20;

/// Time for the server to release the resources of the last clients.
const CALM: Duration = Duration::from_secs(20);

/// The counts of a run.
#[derive(Debug, Default)]
struct Tally {
    answers: AtomicU64,
    /// Bodies read to their end and compared.
    bodies: AtomicU64,
    bytes: AtomicU64,
    /// Responses that the server ended early because the file was cut short.
    cut: AtomicU64,
    /// Connections that a client closed in the middle of something.
    left: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Tally {
    fn fail(&self, what: String) {
        self.wrong.lock().expect("no client panicked").push(what);
    }

    fn wrongs(&self) -> Vec<String> {
        self.wrong.lock().expect("no client panicked").clone()
    }
}

/// The resources of the server's process.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    descriptors: usize,
    resident_bytes: usize,
}

impl Footprint {
    fn of(server: &ServerProcess) -> Self {
        Self {
            descriptors: server.descriptors(),
            resident_bytes: server.resident_bytes(),
        }
    }
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn a_load_of_everything_leaves_nothing_behind_and_sends_no_wrong_byte() {
    let number = |name: &str| {
        let value = env::var(format!("UNDERPASS_SOAK_{name}")).ok();
        value.map_or(1, |value| value.parse().expect("a number"))
    };
    let (minutes, seed) = (number("MINUTES"), number("SEED"));
    let span = Duration::from_secs(60 * minutes);
    let program = env::var_os("CARGO_BIN_EXE_underpass").expect("cargo xtask test says where");
    let site = Site::new(seed).expect("a site");
    let workers = WORKERS.to_string();
    let tool = Command::new(program);
    let mut server = ServerProcess::serve(tool, &["--workers", &workers], site.folder());
    let tally = Tally::default();
    let cold = Footprint::of(&server);
    let warm = load(&mut server, &site, &tally, seed, span);
    let calm = settled(&server, cold);
    let peak = status_line(&server, "VmHWM:");
    let end = server.stop();
    let mut wrongs = tally.wrongs();
    wrongs.extend(judge(cold, warm, calm));
    let is_cut_short = |line: &&str| line.contains("connection closed: ") && is_log(line);
    let said = end.errors.lines().filter(|line| !is_cut_short(line));
    wrongs.extend(said.map(|line| format!("the server said: {line}")));
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{minutes} minutes, seed {seed}: {} answers, {} bodies compared, {} MiB; \
         {} cut off with their file, {} left by their client",
        count(&tally.answers),
        count(&tally.bodies),
        count(&tally.bytes) >> 20,
        count(&tally.cut),
        count(&tally.left),
    );
    println!(
        "descriptors: {} before, {} after; memory: {} KiB warm, {} KiB after, at most {peak}; {}",
        cold.descriptors,
        calm.descriptors,
        warm.resident_bytes >> 10,
        calm.resident_bytes >> 10,
        end.output.lines().last().unwrap_or("no farewell"),
    );
    assert!(wrongs.is_empty(), "{wrongs:#?}");
    let (bodies, left) = (count(&tally.bodies), count(&tally.left));
    assert!(bodies >= minutes * BODIES_MIN, "{bodies} bodies only");
    assert!(left >= minutes * LEFT_MIN, "{left} clients left only");
    assert_eq!(end.code, Some(0), "{end:?}");
}

/// Runs the clients and the keeper of the files; returns the server's footprint once it is warm.
fn load(
    server: &mut ServerProcess,
    site: &Site,
    tally: &Tally,
    seed: u64,
    span: Duration,
) -> Footprint {
    let over = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| site.keep(SeededRandom::of_case(seed, u64::MAX), &over));
        for number in 0..VISITORS {
            let random = SeededRandom::of_case(seed, number);
            let mut visitor = Visitor::new(random, server.address(), site, tally);
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    visitor.visit();
                }
            });
        }
        std::thread::sleep(WARM_UP.min(span / 2));
        let warm = Footprint::of(server);
        while started.elapsed() < span && tally.wrongs().is_empty() && !server.is_over() {
            std::thread::sleep(Duration::from_millis(200));
        }
        over.store(true, Ordering::Relaxed);
        warm
    })
}

/// Returns the footprint of the idle server after the load.
fn settled(server: &ServerProcess, cold: Footprint) -> Footprint {
    let started = Instant::now();
    loop {
        let now = Footprint::of(server);
        if now.descriptors <= cold.descriptors + KEPT || started.elapsed() > CALM {
            return now;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn status_line(server: &ServerProcess, name: &str) -> String {
    let path = format!("/proc/{}/status", server.pid().as_raw_nonzero());
    let status = fs::read_to_string(Path::new(&path)).expect("it runs");
    let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
    lines.next().unwrap_or_default().trim().to_owned()
}

fn judge(cold: Footprint, warm: Footprint, calm: Footprint) -> Vec<String> {
    let mut wrongs = Vec::new();
    if calm.descriptors > cold.descriptors + KEPT {
        let (before, after) = (cold.descriptors, calm.descriptors);
        wrongs.push(format!("{before} descriptors before, {after} afterwards"));
    }
    if calm.resident_bytes > warm.resident_bytes + GROWTH_BYTES_MAX {
        let (before, after) = (warm.resident_bytes, calm.resident_bytes);
        wrongs.push(format!(
            "{before} bytes in memory when warm, {after} afterwards"
        ));
    }
    wrongs
}

#[test]
fn what_grows_is_found() {
    let of = |descriptors, resident_bytes| Footprint {
        descriptors,
        resident_bytes,
    };
    let (cold, warm) = (of(9, 1 << 20), of(400, 8 << 20));
    assert!(judge(cold, warm, of(9 + KEPT, 8 << 20)).is_empty());
    assert_eq!(judge(cold, warm, of(10 + KEPT, 80 << 20)).len(), 2);
}
