//! `cargo xtask soak`: the real server for minutes under clients that come, stall and vanish, while
//! its files are replaced, cut short and appended to.
//!
//! ```text
//!  keeper ─► site (files, and every state each of them ever had)
//!                 │
//!  clients ◄──► server ◄── watch (descriptors, memory)
//!     └─► every complete body is one of those states, or the run has failed
//! ```
//!
//! What a client does is drawn by dice from `--seed`, one stream for each client; when it happens
//! is the machine's to say.

mod acts;
mod dice;
mod site;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::workspace::{Fallible, Workspace};

use self::acts::Visitor;
use self::dice::Dice;
use self::site::{Site, is_log};
use crate::server::{self, Footprint, KEPT, ServerProcess};

/// A run is no longer than this: what has not shown in two hours does not show in three.
const MINUTES_MAX: u64 = 120;

/// Clients at once. More than the workers of a small machine, fewer than its descriptors.
const VISITORS: u64 = 12;

/// The load that is no longer counted as warming up.
const WARM_UP: Duration = Duration::from_secs(10);

/// How much more memory a run may end with than it had when warm. Allocators keep what was freed;
/// a leak of one buffer for each connection would be hundreds of times as much.
const GROWTH_BYTES_MAX: usize = 16 << 20;

/// How long the server may take to let go of what the last clients held.
const CALM: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long to go on, at most 120
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// What the dice begin with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The tool; built where it is left out
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// What a run counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answers: AtomicU64,
    /// Bodies that were read to their end and compared.
    pub(crate) bodies: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Answers that the server cut off because the file was cut short.
    pub(crate) cut: AtomicU64,
    /// Connections that a client left in the middle of something.
    pub(crate) left: AtomicU64,
    pub(crate) wrong: Mutex<Vec<String>>,
}

impl Tally {
    fn fail(&self, what: String) {
        if let Ok(mut wrong) = self.wrong.lock() {
            wrong.push(what);
        }
    }

    fn wrongs(&self) -> Vec<String> {
        self.wrong
            .lock()
            .map(|wrong| wrong.clone())
            .unwrap_or_default()
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Fallible<ExitCode> {
    let span = Duration::from_secs(60 * arguments.minutes.clamp(1, MINUTES_MAX));
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => server::build(workspace)?,
    };
    let site = Site::new(arguments.seed)?;
    let server = ServerProcess::start(Command::new(program), site.folder())?;
    let tally = Tally::default();
    let cold = server.footprint()?;
    let warm = load(&server, &site, &tally, arguments.seed, span)?;
    let calm = settled(&server, cold)?;
    let peak = calm.peak_bytes;
    let end = server.stop()?;
    let mut wrongs = tally.wrongs();
    wrongs.extend(judge(cold, warm, calm));
    let is_cut_short = |line: &str| line.contains("connection closed: ") && is_log(line);
    wrongs.extend(end.complaints(is_cut_short));
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} minutes, seed {}: {} answers, {} bodies compared, {} MiB; \
         {} cut off with their file, {} left by their client",
        span.as_secs() / 60,
        arguments.seed,
        count(&tally.answers),
        count(&tally.bodies),
        count(&tally.bytes) >> 20,
        count(&tally.cut),
        count(&tally.left),
    );
    println!(
        "descriptors: {} before, {} after; memory: {} KiB warm, {} after, {} at most; {}",
        cold.descriptors,
        calm.descriptors,
        warm.resident_bytes >> 10,
        calm.resident_bytes >> 10,
        peak >> 10,
        end.farewell.lines().next().unwrap_or("no farewell"),
    );
    for wrong in &wrongs {
        println!("wrong: {wrong}");
    }
    Ok(match wrongs.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Lets clients and the keeper of the files loose; returns what the server was when warm.
fn load(
    server: &ServerProcess,
    site: &Site,
    tally: &Tally,
    seed: u64,
    span: Duration,
) -> Fallible<Footprint> {
    let over = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| site.keep(Dice::of(seed, u64::MAX), &over));
        for number in 0..VISITORS {
            let mut visitor = Visitor::new(Dice::of(seed, number), server.address(), site, tally);
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    visitor.visit();
                }
            });
        }
        std::thread::sleep(WARM_UP.min(span / 2));
        let warm = server.footprint();
        while started.elapsed() < span && tally.wrongs().is_empty() && server.is_running() {
            std::thread::sleep(Duration::from_millis(200));
        }
        over.store(true, Ordering::Relaxed);
        warm
    })
}

/// What the server is when nobody asks for anything any more.
fn settled(server: &ServerProcess, cold: Footprint) -> Fallible<Footprint> {
    let started = Instant::now();
    loop {
        let now = server.footprint()?;
        if now.descriptors <= cold.descriptors + KEPT || started.elapsed() > CALM {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_told() {
        let of = |descriptors, resident_bytes| Footprint {
            descriptors,
            resident_bytes,
            peak_bytes: resident_bytes,
        };
        let (cold, warm) = (of(9, 1 << 20), of(400, 8 << 20));
        assert!(judge(cold, warm, of(9 + KEPT, 8 << 20)).is_empty());
        assert_eq!(judge(cold, warm, of(10 + KEPT, 80 << 20)).len(), 2);
    }
}
