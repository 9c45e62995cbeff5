//! `cargo xtask tidy`: the rules of this repository that the compiler and clippy can't hold.
//!
//! A rule is a function from the [`Tree`] to its complaints. It reads no file and runs no program,
//! so that tests can call it with a tree of three lines.

mod code;
mod complaint;
mod crates;
mod dependencies;
mod forbidden;
mod glossary;
mod ignores;
mod links;
mod modules;
mod mover;
mod quirks;
mod sizes;
mod source;
mod waits;

use std::process::ExitCode;

pub(crate) use self::code::{Ignored, Tree};
use self::complaint::Complaint;
pub(crate) use self::modules::in_layers;
use self::modules::{cycles, names, orphans};
use crate::workspace::{Fallible, Workspace};

#[derive(clap::Args)]
pub(crate) struct TidyArguments {
    /// Print the lines of source outside of tests, for each crate, and check nothing
    #[arg(long)]
    lines: bool,
}

type TidyRule = (&'static str, fn(&Tree) -> Vec<Complaint>);

const RULES: &[TidyRule] = &[
    ("sizes of files, functions and lines", |tree| {
        sizes::check(tree, sizes::EXCEPTIONS)
    }),
    ("walls between the crates", crates::check_imports),
    ("lints of the crates", crates::check_lints),
    ("unsafe", mover::check_unsafe),
    ("system calls in the mover", mover::check_system_calls),
    ("forbidden things", forbidden::check),
    ("reasons for dependencies", dependencies::check_reasons),
    ("kernel quirks", quirks::check),
    ("duplicate dependencies", |tree| {
        dependencies::check_versions(tree, dependencies::EXCEPTIONS)
    }),
    ("licences", dependencies::check_licences),
    ("links in Markdown", links::check),
    ("module cycles", |tree| {
        cycles::check(tree, cycles::EXCEPTIONS)
    }),
    ("files in no module", orphans::check),
    ("names of types", |tree| {
        names::check(tree, names::EXCEPTIONS)
    }),
    ("modules of folders", |tree| {
        source::check_folders(tree, source::EXCEPTIONS)
    }),
    ("test binaries", source::check_test_binaries),
    ("glossary", glossary::check),
    ("lines of source", source::check_lines),
    ("tests with needs", ignores::check),
    ("tests that sleep or read a clock", |tree| {
        waits::check(tree, waits::SLEEPING, waits::TIMED)
    }),
];

/// Checks every rule, and prints the complaints.
pub(crate) fn run(workspace: &Workspace, arguments: &TidyArguments) -> Fallible<ExitCode> {
    let tree = Tree::read(workspace)?;
    if arguments.lines {
        print!("{}", source::report(&tree));
        return Ok(ExitCode::SUCCESS);
    }
    match complaints(&tree).len() {
        0 => {
            println!("tidy");
            Ok(ExitCode::SUCCESS)
        }
        number => {
            println!("{number} complaints");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Returns the complaints of all rules, in the order of rules.
pub(crate) fn complaints(tree: &Tree) -> Vec<Complaint> {
    RULES
        .iter()
        .flat_map(|(name, rule)| printed(name, rule(tree)))
        .collect()
}

fn printed(rule: &str, complaints: Vec<Complaint>) -> Vec<Complaint> {
    if !complaints.is_empty() {
        println!("{rule}:");
    }
    for complaint in &complaints {
        println!("  {complaint}");
    }
    complaints
}
