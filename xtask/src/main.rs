//! What the project does to itself: `cargo xtask test`, `tidy`, `docs`, `peers` and
//! `soak`.
//!
//! ```text
//! main ─► test ─► steps of cargo, the tests that need something ─► one line of totals
//!      ─► tidy ─► one function per rule over the tracked files and `cargo metadata`
//!      ─► docs ─► the test that writes the generated pages
//!      ─► peers ─► what users would pick instead, through `underpass bench` ─► a page
//!      ─► soak ─► the real server, minutes of clients that come, stall and vanish
//! ```
#![forbid(unsafe_code)]

mod docs;
mod peers;
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
    Tidy,
    /// Write the generated pages anew
    Docs,
    /// Measure Underpass beside what users would pick instead, and write docs/measurements.md
    Peers(peers::Arguments),
    /// Put the real server under clients that come, stall and vanish while its files change
    Soak(soak::Arguments),
}

fn main() -> ExitCode {
    let workspace = Workspace::here();
    let done = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&workspace, &arguments),
        Command::Tidy => tidy::run(&workspace),
        Command::Docs => docs::run(&workspace),
        Command::Peers(arguments) => peers::run(&workspace, &arguments),
        Command::Soak(arguments) => soak::run(&workspace, &arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
