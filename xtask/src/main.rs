//! Development tasks of the project.
//!
//! ```text
//! main ─► test ─► steps of cargo, the tests that need something ─► one line of totals
//!      ─► tidy ─► one function per rule over the tracked files and `cargo metadata`
//!      ─► journey ─► the files that a request and a copy pass, by coverage
//!      ─► mutants ─► whether the tests of the pure modules notice a change
//!      ─► docs ─► the test that writes the generated pages
//!      ─► kafka-tables ─► the tables of Kafka's messages, from the schemas in its jars
//!      ─► peers ─► what users would pick instead, through `underpass bench` ─► a page
//!      ─► soak ─► the real server, minutes of clients that come, stall and vanish
//!      ─► guest ─► the tests of kernel TLS, with kernels that have it
//!      ─► release ─► a static binary, and a container image with it
//! ```
#![forbid(unsafe_code)]

mod artifacts;
mod docs;
mod journey;
mod kafka_tables;
mod mutants;
mod needs;
mod packages;
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
#[command(
    name = "cargo-xtask",
    bin_name = "cargo xtask",
    about = "What the project does to itself"
)]
struct XtaskArguments {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run everything that must pass
    Test(test::TestArguments),
    /// Check what the compiler can't: sizes, walls, licences, links, forbidden things
    Tidy(tidy::TidyArguments),
    /// Count the source files that a request and a copy pass
    Journey,
    /// Change the modules that only compute, and see whether their tests notice
    Mutants(mutants::MutantsArguments),
    /// Write the generated pages anew
    Docs,
    /// Write the tables of Kafka's messages anew, from the schemas in its jars
    KafkaTables(kafka_tables::KafkaTablesArguments),
    /// Measure Underpass and its alternatives, and write docs/measurements.md
    Peers(peers::PeersArguments),
    /// Put the real server under clients that come, stall and vanish while its files change
    Soak(soak::SoakArguments),
    /// Run the tests of kernel TLS in guests whose kernels have it
    Guest(test::GuestArguments),
    /// Build a static binary, and a container image from it without Docker
    Release(release::ReleaseArguments),
}

fn main() -> ExitCode {
    end_with_reader();
    if let Some(status) = journey::compile() {
        return status;
    }
    let workspace = Workspace::here();
    let done = match XtaskArguments::parse().command {
        XtaskCommand::Test(arguments) => test::run(&workspace, &arguments),
        XtaskCommand::Tidy(arguments) => tidy::run(&workspace, &arguments),
        XtaskCommand::Journey => journey::run(&workspace),
        XtaskCommand::Mutants(arguments) => mutants::run(&workspace, &arguments),
        XtaskCommand::Docs => docs::run(&workspace),
        XtaskCommand::KafkaTables(arguments) => kafka_tables::run(&workspace, &arguments),
        XtaskCommand::Peers(arguments) => peers::run(&workspace, &arguments),
        XtaskCommand::Soak(arguments) => soak::run(&workspace, &arguments),
        XtaskCommand::Guest(arguments) => test::run_guests(&workspace, &arguments),
        XtaskCommand::Release(arguments) => release::run(&workspace, &arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Exits if the reader of the output is gone (`| head`), instead of panicking.
fn end_with_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panicked| {
        let message = panicked.to_string();
        if message.contains("failed printing to stdout: Broken pipe") {
            std::process::exit(1);
        }
        report(panicked);
    }));
}
