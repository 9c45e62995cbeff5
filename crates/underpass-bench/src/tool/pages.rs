//! Shell completions and man pages.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::terminal::print;

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct CompletionArguments {
    /// Complete commands and options for this shell
    shell: Shell,
}

/// Print a man page, or write all of them into a folder
#[derive(Debug, Args)]
pub(crate) struct PageArguments {
    /// Print the page of this command (socket, compare ...), or write all pages to this existing
    /// folder [default: print the page of underpass-bench]
    #[arg(value_name = "COMMAND|DIR")]
    what: Option<PathBuf>,
}

impl CompletionArguments {
    pub(crate) fn run(&self, mut command: Command) -> Result<(), String> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "underpass-bench", &mut text);
        print(&String::from_utf8_lossy(&text))
    }
}

impl PageArguments {
    pub(crate) fn run(&self, mut command: Command) -> Result<(), String> {
        command.build();
        let Some(what) = &self.what else {
            return page(command);
        };
        if let Some(found) = command.find_subcommand(what) {
            return page(found.clone());
        }
        if !what.is_dir() {
            let what = what.display();
            return Err(format!(
                "{what} is neither a command nor an existing folder"
            ));
        }
        let written = clap_mangen::generate_to(command, what);
        written.map_err(|error| format!("cannot write to {}: {error}", what.display()))
    }
}

fn page(command: Command) -> Result<(), String> {
    let mut text = Vec::new();
    let rendered = Man::new(command).render(&mut text);
    rendered.map_err(|error| error.to_string())?;
    print(&String::from_utf8_lossy(&text))
}
