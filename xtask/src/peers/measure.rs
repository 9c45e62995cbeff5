//! `underpass bench` with everybody who is there.

use std::fs;
use std::process::{Command, ExitCode};

use super::arguments::PeersArguments;
use super::installation::{FOLDER, Installation, build_underpass};
use super::table::{PeerDocument, PeerFileSystem, PeerTable};
use crate::needs::is_root;
use crate::workspace::{Fallible, exit_code};

const ROUNDS: usize = 6;

/// Makes every document that is asked for; one that fails doesn't stop the others.
pub(super) fn measure(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<ExitCode> {
    build_underpass(installation.workspace)?;
    let kits = table.kits.iter().filter(|kit| {
        let built = installation
            .version(kit)
            .and_then(|_| installation.build(kit));
        if let Err(lack) = &built {
            println!("left out: {}: {lack}", kit.name);
        }
        built.is_ok()
    });
    let kits: Vec<_> = kits.map(|kit| &kit.name).collect();
    let is_wanted = |document: &&PeerDocument| {
        let PeersArguments {
            experiments,
            documents,
            ..
        } = arguments;
        (experiments.is_empty() || experiments.contains(&document.experiment))
            && (documents.is_empty() || documents.contains(&document.name))
    };
    fs::create_dir_all(installation.workspace.root.join(arguments.result("")))?;
    let mut is_good = true;
    for document in table.documents.iter().filter(is_wanted) {
        println!("\n== {}", document.name);
        if let Some(lack) = document.on.and_then(PeerFileSystem::lack) {
            println!("left out: {}: {lack}", document.name);
            continue;
        }
        let mut bench = bench(document, installation, arguments)?;
        for (option, peer) in table.peers() {
            let is_beside = arguments.beside.is_empty() || arguments.beside.contains(&peer.name);
            let takes_part = peer.experiments.contains(&document.experiment)
                && !document.without.contains(&peer.name)
                && kits.contains(&&peer.kit);
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
            println!("{}: {status}", document.name);
            is_good = false;
        }
    }
    Ok(exit_code(is_good))
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
