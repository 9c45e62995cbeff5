//! What this program becomes when a measurement starts it again.

use std::ffi::OsString;
use std::path::PathBuf;

use super::mover;

/// The hidden parts of `underpass bench`: `bench role NAME …`.
#[derive(Clone, Debug)]
pub enum SubprocessRole {
    /// Moves to a processor and becomes a command; ends with its parent.
    Become {
        /// Where to run; anywhere if none.
        processor: Option<usize>,
        /// The program and its arguments.
        command: Vec<OsString>,
    },
    /// Removes a directory once standard input ends.
    TakeCare(PathBuf),
    /// Does the jobs that standard input names by this project's own mover.
    Mover(mover::MoverSettings),
}

impl SubprocessRole {
    /// The arguments that make this program play it.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["bench".into(), "role".into()];
        match self {
            SubprocessRole::Become { processor, command } => {
                words.push("become".into());
                if let Some(processor) = processor {
                    words.extend(["--processor".into(), processor.to_string().into()]);
                }
                words.push("--".into());
                words.extend(command.iter().cloned());
            }
            SubprocessRole::TakeCare(directory) => {
                words.extend(["take-care".into(), directory.clone().into()]);
            }
            SubprocessRole::Mover(settings) => {
                words.push("mover".into());
                words.extend(settings.arguments().into_iter().map(OsString::from));
            }
        }
        words
    }
}
