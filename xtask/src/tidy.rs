//! `cargo xtask tidy`: the rules of this repository that the compiler and clippy can't hold.
//!
//! A rule is a function from the [`Tree`] to its complaints. It reads no file and runs no program,
//! so that its tests hand it a tree of three lines and see it fire.

mod architecture;
mod crates;
mod duplicates;
mod forbidden;
mod ignores;
mod licences;
mod links;
mod mover;
mod quirks;
mod rust;
mod sizes;
mod tree;

use std::fmt;
use std::process::ExitCode;

pub(crate) use self::tree::Tree;
use crate::test::SYSTEM_TESTS;
use crate::workspace::{Fallible, Workspace};

type Rule = (&'static str, fn(&Tree) -> Vec<Complaint>);

const RULES: &[Rule] = &[
    ("sizes of files, functions and lines", |tree| {
        sizes::check(tree, sizes::EXCEPTIONS)
    }),
    ("walls between the crates", crates::check_imports),
    ("lints of the crates", crates::check_lints),
    ("unsafe", mover::check_unsafe),
    ("system calls in the mover", mover::check_system_calls),
    ("forbidden things", forbidden::check),
    ("reasons for dependencies", architecture::check),
    ("kernel quirks", quirks::check),
    ("duplicate dependencies", |tree| {
        duplicates::check(tree, duplicates::EXCEPTIONS)
    }),
    ("links in Markdown", links::check),
    ("tests with needs", |tree| {
        ignores::check(tree, SYSTEM_TESTS)
    }),
];

/// What a rule found: where, and what to do about it.
#[derive(Debug, PartialEq)]
pub(crate) struct Complaint {
    place: String,
    text: String,
}

impl Complaint {
    fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            text: text.into(),
        }
    }

    fn at(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self::new(format!("{path}:{line}"), text)
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// Checks every rule and the licences, and prints what is wrong.
pub(crate) fn run(workspace: &Workspace) -> Fallible<ExitCode> {
    let tree = Tree::read(workspace)?;
    let mut complaints = complaints(&tree);
    complaints.extend(licence_complaints(&tree));
    match complaints.len() {
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

/// What all the rules but the licences say, printed rule by rule.
pub(crate) fn complaints(tree: &Tree) -> Vec<Complaint> {
    for note in sizes::notes(tree) {
        println!("note: {note}");
    }
    RULES
        .iter()
        .flat_map(|(name, rule)| printed(name, rule(tree)))
        .collect()
}

/// What is wrong with the licences of the dependencies, printed.
pub(crate) fn licence_complaints(tree: &Tree) -> Vec<Complaint> {
    printed("licences", licences::check(tree))
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
