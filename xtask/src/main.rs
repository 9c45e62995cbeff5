//! What the project does to itself: `cargo xtask test`, `tidy`, `journey`, `docs`,
//! `peers`, `soak` and `release`.
//!
//! ```text
//! main ─► test ─► steps of cargo, the tests that need something ─► one line of totals
//!      ─► tidy ─► one function per rule over the tracked files and `cargo metadata`
//!      ─► journey ─► the files that a request and a copy pass, by coverage
//!      ─► docs ─► the test that writes the generated pages
//!      ─► peers ─► what users would pick instead, through `underpass bench` ─► a page
//!      ─► soak ─► the real server, minutes of clients that come, stall and vanish
//!      ─► release ─► a static binary, and a container image with it
//! ```
#![forbid(unsafe_code)]

mod artifacts;
mod docs;
mod journey;
mod peers;
mod release;
mod soak;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "What the project does to itself")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything that must pass
    Test(test::Arguments),
    /// Check what the compiler can't: sizes, walls, licences, links, forbidden things
    Tidy(tidy::Arguments),
    /// Count the source files that a request and a copy pass
    Journey,
    /// Write the generated pages anew
    Docs,
    /// Measure Underpass beside what users would pick instead, and write docs/measurements.md
    Peers(peers::Arguments),
    /// Put the real server under clients that come, stall and vanish while its files change
    Soak(soak::SoakArguments),
    /// Build a static binary, and a container image from it without Docker
    Release(release::Arguments),
}

fn main() -> ExitCode {
    if let Some(status) = journey::compile() {
        return status;
    }
    let workspace = Workspace::here();
    let done = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&workspace, &arguments),
        Command::Tidy(arguments) => tidy::run(&workspace, &arguments),
        Command::Journey => journey::run(&workspace),
        Command::Docs => docs::run(&workspace),
        Command::Peers(arguments) => peers::run(&workspace, &arguments),
        Command::Soak(arguments) => soak::run(&workspace, &arguments),
        Command::Release(arguments) => release::run(&workspace, &arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
