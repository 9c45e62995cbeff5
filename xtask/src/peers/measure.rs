//! `underpass bench` with everybody who is there.

use std::fs;
use std::process::{Command, ExitCode};
use std::time::Instant;

use super::arguments::PeersArguments;
use super::installation::{FOLDER, Installation, build_underpass};
use super::page::RunRecord;
use super::table::{PeerDocument, PeerFileSystem, PeerTable};
use crate::needs::is_root;
use crate::workspace::{Fallible, exit_code, output};

const ROUNDS: usize = 6;

/// Makes every document that is asked for; one that fails doesn't stop the others.
pub(super) fn measure(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<ExitCode> {
    build_underpass(installation.workspace)?;
    let start = Instant::now();
    let mut run = RunRecord {
        commit: commit(installation)?,
        date: output(installation.command("date").args(["-u", "+%Y-%m-%d"]))?
            .trim()
            .to_owned(),
        ..RunRecord::default()
    };
    for kit in &table.kits {
        let version = installation.version(kit);
        let built = version.and_then(|version| installation.build(kit).map(|()| version));
        match built {
            Ok(version) => drop(run.versions.insert(kit.name.clone(), version)),
            Err(lack) => run.leave_out(format!("{}: {lack}", kit.name)),
        }
    }
    let is_wanted = |document: &&PeerDocument| {
        let PeersArguments {
            experiments,
            documents,
            ..
        } = arguments;
        (experiments.is_empty() || experiments.contains(&document.experiment))
            && (documents.is_empty() || documents.contains(&document.name))
    };
    let folder = installation.workspace.root.join(arguments.result(""));
    fs::create_dir_all(&folder)?;
    if arguments.is_whole() {
        // The page is of one run.
        for document in &table.documents {
            let _ = fs::remove_file(folder.join(format!("{}.json", document.name)));
        }
    }
    let mut is_good = true;
    for document in table.documents.iter().filter(is_wanted) {
        println!("\n== {}", document.name);
        if let Some(lack) = document.on.and_then(PeerFileSystem::lack) {
            run.leave_out(format!("{}: {lack}", document.title));
            continue;
        }
        let mut bench = bench(document, installation, arguments)?;
        for (option, peer) in table.peers() {
            let is_beside = arguments.beside.is_empty() || arguments.beside.contains(&peer.name);
            let takes_part = peer.experiments.contains(&document.experiment)
                && !document.without.contains(&peer.name)
                && run.versions.contains_key(&peer.kit);
            if is_beside && takes_part {
                bench.args([option, &format!("{}={}", peer.name, peer.command)]);
            }
        }
        let status = bench.args(&arguments.more).status();
        if let Some(on) = document.on {
            on.clear(installation);
        }
        let status = status?;
        if !status.success() {
            run.leave_out(format!("{}: {status}", document.title));
            is_good = false;
        }
    }
    run.minutes = start.elapsed().as_secs().div_ceil(60);
    fs::write(folder.join("run.json"), serde_json::to_string_pretty(&run)?)?;
    Ok(exit_code(is_good))
}

impl RunRecord {
    fn leave_out(&mut self, what: String) {
        println!("left out: {what}");
        self.left_out.push(what);
    }
}

/// What is measured, and whether it differs from the commit.
fn commit(installation: &Installation<'_>) -> Fallible<String> {
    let git = |arguments: &[&str]| output(installation.command("git").args(arguments));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    Ok(
        match git(&["status", "--porcelain", "--untracked-files=no"])?.trim() {
            "" => commit.trim().to_owned(),
            _ => format!("{} with changes", commit.trim()),
        },
    )
}

fn bench(
    document: &PeerDocument,
    installation: &Installation<'_>,
    arguments: &PeersArguments,
) -> Fallible<Command> {
    let mut bench = match document.on {
        Some(on) => on.command(installation, "underpass")?,
        None => installation.command("underpass"),
    };
    // Where caddy leaves things otherwise.
    let home = installation.workspace.root.join(FOLDER).join("home");
    bench.env("XDG_CONFIG_HOME", &home).env("STEPPATH", &home);
    bench.arg("bench").args(document.bench.split_whitespace());
    let (rounds, more) = match arguments.quick {
        true => (document.quick_rounds, &document.quick),
        false => (ROUNDS, &document.full),
    };
    if arguments.quick {
        bench.arg("--quick");
    }
    let rounds = arguments.rounds.unwrap_or(rounds);
    bench.args(["--rounds", &rounds.to_string()]);
    bench.args(more.split_whitespace());
    if is_root() {
        bench.args(document.as_root.split_whitespace());
    }
    let json = arguments.result(&format!("{}.json", document.name));
    bench.arg("--json").arg(json);
    Ok(bench)
}
