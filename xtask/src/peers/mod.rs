//! `cargo xtask peers`: measures Underpass and its alternatives.
//!
//! ```text
//! peers.toml ─► kits: installed (Debian, crates.io), or compiled from peers/ ─► target/peers
//!            └► peers: contenders of `underpass-bench http|copy|tree|…` ─► target/peers/*.json
//!                          head.md + the comparisons                ─► docs/measurements.md
//!                          the full tables                          ─► target/peers/tables
//!                          log-page.md + the ratios of brokers      ─► docs/broker-measurements.md
//! ```
//!
//! Missing peers are left out, with the reason; nothing here measures.

mod arguments;
mod installation;
mod log_page;
mod measure;
mod page;
mod results;
mod standing;
mod table;
mod volume;

use std::process::ExitCode;

pub(crate) use self::arguments::PeersArguments;
use self::installation::Installation;
use self::table::PeerTable;
use crate::workspace::{Fallible, Workspace};

pub(crate) fn run(workspace: &Workspace, arguments: &PeersArguments) -> Fallible<ExitCode> {
    let installation = Installation::open(workspace)?;
    let table = PeerTable::read()?;
    if arguments.list {
        list(&installation, &table);
    } else if arguments.install {
        installation.install(table.kits_of(arguments.wanted(&table)).collect())?;
        list(&installation, &table);
    } else if arguments.page && arguments.is_log() {
        log_page::write(workspace, &table, arguments)?;
    } else if arguments.page {
        page::write(&installation, &table, arguments)?;
    } else {
        let done = measure::measure(&installation, &table, arguments)?;
        if arguments.is_log() {
            log_page::write(workspace, &table, arguments)?;
        } else if arguments.is_whole() || arguments.quick {
            page::write(&installation, &table, arguments)?;
        } else {
            println!("\na part of what the page shows: it stays as it is");
        }
        return Ok(done);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(installation: &Installation<'_>, table: &PeerTable) {
    for kit in &table.kits {
        let version = installation.version(kit).unwrap_or_else(|lack| lack);
        println!("{}: {version}", kit.name);
        for (_, peer) in table.peers().filter(|(_, peer)| peer.kit == kit.name) {
            for experiment in &peer.experiments {
                println!("  {experiment:8}{}: {}", peer.name, peer.command);
            }
        }
    }
}
