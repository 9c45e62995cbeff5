//! The roles of this program's own processes in a measurement: hidden subcommands of
//! `underpass-bench role`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use underpass::Mechanism;

/// The role of a process of this program in a measurement.
#[derive(Clone, Debug, Subcommand)]
pub enum SubprocessRole {
    /// Move to a processor and become a command, which ends with its parent
    Become {
        /// The processor; any if omitted
        #[arg(long)]
        processor: Option<usize>,
        /// The program and its arguments
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Remove a directory once standard input ends
    TakeCare {
        /// The directory
        directory: PathBuf,
    },
    /// Do the jobs on standard input with this project's mover
    Mover(MoverSettings),
}

/// How a mover moves files.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoverSettings {
    /// The only mechanism it may use; the plan's choice if omitted
    #[arg(long)]
    pub only: Option<Mechanism>,
    /// The maximum of one call in bytes; the mover's default if omitted
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub call_bytes: Option<u64>,
    /// Never share blocks
    #[arg(long)]
    pub unshared: bool,
}

impl SubprocessRole {
    /// The arguments that start this program in the role.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["role".into()];
        match self {
            SubprocessRole::Become { processor, command } => {
                words.push("become".into());
                let processor = processor.map(|number| format!("--processor={number}").into());
                words.extend(processor);
                words.push("--".into());
                words.extend(command.iter().cloned());
            }
            SubprocessRole::TakeCare { directory } => {
                words.extend(["take-care".into(), directory.clone().into()]);
            }
            SubprocessRole::Mover(settings) => {
                words.push("mover".into());
                let only = settings.only.map(|only| format!("--only={only}"));
                let call_bytes = settings
                    .call_bytes
                    .map(|bytes| format!("--call-bytes={bytes}"));
                let unshared = settings.unshared.then(|| "--unshared".to_owned());
                let options = [only, call_bytes, unshared].into_iter().flatten();
                words.extend(options.map(OsString::from));
            }
        }
        words
    }
}
