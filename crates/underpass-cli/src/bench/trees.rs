//! The experiment that starts programs: `tree`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use underpass_bench::NamedCommand;
use underpass_bench::experiment::tree::{self, SourceKind};

use super::Common;
use super::numbers::bytes;

/// Whole trees, a large file, a sparse one, a clone: `underpass cp` beside other programs
#[derive(Debug, Args)]
pub(super) struct Tree {
    /// What to copy [default: all; a clone where the file system can]
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    kinds: Vec<What>,
    /// Files of the tree [default: 100000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,
    /// Size of each of them [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    file_size: Option<u64>,
    /// Size of the large file and of the clone [default: 2GiB, with --quick 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    large_size: Option<u64>,
    /// Size of the sparse file [default: 100GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    sparse_size: Option<u64>,
    /// Copy in this folder; several times for several file systems [default: --scratch]
    #[arg(long = "in", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Also measure a program, as in 'gnu=cp -r {reflink} {from} {to}' (docs/bench.md)
    #[arg(long = "program", value_name = "NAME=COMMAND")]
    programs: Vec<NamedCommand>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Many small files in folders
    Tree,
    /// One large file
    File,
    /// A very large file with little in it
    Sparse,
    /// A large file whose blocks are shared
    Clone,
}

impl Tree {
    pub(super) fn options(&self) -> tree::TreeOptions {
        let kinds = self.kinds.iter().map(|what| match what {
            What::Tree => SourceKind::Tree,
            What::File => SourceKind::File,
            What::Sparse => SourceKind::Sparse,
            What::Clone => SourceKind::Clone,
        });
        tree::TreeOptions {
            kinds: kinds.collect(),
            files: self.files,
            file_bytes: self.file_size,
            large_bytes: self.large_size,
            sparse_bytes: self.sparse_size,
            folders: self.folders.clone(),
            programs: self.programs.clone(),
        }
    }
}
