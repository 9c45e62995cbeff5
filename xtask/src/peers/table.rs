//! The table of peers, `peers/peers.toml`, which describes the fields.

use std::fmt;

use clap::ValueEnum;
use serde::Deserialize;

use crate::workspace::Fallible;

const TABLE: &str = include_str!("../../../peers/peers.toml");
const OWN_KIT: &str = "underpass";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerTable {
    pub(super) kits: Vec<PeerKit>,
    servers: Vec<PeerProgram>,
    programs: Vec<PeerProgram>,
    porters: Vec<PeerProgram>,
    pub(super) comparisons: Vec<PeerComparison>,
    pub(super) documents: Vec<PeerDocument>,
}

/// A row of docs/measurements.md.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerComparison {
    /// The work, in the words of a user.
    pub(super) question: String,
    pub(super) document: String,
    pub(super) peer: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerKit {
    pub(super) name: String,
    program: Option<String>,
    pub(super) from: KitSource,
    #[serde(default = "version_option")]
    pub(super) version: String,
    #[serde(default)]
    pub(super) build: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KitSource {
    Workspace,
    /// A package of Debian, installed if the program is missing.
    Debian(String),
    /// A package of crates.io, installed into `target/peers`.
    CratesIo(String),
    /// Fetched by `cargo xtask test --install` for the tests.
    Tests,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerProgram {
    pub(super) name: String,
    pub(super) kit: String,
    #[serde(rename = "in")]
    pub(super) experiments: Vec<PeerExperiment>,
    pub(super) command: String,
}

/// A call of the bench.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerDocument {
    pub(super) name: String,
    /// The title on the page.
    pub(super) title: String,
    pub(super) experiment: PeerExperiment,
    pub(super) bench: String,
    pub(super) on: Option<PeerFileSystem>,
    /// NAME=COMMAND of the path to the servers.
    pub(super) path: Option<String>,
    #[serde(default)]
    pub(super) full: String,
    #[serde(default)]
    pub(super) quick: String,
    #[serde(default = "cubic")]
    pub(super) as_root: String,
}

/// A file system made for a measurement.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeerFileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeerExperiment {
    /// Files over HTTP
    Serve,
    /// Files over HTTPS
    ServeTls,
    /// Small bodies over HTTP, by size
    Small,
    /// Hot requests together with cold files
    Cold,
    /// A thousand slow readers
    Many,
    /// Slow readers and idle connections over HTTPS
    ManyTls,
    /// Files to files
    Copy,
    /// Files into a socket
    Socket,
    /// Trees and special files, by programs
    Tree,
    /// Brokers for Kafka's clients
    Log,
}

fn version_option() -> String {
    "--version".to_owned()
}

fn cubic() -> String {
    "--congestion cubic".to_owned()
}

impl PeerTable {
    pub(super) fn read() -> Fallible<Self> {
        Ok(toml::from_str(TABLE)?)
    }

    /// Returns every peer, with the option of `underpass bench` that adds it.
    pub(super) fn peers(&self) -> impl Iterator<Item = (&'static str, &PeerProgram)> {
        let servers = self.servers.iter().map(|peer| ("--server", peer));
        let programs = self.programs.iter().map(|peer| ("--program", peer));
        let porters = self.porters.iter().map(|peer| ("--peer", peer));
        servers.chain(programs).chain(porters)
    }

    /// Returns the peers named in comparisons of a document.
    fn compared<'t>(&'t self, document: &'t PeerDocument) -> impl Iterator<Item = &'t str> {
        let own = move |one: &&PeerComparison| one.document == document.name;
        self.comparisons.iter().filter(own).map(|one| &*one.peer)
    }

    /// Returns whether a document is part of docs/measurements.md.
    pub(super) fn is_compared(&self, document: &PeerDocument) -> bool {
        self.compared(document).next().is_some()
    }

    /// Returns the kits of the peers that take part in some documents.
    pub(super) fn kits_of<'t>(
        &'t self,
        documents: impl Iterator<Item = &'t PeerDocument> + Clone,
    ) -> impl Iterator<Item = &'t PeerKit> {
        self.kits.iter().filter(move |kit| {
            let mut peers = documents.clone().flat_map(|one| self.contenders(one));
            peers.any(|(_, peer)| peer.kit == kit.name)
        })
    }

    /// Returns the peers that take part in a document, with the option of each: those it is
    /// compared with and our own, or all of its experiment.
    pub(super) fn contenders<'t>(
        &'t self,
        document: &'t PeerDocument,
    ) -> impl Iterator<Item = (&'static str, &'t PeerProgram)> {
        let is_compared = self.is_compared(document);
        self.peers().filter(move |(_, peer)| {
            peer.experiments.contains(&document.experiment)
                && (!is_compared
                    || peer.kit == OWN_KIT
                    || self.compared(document).any(|name| name == peer.name))
        })
    }
}

impl PeerKit {
    pub(super) fn program(&self) -> &str {
        self.program.as_ref().unwrap_or(&self.name)
    }
}

impl fmt::Display for PeerExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn names_are_unique_where_they_meet() {
        let table = PeerTable::read().expect("a table");
        let peers = table.peers().flat_map(|(option, peer)| {
            let experiments = peer.experiments.iter();
            experiments.map(move |experiment| (*experiment, option, peer))
        });
        let peers: Vec<_> = peers.collect();
        for (index, (experiment, option, peer)) in peers.iter().enumerate() {
            let name = &peer.name;
            let mut others = peers[..index].iter();
            assert!(!others.any(|other| (other.0, &other.2.name) == (*experiment, name)));
            assert!(!name.contains('='), "{name}");
            let fits = match experiment {
                PeerExperiment::Copy => *option != "--server",
                PeerExperiment::Socket => *option == "--peer",
                PeerExperiment::Tree => *option == "--program",
                _ => *option == "--server",
            };
            assert!(
                fits && table.kits.iter().any(|kit| kit.name == peer.kit),
                "{name}"
            );
        }
        assert!(peers.len() > 40);
    }

    #[test]
    fn comparisons_name_documents_and_peers_that_exist() {
        let table = PeerTable::read().expect("a table");
        assert!((12..=16).contains(&table.comparisons.len()));
        for comparison in &table.comparisons {
            let mut documents = table.documents.iter();
            let document = documents.find(|one| one.name == comparison.document);
            let mut contenders = table.contenders(document.expect("its document"));
            let is_there = contenders.any(|(_, peer)| peer.name == comparison.peer);
            assert!(is_there, "{}: {}", comparison.document, comparison.peer);
        }
    }

    #[test]
    fn files_that_commands_name_exist() {
        let root = Workspace::here().root;
        let table = PeerTable::read().expect("a table");
        let commands = table.peers().map(|(_, peer)| &peer.command);
        let steps = table.kits.iter().flat_map(|kit| &kit.build);
        for word in commands.chain(steps).flat_map(|command| command.split(' ')) {
            let file = word.strip_prefix("{file:");
            let file = file.map_or(word, |file| file.trim_end_matches('}'));
            if file.starts_with("peers/") {
                assert!(root.join(file).exists(), "{file}");
            }
        }
    }
}
