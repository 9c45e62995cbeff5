//! The arguments of `cargo xtask peers`.

use std::path::{Path, PathBuf};

use super::installation::FOLDER;
use super::table::{PeerDocument, PeerExperiment, PeerTable};

#[derive(clap::Args)]
pub(crate) struct PeersArguments {
    /// Measure all documents of these experiments [default: those of docs/measurements.md]
    pub(super) experiments: Vec<PeerExperiment>,
    /// Measure only these documents, such as serve-small
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
    /// Returns whether everything on docs/measurements.md is measured.
    pub(super) fn is_whole(&self) -> bool {
        self.experiments.is_empty() && self.documents.is_empty()
    }

    /// Returns the documents of the table to measure.
    pub(super) fn wanted<'t>(
        &'t self,
        table: &'t PeerTable,
    ) -> impl Iterator<Item = &'t PeerDocument> + Clone {
        table.documents.iter().filter(|one| self.wants(table, one))
    }

    fn wants(&self, table: &PeerTable, document: &PeerDocument) -> bool {
        match (self.experiments.is_empty(), self.documents.is_empty()) {
            (true, true) => table.is_compared(document),
            (false, true) => self.experiments.contains(&document.experiment),
            (_, false) => self.documents.contains(&document.name),
        }
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
