//! What the project does to itself.

#![forbid(unsafe_code)]

mod measure;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "What the project does to itself")]
enum Command {
    /// Compare our server with others on this machine, in one run
    Measure(measure::Arguments),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Measure(arguments) => measure::run(&arguments),
    }
}
