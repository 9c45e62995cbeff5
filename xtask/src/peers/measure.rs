//! `underpass bench` with everybody who is there.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::Arguments;
use super::kit::{SHOP, Shop, build_underpass};
use super::table::{Experiment, KITS, PEERS, Peer};
use super::volume::{FileSystem, MOUNTED};
use crate::test::is_root;
use crate::workspace::Fallible;

/// A call of the bench, and how much of it there is time for: ten to twenty contenders times
/// rounds, for all shapes together less than an hour, 8 minutes with `--quick`.
pub(super) struct Shape {
    /// On the page.
    pub(super) title: &'static str,
    /// Of the document, without `.json`.
    document: &'static str,
    experiment: Experiment,
    arguments: &'static [&'static str],
    /// Made for it, and measured on.
    on: Option<FileSystem>,
    /// Peers that can't do this in the time that the bench gives them.
    without: &'static [&'static str],
    full: Scale,
    quick: Scale,
    /// What only root may ask for: bbr, where it is the machine's, paces what never meets a
    /// bottleneck, and a virtual machine's disk is often its host's memory.
    as_root: &'static [&'static str],
}

/// Fewer rounds than 6 tell no ratio; a quick run is to see that all of it works.
struct Scale {
    rounds: usize,
    /// What keeps it short: every file is hashed beforehand from every server, and what is under
    /// way when a round ends is taken to its end.
    more: &'static [&'static str],
}

const CUBIC: &[&str] = &["--congestion", "cubic"];

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        full: rounds(6).with(&["--size", "100MiB,1GiB", "--files", "8"]),
        quick: rounds(1).with(&["--size", "100MiB"]),
        ..serve(
            "Large files over HTTP",
            "serve-large",
            &["http", "--connections", "4"],
        )
    },
    Shape {
        full: rounds(6).with(&["--files", "100"]),
        quick: rounds(1),
        ..serve(
            "Files of 100 KiB and 1 MiB over HTTP",
            "serve-medium",
            &["http", "--size", "100KiB,1MiB", "--connections", "16"],
        )
    },
    Shape {
        full: rounds(6).with(&["--files", "1000"]),
        quick: rounds(1).with(&["--files", "100"]),
        ..serve(
            "Files of 1 KiB and 10 KiB over HTTP",
            "serve-small",
            &["http", "--size", "1KiB,10KiB", "--connections", "64"],
        )
    },
    Shape {
        full: rounds(6).with(&["--files", "1000"]),
        quick: rounds(1).with(&["--files", "100"]),
        ..serve(
            "A connection for every request",
            "serve-reconnect",
            &[
                "http",
                "--size",
                "1KiB",
                "--connections",
                "64",
                "--reconnect",
            ],
        )
    },
    Shape {
        // 30 answers of 300 MB at once took it more than two minutes.
        without: &["static-web-server"],
        full: rounds(6).with(&["--requests", "30"]),
        ..serve(
            "One very large file over HTTP",
            "serve",
            &["http", "--connections", "30"],
        )
    },
    usual(
        "Small bodies over HTTP",
        "small",
        Experiment::Small,
        &["small"],
    ),
    Shape {
        as_root: &["--congestion", "cubic", "--disk-mib", "100"],
        ..usual(
            "Hot requests beside cold files",
            "cold",
            Experiment::Cold,
            &["cold", "--streams", "8"],
        )
    },
    Shape {
        full: rounds(6).with(&["--size", "1GiB"]),
        ..usual(
            "Small requests beside large files in memory",
            "busy",
            Experiment::Cold,
            &["cold", "--warm", "--streams", "8"],
        )
    },
    usual(
        "A thousand slow readers",
        "many",
        Experiment::Many,
        &["many"],
    ),
    Shape {
        full: rounds(6).with(&["--connections", "9900"]),
        quick: rounds(1).with(&["--connections", "200"]),
        ..usual(
            "Nearly ten thousand slow readers",
            "many-slow",
            Experiment::Many,
            &["many"],
        )
    },
    Shape {
        full: rounds(6).with(&["--connections", "9000"]),
        quick: rounds(1).with(&["--connections", "200"]),
        ..usual(
            "Idle connections",
            "many-idle",
            Experiment::Many,
            &["many", "--idle"],
        )
    },
    Shape {
        quick: rounds(3).with(&["--sizes", "10KiB,1MiB,100MiB"]),
        as_root: &[],
        ..usual("Files to files", "copy", Experiment::Copy, &["copy"])
    },
    Shape {
        full: rounds(6).with(&["--sizes", "7MB,63MB,350MB,1GB"]),
        quick: rounds(2).with(&["--sizes", "7MB,63MB"]),
        ..usual(
            "Files into a socket",
            "socket",
            Experiment::Socket,
            &["socket"],
        )
    },
    tree(
        "Trees and special files on ext4",
        "tree-ext4",
        FileSystem::Ext4,
    ),
    tree(
        "Trees and special files on XFS",
        "tree-xfs",
        FileSystem::Xfs,
    ),
    tree(
        "Trees and special files on Btrfs",
        "tree-btrfs",
        FileSystem::Btrfs,
    ),
];

