//! What `cargo xtask peers` is asked for.

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
    /// Install what is missing: Debian packages, as root, and packages of crates.io
    #[arg(long)]
    pub(super) install: bool,
    /// Only write the pages anew, from what was measured
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
    /// Whether everything is measured.
    pub(super) fn is_whole(&self) -> bool {
        self.experiments.is_empty() && self.documents.is_empty()
    }

    /// Whether a document is to be measured. Those that are apart have to be asked for.
    pub(super) fn wants(&self, document: &PeerDocument) -> bool {
        let is_experiment = match &self.experiments[..] {
            [] => !document.is_apart || !self.documents.is_empty(),
            experiments => experiments.contains(&document.experiment),
        };
        is_experiment && (self.documents.is_empty() || self.documents.contains(&document.name))
    }

    /// Whether the page of brokers is to be written.
    pub(super) fn is_log(&self) -> bool {
        self.experiments == [PeerExperiment::Log] && self.documents.is_empty()
    }

    /// What keeps what is known of a run, beside its results.
    pub(super) fn record(&self) -> &'static str {
        match self.is_log() {
            true => "run-log.json",
            false => "run.json",
        }
    }

    /// Where a document is, from the root of the workspace. Those of quick runs are apart.
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
