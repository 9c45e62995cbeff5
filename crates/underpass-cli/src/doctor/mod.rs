//! `underpass doctor`: tests what this kernel and these file systems can do.
//!
//! ```text
//!  paths ─▶ places ─┐
//!  TCP, Unix, pipe ─┴▶ pairs ─▶ a trial per mechanism, one with all allowed ─▶ rows ─┐
//!  kernel, kernel TLS, pipes, TCP, open files ───────────────────────────────────────┼▶ DoctorReport
//!                                                                advice on all of it ┘
//! ```
//!
//! "Works" means that a real transfer completed, that its account shows the mechanism moved all
//! bytes, and that every byte was compared. Nothing is inferred from versions or names.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use underpass::Mechanism;

mod advice;
mod explanation;
mod kernel;
mod layout;
mod loopback;
mod mount;
mod pair;
mod path;
mod sample;
mod settings;
mod text;
mod time_limit;
mod tls;
mod trial;

use advice::Advice;
use kernel::KernelReport;
use layout::Styling;
use loopback::StreamKind;
use pair::{PairEnd, PairResults};
use path::{TestedPath, Usable};
use settings::{DescriptorLimits, KernelSetting, PipeLimits};
use tls::KernelTls;
use trial::TrialOutcome;

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

/// The whole report, in the order of its JSON form.
#[derive(Debug, Serialize)]
struct DoctorReport {
    schema: &'static str,
    version: &'static str,
    kernel: KernelReport,
    paths: Vec<TestedPath>,
    pairs: Vec<PairResults>,
    commands: Vec<CommandUse>,
    kernel_tls: KernelTls,
    pipes: PipeLimits,
    tcp: Vec<KernelSetting>,
    open_files: DescriptorLimits,
    advice: Vec<Advice>,
}

/// The mechanisms that a command of Underpass will use between two ends.
#[derive(Debug, Serialize)]
struct CommandUse {
    command: &'static str,
    source: String,
    sink: String,
    result: &'static str,
    /// Empty unless it works.
    uses: Vec<Mechanism>,
}

/// Prints the report. Exit code 0: everything was tested; 1: something could not be tested, or
/// wrong bytes arrived.
pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    let report = DoctorReport::make(&arguments.paths);
    let text = if arguments.json {
        let json = serde_json::to_string_pretty(&report);
        json.map_or_else(|error| error.to_string(), |json| json + "\n")
    } else {
        text::render(&report, Styling::for_stdout())
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => report.exit_code(),
        // The reader has seen enough: `| head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => report.exit_code(),
        Err(error) => {
            eprintln!("underpass doctor: cannot write the report: {error}");
            ExitCode::FAILURE
        }
    }
}

impl DoctorReport {
    fn make(paths: &[PathBuf]) -> Self {
        let bytes = sample::bytes();
        let kernel = KernelReport::ask();
        let ids = ('A'..='Z').map(String::from);
        let places: Vec<_> = ids
            .zip(paths_or_default(paths))
            .map(|(id, path)| TestedPath::inspect(id, &path, &bytes))
            .collect();
        let pairs = pair::try_all(&places, &bytes);
        let mut report = Self {
            schema: "underpass.doctor/1",
            version: env!("CARGO_PKG_VERSION"),
            paths: places,
            commands: pairs.iter().flat_map(commands).collect(),
            pairs,
            kernel_tls: KernelTls::ask(&kernel.release),
            kernel,
            pipes: PipeLimits::ask(),
            tcp: settings::tcp(),
            open_files: DescriptorLimits::ask(),
            advice: Vec::new(),
        };
        report.advice = advice::on(&report);
        report
    }

    fn exit_code(&self) -> ExitCode {
        let unusable = self
            .paths
            .iter()
            .any(|place| place.usable == Usable::Nothing);
        let mut outcomes = self.pairs.iter().flat_map(PairResults::outcomes);
        let alarms = |outcome: &TrialOutcome| {
            matches!(
                outcome,
                TrialOutcome::WrongBytes { .. } | TrialOutcome::NotTried { .. }
            )
        };
        if unusable || outcomes.any(alarms) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

fn paths_or_default(paths: &[PathBuf]) -> Vec<PathBuf> {
    let (here, tmp) = (Path::new("."), Path::new("/tmp"));
    match paths {
        [] if path::are_same(here, tmp) => vec![here.to_owned()],
        [] => vec![here.to_owned(), tmp.to_owned()],
        given => given.to_owned(),
    }
}

/// The commands that move bytes between these ends.
fn commands(row: &PairResults) -> Vec<CommandUse> {
    let names: &[_] = match row.ends {
        (PairEnd::Place(_), PairEnd::Place(_)) => &["cp"],
        (PairEnd::Place(_), PairEnd::Stream(StreamKind::Tcp)) => &["serve", "send"],
        (PairEnd::Stream(StreamKind::Tcp), PairEnd::Place(_)) => &["recv"],
        _ => &[],
    };
    let with = |command: &&'static str| CommandUse {
        command,
        source: row.source.clone(),
        sink: row.sink.clone(),
        result: row.auto.outcome.word(),
        uses: row.auto.uses.clone(),
    };
    names.iter().map(with).collect()
}
