//! What the program becomes when it measures: hidden, and only for itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use underpass::{Cloning, Mechanism};
use underpass_bench::{MoverSettings, SubprocessRole};

#[derive(Debug, Subcommand)]
pub(super) enum Part {
    Become {
        #[arg(long)]
        processor: Option<usize>,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    TakeCare {
        directory: PathBuf,
    },
    Mover {
        #[arg(long)]
        only: Option<Mechanism>,
        #[arg(long)]
        call_bytes: Option<u64>,
        #[arg(long)]
        unshared: bool,
    },
}

impl Part {
    pub(super) fn role(self) -> SubprocessRole {
        match self {
            Part::Become { processor, command } => SubprocessRole::Become { processor, command },
            Part::TakeCare { directory } => SubprocessRole::TakeCare(directory),
            Part::Mover {
                only,
                call_bytes,
                unshared,
            } => SubprocessRole::Mover(MoverSettings {
                only,
                call_bytes,
                cloning: match unshared {
                    true => Cloning::Never,
                    false => Cloning::default(),
                },
            }),
        }
    }
}
