//! `underpass doctor`: tests what this kernel and these file systems can do.
//!
//! ```text
//!  paths ──────────┐
//!  TCP, Unix, pipe ┴▶ pairs ─▶ a trial per mechanism, one with all allowed ─▶ results ─┐
//!  kernel, kernel TLS, pipes, TCP, open files ─────────────────────────────────────────┼▶ report
//!                                                                               advice ┘
//! ```
//!
//! "Works" means that a real transfer completed, that its account shows the mechanism moved all
//! bytes, and that every byte was compared. Nothing is inferred from versions or names.

use std::path::PathBuf;
use std::process::ExitCode;

mod advice;
mod explanation;
mod kernel;
mod mount;
mod pair;
mod path;
mod report;
mod text;
mod tls;
mod trial;
mod trial_ends;

use crate::layout::{complain, print};
use path::{TestedPath, Usable};
use report::DoctorReport;

/// Each path has a letter, and every pair takes time.
const PATHS_MAX: usize = 16;

/// Test every mechanism that moves bytes, on this machine and between these paths
///
/// Each test transfers 1 MiB and compares every byte. No files are left behind.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArguments {
    /// Test transfers from, to and between these directories, at most 16; a file stands for its
    /// directory [default: the current directory and /tmp]
    #[arg(value_name = "PATH", num_args = 0..=PATHS_MAX)]
    paths: Vec<PathBuf>,

    /// Print the report as JSON (schema underpass.doctor/1)
    #[arg(long)]
    json: bool,
}

/// Prints the report. Exit code 0: everything was tested; 1: something could not be tested, or
/// wrong bytes arrived.
pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    let mut report = DoctorReport::new(&arguments.paths);
    report.advice = advice::on(&report);
    let is_useless = |path: &&TestedPath| path.usable == Usable::Nothing;
    for path in report.paths.iter().filter(is_useless) {
        let (given, notes) = (path.given.escape_debug(), path.notes.join("; "));
        complain(&format!(
            "underpass doctor: {given} was not tried: {notes}\n"
        ));
    }
    let text = if arguments.json {
        let json = serde_json::to_string_pretty(&report);
        json.map_or_else(|error| error.to_string(), |json| json + "\n")
    } else {
        text::render(&report)
    };
    match print(&text) {
        Ok(()) => report.exit_code(),
        Err(why) => {
            complain(&format!("underpass doctor: {why}\n"));
            ExitCode::FAILURE
        }
    }
}
