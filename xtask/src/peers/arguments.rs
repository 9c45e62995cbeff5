//! The arguments of `cargo xtask peers`.

use std::path::{Path, PathBuf};

use super::installation::FOLDER;
use super::table::{PeerDocument, PeerExperiment};

#[derive(clap::Args)]
pub(crate) struct PeersArguments {
    /// Measure only these experiments [default: all]
    pub(super) experiments: Vec<PeerExperiment>,
    /// Measure only what these documents hold, such as serve-small [default: all]
    #[arg(long = "document", value_name = "NAME")]
    pub(super) documents: Vec<String>,
    /// List every peer, whether it is installed, and its version
    #[arg(long)]
    pub(super) list: bool,
    /// Install missing peers: Debian packages, as root, and packages of crates.io
    #[arg(long)]
    pub(super) install: bool,
    /// Only write the pages again, from existing results
    #[arg(long)]
    pub(super) page: bool,
    /// Run few short rounds, to see that all of it works; results go to `target/peers/quick`
    #[arg(long)]
    pub(super) quick: bool,
    /// More arguments for `underpass bench`
    #[arg(last = true)]
    pub(super) more: Vec<String>,
}

impl PeersArguments {
    /// Returns whether everything is measured.
    pub(super) fn is_whole(&self) -> bool {
        self.experiments.is_empty() && self.documents.is_empty()
    }

    /// Returns whether to measure a document. Those with `is_apart` must be requested explicitly.
    pub(super) fn wants(&self, document: &PeerDocument) -> bool {
        let is_experiment = match &self.experiments[..] {
            [] => !document.is_apart || !self.documents.is_empty(),
            experiments => experiments.contains(&document.experiment),
        };
        is_experiment && (self.documents.is_empty() || self.documents.contains(&document.name))
    }

    /// Returns whether to write the page of brokers.
    pub(super) fn is_log(&self) -> bool {
        self.experiments == [PeerExperiment::Log] && self.documents.is_empty()
    }

    /// Returns the name of the file that describes a run, next to its results.
    pub(super) fn record(&self) -> &'static str {
        match self.is_log() {
            true => "run-log.json",
            false => "run.json",
        }
    }

    /// Returns the path of a result from the root of the workspace. Quick runs have a subfolder.
    pub(super) fn result(&self, name: &str) -> PathBuf {
        let folder = if self.quick { "quick" } else { "" };
        Path::new(FOLDER).join(folder).join(name)
    }
}

#[cfg(test)]
impl PeersArguments {
    pub(super) fn quick() -> Self {
        Self {
            experiments: Vec::new(),
            documents: Vec::new(),
            list: false,
            install: false,
            page: false,
            quick: true,
            more: Vec::new(),
        }
    }
}
