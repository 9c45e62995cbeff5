//! Runs `underpass bench` with all available peers.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::arguments::PeersArguments;
use super::installation::{FOLDER, Installation, build_underpass};
use super::page::RunRecord;
use super::table::{PeerDocument, PeerFileSystem, PeerKit, PeerProgram, PeerTable};
use crate::needs::is_root;
use crate::workspace::{Fallible, exit_code, output};

/// A document that takes longer, or has no time left, is interrupted and shows its complete rounds.
const DOCUMENT_MAX: Duration = Duration::from_secs(12 * 60);
/// A run takes 74 minutes on a quiet machine; on a busy one rounds are repeated.
const RUN_MAX: Duration = Duration::from_secs(110 * 60);
/// Time for the bench to stop its contenders and to write its results.
const END_MAX: Duration = Duration::from_secs(60);

/// Makes every requested document; one that fails doesn't stop the others.
pub(super) fn measure(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<ExitCode> {
    build_underpass(installation.workspace)?;
    let start = Instant::now();
    let said = |program: &str, arguments: &str| {
        let said = output(installation.command(program).args(arguments.split(' ')))?;
        Fallible::Ok(said.trim().to_owned())
    };
    let mut run = RunRecord {
        commit: said("git", COMMIT)?,
        date: said("date", "-u +%Y-%m-%d")?,
        ..RunRecord::default()
    };
    let wanted = || table.documents.iter().filter(|one| arguments.wants(one));
    let is_used = |kit: &&PeerKit| {
        let takes_part = |peer: &PeerProgram| {
            wanted().any(|document| peer.experiments.contains(&document.experiment))
        };
        let mut peers = table.peers().filter(|(_, peer)| peer.kit == kit.name);
        peers.any(|(_, peer)| takes_part(peer))
    };
    for kit in table.kits.iter().filter(is_used) {
        let version = installation.version(kit);
        let built = version.and_then(|version| installation.build(kit).map(|()| version));
        match built {
            Ok(version) => drop(run.versions.insert(kit.name.clone(), version)),
            Err(lack) => run.leave_out(format!("{}: {lack}", kit.name)),
        }
    }
    let folder = installation.workspace.root.join(arguments.result(""));
    fs::create_dir_all(&folder)?;
    if arguments.is_whole() {
        // The page shows a single run.
        for document in wanted() {
            let _ = fs::remove_file(folder.join(format!("{}.json", document.name)));
        }
    }
    run.write(&folder, arguments)?;
    let mut is_good = true;
    for document in wanted() {
        println!("\n== {}", document.name);
        if let Some(lack) = document.on.and_then(PeerFileSystem::lack) {
            run.leave_out(format!("{}: {lack}", document.title));
            continue;
        }
        let mut bench = bench(document, installation, arguments);
        for (option, peer) in table.peers() {
            let takes_part = peer.experiments.contains(&document.experiment)
                && !document.without.contains(&peer.name)
                && run.versions.contains_key(&peer.kit);
            if takes_part {
                bench.args([option, &format!("{}={}", peer.name, peer.command)]);
            }
        }
        let limit = DOCUMENT_MAX.min(RUN_MAX.saturating_sub(start.elapsed()));
        if let Err(lack) = end_within(bench.args(&arguments.more), limit) {
            run.leave_out(format!("{}: {lack}", document.title));
            is_good = false;
        }
        run.minutes = start.elapsed().as_secs().div_ceil(60);
        run.write(&folder, arguments)?;
    }
    Ok(exit_code(is_good))
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
        true => (document.quick_rounds.max(1), &document.quick),
        false => (document.rounds.max(6), &document.full),
    };
    if arguments.quick {
        bench.arg("--quick");
    }
    bench.args(["--rounds", &rounds.to_string()]);
    bench.args(more.split_whitespace());
    if is_root() {
        bench.args(document.as_root.split_whitespace());
    }
    let json = arguments.result(&format!("{}.json", document.name));
    bench.arg("--json").arg(json);
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