/// Over a connection, wherever files are, with whoever can.
const fn usual(
    title: &'static str,
    document: &'static str,
    experiment: Experiment,
    arguments: &'static [&'static str],
) -> Shape {
    Shape {
        title,
        document,
        experiment,
        arguments,
        on: None,
        without: &[],
        full: rounds(6),
        quick: rounds(1),
        as_root: CUBIC,
    }
}

const fn serve(
    title: &'static str,
    document: &'static str,
    arguments: &'static [&'static str],
) -> Shape {
    usual(title, document, Experiment::Serve, arguments)
}

const fn tree(title: &'static str, document: &'static str, on: FileSystem) -> Shape {
    Shape {
        on: Some(on),
        as_root: &[],
        ..usual(
            title,
            document,
            Experiment::Tree,
            &["tree", "--in", MOUNTED],
        )
    }
}

const fn rounds(rounds: usize) -> Scale {
    Scale { rounds, more: &[] }
}

impl Scale {
    const fn with(self, more: &'static [&'static str]) -> Self {
        Self { more, ..self }
    }
}

/// Runs every shape of the experiments; one that fails doesn't stop the others.
pub(super) fn measure(shop: &Shop<'_>, arguments: &Arguments) -> Fallible<ExitCode> {
    build_underpass(shop.workspace)?;
    let kits = KITS.iter().filter(|kit| {
        let built = shop.version(kit).and_then(|_| shop.build(kit));
        if let Err(lack) = &built {
            println!("left out: {}: {lack}", kit.name);
        }
        built.is_ok()
    });
    let kits: Vec<&str> = kits.map(|kit| kit.name).collect();
    let is_wanted = |shape: &&Shape| {
        let experiments = &arguments.experiments;
        let documents = &arguments.documents;
        (experiments.is_empty() || experiments.contains(&shape.experiment))
            && (documents.is_empty() || documents.iter().any(|name| name == shape.document))
    };
    fs::create_dir_all(shop.workspace.root.join(arguments.results()))?;
    let mut done = ExitCode::SUCCESS;
    for shape in SHAPES.iter().filter(is_wanted) {
        println!("\n== {}", shape.document);
        let beside = &arguments.beside;
        let is_there = |peer: &&Peer| {
            kits.contains(&peer.kit.name)
                && (beside.is_empty() || beside.iter().any(|name| name == peer.name))
        };
        let peers = PEERS.iter().filter(is_there);
        if let Some(lack) = shape.on.and_then(FileSystem::lack) {
            println!("left out: {}: {lack}", shape.document);
            continue;
        }
        let status = shape.bench(shop, arguments, peers)?.status();
        if let Some(on) = shape.on {
            on.clear(shop);
        }
        let status = status?;
        if !status.success() {
            println!("{}: {status}", shape.document);
            done = ExitCode::FAILURE;
        }
    }
    Ok(done)
}

impl Shape {
    /// From the root of the workspace.
    pub(super) fn json(&self, arguments: &Arguments) -> PathBuf {
        let file = format!("{}.json", self.document);
        arguments.results().join(file)
    }

    fn bench<'p>(
        &self,
        shop: &Shop<'_>,
        arguments: &Arguments,
        peers: impl Iterator<Item = &'p Peer>,
    ) -> Fallible<Command> {
        let mut bench = match self.on {
            Some(on) => on.command(shop, "underpass")?,
            None => shop.command("underpass"),
        };
        // Where caddy leaves things otherwise.
        let home = shop.workspace.root.join(SHOP).join("home");
        bench.env("XDG_CONFIG_HOME", &home).env("STEPPATH", &home);
        bench.arg("bench").args(self.arguments);
        let scale = if arguments.quick {
            bench.arg("--quick");
            &self.quick
        } else {
            &self.full
        };
        let rounds = arguments.rounds.unwrap_or(scale.rounds);
        bench
            .args(["--rounds", &rounds.to_string()])
            .args(scale.more);
        if is_root() {
            bench.args(self.as_root);
        }
        let takes_part =
            |peer: &&Peer| peer.experiment == self.experiment && !self.without.contains(&peer.name);
        for peer in peers.filter(takes_part) {
            let contender = format!("{}={}", peer.name, peer.command);
            bench.args([peer.part.option(), &contender]);
        }
        bench
            .arg("--json")
            .arg(self.json(arguments))
            .args(&arguments.more);
        Ok(bench)
    }
}
