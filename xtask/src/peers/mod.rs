//! `cargo xtask peers`: what users would pick instead, measured beside Underpass.
//!
//! ```text
//! table ─► kits: installed (Debian, crates.io), or compiled from peers/ ─► target/peers
//!       └► peers: contenders of `underpass bench http|copy|tree|…` ─► target/peers/*.json
//!                                             page: head.md + those ─► docs/measurements.md
//! ```
//!
//! What can't be had is left out, with the reason; nothing here measures.

mod kit;
mod page;
mod run;
mod short;
mod table;
mod volume;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::kit::Shop;
use self::table::{Experiment, KITS, PEERS};
use crate::workspace::{Fallible, Workspace};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to measure [default: all]
    experiments: Vec<Experiment>,
    /// Measure only what is told in these documents, such as serve-small [default: all]
    #[arg(long = "document", value_name = "NAME")]
    documents: Vec<String>,
    /// Measure beside this peer, by its name in --list; more than once for several [default: all]
    #[arg(long, value_name = "PEER")]
    beside: Vec<String>,
    /// Name every peer, whether it is there, and its version
    #[arg(long)]
    list: bool,
    /// Install what is missing: Debian packages, as root, and packages of crates.io
    #[arg(long)]
    install: bool,
    /// Compile what one kit has in `peers/` and name the commands
    #[arg(long, value_name = "KIT", hide = true)]
    commands: Option<String>,
    /// Only write the page anew, from what was measured
    #[arg(long)]
    page: bool,
    /// Short rounds and few, to see that all of it works: everything goes to `target/peers/quick`
    #[arg(long)]
    quick: bool,
    /// Rounds that count, instead of those that fit
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// More arguments for `underpass bench`
    #[arg(last = true)]
    more: Vec<String>,
}

impl Arguments {
    /// Where results go, from the root of the workspace. Quick ones never get among the others.
    fn results(&self) -> PathBuf {
        let shop = Path::new(kit::SHOP);
        if self.quick {
            shop.join("quick")
        } else {
            shop.to_owned()
        }
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Fallible<ExitCode> {
    let shop = Shop::open(workspace)?;
    if let Some(name) = &arguments.commands {
        commands(&shop, name)?;
    } else if arguments.list {
        list(&shop);
    } else if arguments.install {
        shop.install(KITS)?;
        list(&shop);
    } else if arguments.page {
        page::write(&shop, arguments)?;
    } else {
        let done = run::measure(&shop, arguments)?;
        page::write(&shop, arguments)?;
        return Ok(done);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(shop: &Shop<'_>) {
    for kit in KITS {
        match shop.version(kit) {
            Ok(version) => println!("{}: {version}", kit.name),
            Err(lack) => println!("{}: {lack}", kit.name),
        }
        for peer in PEERS.iter().filter(|peer| peer.kit.name == kit.name) {
            println!("  {:8}{}: {}", peer.experiment, peer.name, peer.command);
        }
    }
}

/// A line for each peer of the kit: experiment, name and command, with tabs between.
fn commands(shop: &Shop<'_>, name: &str) -> Fallible<()> {
    let is_named = |kit: &&&table::Kit| kit.name.eq_ignore_ascii_case(name);
    let kit = KITS.iter().find(is_named).ok_or("no such kit")?;
    shop.build(kit)?;
    for peer in PEERS.iter().filter(|peer| peer.kit.name == kit.name) {
        println!("{}\t{}\t{}", peer.experiment, peer.name, peer.command);
    }
    Ok(())
}
