//! `underpass completions` and `underpass man`: shell completions and man pages of all commands.

use std::path::{Path, PathBuf};

use clap_complete::Shell;
use clap_mangen::Man;

use crate::layout;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Complete commands and options for this shell
    shell: Shell,
}

/// Print a man page, or write all of them into a folder
#[derive(Debug, clap::Args)]
pub(crate) struct Manual {
    /// Print the page of this command (cp, serve, broker ...), or write all pages to
    /// this folder [default: print the page of underpass]
    #[arg(value_name = "COMMAND|DIR")]
    what: Vec<PathBuf>,
}

impl Completions {
    pub(crate) fn run(&self, mut command: clap::Command) -> Result<(), String> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "underpass", &mut text);
        print(&text)
    }
}

impl Manual {
    /// Prints pages. Arguments that name a command select its page; any other is a folder.
    pub(crate) fn run(&self, mut command: clap::Command) -> Result<(), String> {
        command.build();
        let find = |found: Option<clap::Command>, word: &PathBuf| {
            let found = found?;
            found.find_subcommand(word).cloned()
        };
        match (
            self.what.iter().fold(Some(command.clone()), find),
            &self.what[..],
        ) {
            (Some(found), _) => page(found),
            (None, [folder]) => write_all(command, folder),
            (None, words) => {
                let words: Vec<_> = words
                    .iter()
                    .map(|word| word.display().to_string())
                    .collect();
                Err(format!("there is no command '{}'", words.join(" ")))
            }
        }
    }
}

fn page(command: clap::Command) -> Result<(), String> {
    let mut text = Vec::new();
    let rendered = Man::new(command).render(&mut text);
    rendered.map_err(|error| error.to_string())?;
    print(&text)
}

fn write_all(command: clap::Command, folder: &Path) -> Result<(), String> {
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(format!(
            "{folder} is neither a command nor an existing folder"
        ));
    }
    let written = clap_mangen::generate_to(command, folder);
    written.map_err(|error| format!("cannot write to {}: {error}", folder.display()))
}

fn print(text: &[u8]) -> Result<(), String> {
    layout::print(&String::from_utf8_lossy(text))
}
