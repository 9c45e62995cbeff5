//! `cargo xtask soak`: runs the test `soak` for some minutes: the real server with clients that
//! come, stall and vanish, while its files are replaced, cut short and appended to.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::artifacts;
use crate::workspace::{Fallible, Workspace, exit_code};

#[derive(clap::Args)]
pub(crate) struct SoakArguments {
    /// Minutes of load, at most 120
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=120))]
    minutes: u64,
    /// Seed of the random numbers that choose what each client does
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Program to test [default: the debug build]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &SoakArguments) -> Fallible<ExitCode> {
    let program = match &arguments.program {
        Some(program) => program.canonicalize()?,
        None => artifacts::tool(&mut artifacts::debug_build(workspace))?,
    };
    let mut test = workspace.cargo_over_everything("test");
    test.args("--quiet --test soak -- --ignored --nocapture".split(' '));
    test.env("CARGO_BIN_EXE_underpass", program)
        .env("UNDERPASS_SOAK_MINUTES", arguments.minutes.to_string())
        .env("UNDERPASS_SOAK_SEED", arguments.seed.to_string());
    Ok(exit_code(test.status()?.success()))
}
