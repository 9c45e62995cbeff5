//! The `underpass` tool: arguments in, one command run, an exit code out.
//!
//! Exit codes: 0 all done; 1 it could not be done, and standard error says why; 2 the arguments
//! make no sense.

#![forbid(unsafe_code)]

mod bench;
mod cp;
mod doctor;
mod pages;
mod serve;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Moves bytes between files and sockets underneath user space, and tells how every byte travelled
#[derive(Debug, Parser)]
#[command(name = "underpass", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Never parsed: what stands behind `cp` is read as GNU reads it. It is here to be told of.
    Cp,
    Serve(Box<serve::Arguments>),
    Doctor(doctor::Arguments),
    Bench(Box<bench::Arguments>),
    Completions(pages::Completions),
    Man(pages::Manual),
}

fn main() -> ExitCode {
    warn_on_standard_error();
    if let Some((name, called, words)) = copying(std::env::args_os()) {
        return cp::run(name, called, words);
    }
    let outcome = match arguments().command {
        Command::Cp => return cp::run(cp::CalledAs::Underpass, "underpass cp".into(), Vec::new()),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Bench(arguments) => return bench::run(*arguments),
        Command::Doctor(arguments) => return doctor::run(&arguments),
        Command::Completions(completions) => completions.run(whole_command()),
        Command::Man(manual) => manual.run(whole_command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("underpass: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Whether this is `cp` or `underpass cp`, what its messages begin with, and its own words.
fn copying(
    mut words: impl Iterator<Item = OsString>,
) -> Option<(cp::CalledAs, OsString, Vec<OsString>)> {
    let called = words.next()?;
    if Path::new(&called).file_name() == Some("cp".as_ref()) {
        return Some((cp::CalledAs::Cp, called, words.collect()));
    }
    (words.next()? == "cp").then(|| {
        let called = "underpass cp".into();
        (cp::CalledAs::Underpass, called, words.collect())
    })
}

fn arguments() -> Arguments {
    let matches = whole_command().get_matches();
    let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let (Command::Serve(arguments), Some((_, matches))) =
        (&mut arguments.command, matches.subcommand())
    {
        arguments.rank(matches);
    }
    arguments
}

/// All commands, with `cp` as its own table has it.
fn whole_command() -> clap::Command {
    Arguments::command().mut_subcommand("cp", |_| cp::command())
}

/// What goes wrong while a command goes on is told there, one line each.
fn warn_on_standard_error() {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(tracing::Level::WARN)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
}
