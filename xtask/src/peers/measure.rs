//! Runs `underpass-bench` with the peers.
//!
//! Each call writes a result of six rounds or more. When every document of the page has one, those
//! whose intervals are too wide are called again, the widest first, until the time is over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::arguments::PeersArguments;
use super::installation::{FOLDER, Installation, build_underpass};
use super::page::RunRecord;
use super::results;
use super::table::{PeerDocument, PeerFileSystem, PeerTable};
use crate::needs::is_root;
use crate::workspace::{Fallible, exit_code, output};

/// A call that takes longer, or has no time left, is interrupted and shows its complete rounds.
const CALL_MAX: Duration = Duration::from_secs(12 * 60);
/// A whole run takes 40 minutes at most; on a busy machine rounds are repeated.
const RUN_MAX: Duration = Duration::from_secs(40 * 60);
/// What is measured on request may take longer.
const REQUESTED_MAX: Duration = Duration::from_secs(110 * 60);
/// Calls of a document; noise that they do not average out is shown by the interval.
const CALLS_MAX: usize = 4;
/// An interval is narrow enough within ± 8 %.
const WIDTH_MAX: f64 = 1.08;
/// Time for the bench to stop its contenders and to write its results.
const END_MAX: Duration = Duration::from_secs(60);

/// A run in progress.
struct PeerRun<'a> {
    installation: &'a Installation<'a>,
    table: &'a PeerTable,
    arguments: &'a PeersArguments,
    start: Instant,
    record: RunRecord,
}

