//! The `underpass` tool: arguments in, one command run, an exit code out.
//!
//! Exit codes: 0 all done; 1 it could not be done, and standard error says why; 2 the arguments
//! make no sense.

#![forbid(unsafe_code)]

mod cp;

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
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Cp(arguments) => cp::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("underpass: {message}");
            ExitCode::FAILURE
        }
    }
}
