//! The `underpass` tool: arguments in, one command run, an exit code out.
//!
//! Exit codes: 0 all done; 1 it could not be done, and standard error says why; 2 the arguments
//! make no sense.

#![forbid(unsafe_code)]

mod bench;
mod cp;
mod doctor;
mod serve;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Moves bytes between files and sockets underneath user space, and tells how every byte travelled
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cp(cp::Arguments),
    Serve(serve::Arguments),
    Doctor(doctor::Arguments),
    Bench(Box<bench::Arguments>),
}

fn main() -> ExitCode {
    warn_on_standard_error();
    let outcome = match Arguments::parse().command {
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Bench(arguments) => return bench::run(*arguments),
        Command::Doctor(arguments) => return doctor::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("underpass: {message}");
            ExitCode::FAILURE
        }
    }
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