/// Measures every requested document; one that fails doesn't stop the others.
pub(super) fn measure(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<ExitCode> {
    build_underpass(installation.workspace)?;
    let mut run = PeerRun {
        installation,
        table,
        arguments,
        start: Instant::now(),
        record: record(installation)?,
    };
    run.build_kits();
    fs::create_dir_all(run.folder())?;
    let mut is_good = true;
    for document in run.wanted() {
        results::remove(&run.folder(), document);
    }
    for document in run.wanted() {
        is_good &= run.call(document, 1)?;
    }
    if arguments.is_whole() && !arguments.quick {
        while let Some((document, call)) = run.widest() {
            if !run.call(document, call)? {
                break;
            }
        }
    }
    Ok(exit_code(is_good))
}

fn record(installation: &Installation<'_>) -> Fallible<RunRecord> {
    let said = |program: &str, arguments: &str| {
        let said = output(installation.command(program).args(arguments.split(' ')))?;
        Fallible::Ok(said.trim().to_owned())
    };
    Ok(RunRecord {
        commit: said("git", COMMIT)?,
        date: said("date", "-u +%Y-%m-%d")?,
        ..RunRecord::default()
    })
}

impl<'a> PeerRun<'a> {
    fn folder(&self) -> PathBuf {
        let root = &self.installation.workspace.root;
        root.join(self.arguments.result(""))
    }

    fn wanted(&self) -> impl Iterator<Item = &'a PeerDocument> + Clone + use<'a> {
        self.arguments.wanted(self.table)
    }

    /// Compiles the kits that take part, and records their versions, or why they are left out.
    fn build_kits(&mut self) {
        for kit in self.table.kits_of(self.wanted()) {
            let version = self.installation.version(kit);
            let built = version.and_then(|version| self.installation.build(kit).map(|()| version));
            match built {
                Ok(version) => drop(self.record.versions.insert(kit.name.clone(), version)),
                Err(lack) => self.record.leave_out(format!("{}: {lack}", kit.name)),
            }
        }
    }

    /// Calls the bench for a document, which may have results of earlier calls. Returns whether it
    /// was successful, or cannot be made here.
    fn call(&mut self, document: &PeerDocument, call: usize) -> Fallible<bool> {
        println!("\n== {}", document.name);
        if let Some(lack) = document.on.and_then(PeerFileSystem::lack) {
            self.record.leave_out(format!("{}: {lack}", document.title));
            return Ok(true);
        }
        let json = self.arguments.result(&results::name(document, call));
        let mut bench = bench(document, self.installation, self.arguments);
        bench.arg("--json").arg(json);
        for (option, peer) in self.table.contenders(document) {
            if self.record.versions.contains_key(&peer.kit) {
                bench.args([option, &format!("{}={}", peer.name, peer.command)]);
            }
        }
        let run_max = match self.arguments.is_whole() {
            true => RUN_MAX,
            false => REQUESTED_MAX,
        };
        let limit = CALL_MAX.min(run_max.saturating_sub(self.start.elapsed()));
        let ended = end_within(bench.args(&self.arguments.more), limit);
        if let Err(lack) = &ended {
            self.record.leave_out(format!("{}: {lack}", document.title));
        }
        self.record.minutes = self.start.elapsed().as_secs().div_ceil(60);
        self.record.write(&self.folder(), self.arguments)?;
        Ok(ended.is_ok())
    }

    /// Returns the document with the widest interval that is too wide, and the number of its next
    /// call; `None` if there is none, or no time for another call.
    fn widest(&self) -> Option<(&'a PeerDocument, usize)> {
        let folder = self.folder();
        let mut widest: Option<(f64, &PeerDocument, usize)> = None;
        for document in self.wanted() {
            let calls = results::read(&folder, document).ok()?;
            let comparisons = self.table.comparisons.iter();
            let standings = comparisons
                .filter(|one| one.document == document.name)
                .filter_map(|one| results::standing(self.table, one, &calls)?.half_width());
            let width = standings.fold(0.0, f64::max);
            let is_short = calls.len() < CALLS_MAX && width > WIDTH_MAX.ln();
            if is_short && widest.is_none_or(|(most, ..)| width > most) {
                widest = Some((width, document, calls.len() + 1));
            }
        }
        let is_time = self.start.elapsed() < RUN_MAX * 9 / 10;
        widest
            .filter(|_| is_time)
            .map(|(_, document, call)| (document, call))
    }
}

/// Runs the bench, and interrupts it (SIGINT) when its time is over.
fn end_within(bench: &mut Command, limit: Duration) -> Fallible<()> {
    let mut child = bench.spawn()?;
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut is_late = false;
    for (patience, signal) in [(limit, Signal::INT), (END_MAX, Signal::KILL)] {
        let timeout = Timespec::try_from(patience)?;
        if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? == 0 {
            is_late = true;
            kill_process(pid, signal)?;
        }
    }
    match child.wait()? {
        // It has completed its last round, perhaps without some contenders.
        status if matches!(status.code(), Some(0 | 3)) => Ok(()),
        _ if is_late => Err(format!("stopped after {limit:.0?}; the rest is not measured").into()),
        status => Err(status.to_string().into()),
    }
}

impl RunRecord {
    fn leave_out(&mut self, what: String) {
        println!("left out: {what}");
        self.left_out.push(what);
    }

    /// Writes the record of the run so far, for `--page`.
    fn write(&self, folder: &Path, arguments: &PeersArguments) -> Fallible<()> {
        let record = folder.join(arguments.record());
        Ok(fs::write(record, serde_json::to_string_pretty(self)?)?)
    }
}

/// The program that measures.
const BENCH: &str = "underpass-bench";

/// Arguments of git for the measured commit, marked if files differ from it.
const COMMIT: &str = "describe --always --exclude=* --abbrev=12 --dirty=-with-changes";

fn bench(
    document: &PeerDocument,
    installation: &Installation<'_>,
    arguments: &PeersArguments,
) -> Command {
    let on = document.on.map(|on| on.command(installation, BENCH));
    let mut bench = on.unwrap_or_else(|| installation.command(BENCH));
    // Folders where caddy would otherwise leave files.
    let home = installation.workspace.root.join(FOLDER).join("home");
    bench.env("XDG_CONFIG_HOME", &home).env("STEPPATH", &home);
    bench.args(document.bench.split_whitespace());
    bench.args(document.path.iter().flat_map(|path| ["--path", path]));
    let (rounds, more) = match arguments.quick {
        true => ("1", &document.quick),
        false => ("6", &document.full),
    };
    if arguments.quick {
        bench.arg("--quick");
    }
    bench.args(["--rounds", rounds]);
    bench.args(more.split_whitespace());
    if is_root() {
        bench.args(document.as_root.split_whitespace());
    }
    bench
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_stopped_and_the_run_goes_on() {
        let soon = Duration::from_millis(50);
        let late = end_within(Command::new("sleep").arg("1000"), soon).expect_err("too long");
        assert_eq!(
            late.to_string(),
            "stopped after 50ms; the rest is not measured"
        );
        let failed = end_within(&mut Command::new("false"), END_MAX).expect_err("a failure");
        assert_eq!(failed.to_string(), "exit status: 1");
        end_within(&mut Command::new("true"), END_MAX).expect("success");
    }
}
