//! The `underpass` tool.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod doctor;

/// Moves bytes between files and sockets underneath user space, and tells how every byte travelled.
#[derive(Debug, Parser)]
#[command(name = "underpass", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Doctor(args) => doctor::run(&args),
    }
}
