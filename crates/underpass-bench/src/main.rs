//! The `underpass-bench` tool, which `underpass bench` runs.
//!
//! Exit codes: 0 success; 1 an error, or something got worse; 2 invalid arguments, or results that
//! cannot be compared; 3 a contender was left out; 130, 143 stopped by SIGINT, SIGTERM.

#![forbid(unsafe_code)]

mod tool;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, value_parser};
use underpass_bench::compare::Changes;
use underpass_bench::document::{Document, RunOutcome};
use underpass_bench::{
    Benchmark, ColdOptions, FileCopyOptions, HttpOptions, LogBenchOptions, ManyOptions, RunScale,
    RunSettings, SmallOptions, SocketOptions, SubprocessRole, TreeOptions, check_report_path,
    host_and_port, parse_count,
};

use tool::pages::{CompletionArguments, PageArguments};
use tool::report::{CompareArguments, RenderArguments, ReportFiles, message};
use tool::stop::CaughtSignal;
use tool::terminal::{columns, complain, print, print_result};

/// Measure what zero-copy saves on this machine; without an experiment, run all but log and tree
#[derive(Debug, Parser)]
#[command(name = "underpass-bench", version, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
struct BenchArguments {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    common: MeasureArguments,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Send a file through a TCP socket, by size and mechanism
    Socket(MeasuredExperiment<SocketOptions>),
    /// Copy a file to a file, by size and mechanism
    Copy(MeasuredExperiment<FileCopyOptions>),
    /// Load servers with connections that request files again and again
    Http(MeasuredExperiment<HttpOptions>),
    /// Find the body size up to which one write beats a head followed by sendfile
    Small(MeasuredExperiment<SmallOptions>),
    /// Measure response times of a hot file while cold files stream
    Cold(MeasuredExperiment<ColdOptions>),
    /// Measure memory and response times with many slow readers or idle connections
    Many(MeasuredExperiment<ManyOptions>),
    /// Measure brokers for Kafka's clients: fetching, producing, starting
    Log(MeasuredExperiment<LogBenchOptions>),
    /// Copy trees, a large file, a sparse one and a clone with `underpass cp` and other programs
    Tree(MeasuredExperiment<TreeOptions>),
    Compare(CompareArguments),
    Render(RenderArguments),
    /// Receive from `bench socket --to` on another machine
    Sink {
        /// Listen on this address, and also on the next port
        #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7070",
              value_parser = |text: &str| host_and_port(text).map(|_| text.to_owned()))]
        listen: String,
    },
    Completions(CompletionArguments),
    Man(PageArguments),
    /// Run a process of a measurement
    #[command(hide = true)]
    Role {
        #[command(subcommand)]
        role: SubprocessRole,
    },
}

/// An experiment, how to measure it, and where the result goes.
#[derive(Debug, Args)]
struct MeasuredExperiment<E: Args> {
    #[command(flatten)]
    experiment: E,
    #[command(flatten)]
    common: MeasureArguments,
}

impl<E: Args + Into<Benchmark>> MeasuredExperiment<E> {
    fn alone(self) -> (Vec<Benchmark>, MeasureArguments) {
        (vec![self.experiment.into()], self.common)
    }
}

#[derive(Debug, Args)]
struct MeasureArguments {
    /// Use fewer sizes and shorter rounds, so that all experiments together take about a minute
    #[arg(long)]
    quick: bool,
    /// Count this many rounds; fewer than 6 can't show a ratio [default: 7, with --quick 6]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>)]
    rounds: Option<usize>,
    /// Write the whole result to this file as JSON, for `render` and `compare`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    files: ReportFiles,
    /// Create the test files in this directory
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
    /// Measure, as root, on a separate loopback under each of these TCP congestion controls
    /// [default: the machine's; large files of http: bbr and cubic]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    congestion: Vec<String>,
    /// Wait this many seconds in each case for a quiet machine and to repeat disturbed rounds
    /// [default: 10, with --quick 0]
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(..=1_000_000))]
    patience: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = BenchArguments::parse();
    let (benchmarks, common) = match arguments.command {
        None => (everything(), arguments.common),
        Some(BenchCommand::Socket(one)) => one.alone(),
        Some(BenchCommand::Copy(one)) => one.alone(),
        Some(BenchCommand::Http(one)) => one.alone(),
        Some(BenchCommand::Small(one)) => one.alone(),
        Some(BenchCommand::Cold(one)) => one.alone(),
        Some(BenchCommand::Many(one)) => one.alone(),
        Some(BenchCommand::Log(one)) => one.alone(),
        Some(BenchCommand::Tree(one)) => one.alone(),
        Some(BenchCommand::Compare(compare)) => return compared(compare.run()),
        Some(BenchCommand::Render(render)) => return done(render.run()),
        Some(BenchCommand::Sink { listen }) => return done(receive(&listen)),
        Some(BenchCommand::Completions(shell)) => {
            return done(shell.run(BenchArguments::command()));
        }
        Some(BenchCommand::Man(pages)) => return done(pages.run(BenchArguments::command())),
        Some(BenchCommand::Role { role }) => return done(role.perform().map_err(message)),
    };
    match measure(&benchmarks, &common) {
        Ok(code) => code,
        Err(message) => done(Err(message)),
    }
}

/// The exit codes of diff for a difference and for trouble.
const WORSE: u8 = 1;
const INCOMPARABLE: u8 = 2;

/// A result is there, but not of all that was requested.
const LEFT_OUT: u8 = 3;

fn done(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

fn compared(outcome: Result<Changes, String>) -> ExitCode {
    match outcome {
        Ok(changes) if changes.is_worse() => ExitCode::from(WORSE),
        Ok(_) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::from(INCOMPARABLE)
        }
    }
}

fn receive(listen: &str) -> Result<(), String> {
    let report = |line: &str| drop(print(&format!("{line}\n")));
    underpass_bench::receive_for_others(listen, report).map_err(message)
}

/// All experiments with their default options, but not `log`, which is about a broker, nor `tree`,
/// which creates millions of files.
fn everything() -> Vec<Benchmark> {
    vec![
        defaults::<SocketOptions>(),
        defaults::<FileCopyOptions>(),
        defaults::<HttpOptions>(),
        defaults::<SmallOptions>(),
        defaults::<ColdOptions>(),
        defaults::<ManyOptions>(),
    ]
}

fn defaults<E: Args + Into<Benchmark>>() -> Benchmark {
    let command = E::augment_args(clap::Command::new("bench").no_binary_name(true));
    let matches = command.get_matches_from([""; 0]);
    let options = E::from_arg_matches(&matches).expect("every option has a default");
    options.into()
}

fn measure(benchmarks: &[Benchmark], common: &MeasureArguments) -> Result<ExitCode, String> {
    common.check_files()?;
    let caught = CaughtSignal::catch()?;
    let settings = common.settings();
    let document =
        underpass_bench::measure(benchmarks, &settings, caught.flag()).map_err(message)?;
    common.report(&document)?;
    if let (RunOutcome::Interrupted, Some(signal)) = (document.outcome, caught.number()) {
        return Ok(ExitCode::from(128 + signal));
    }
    let Some(names) = document.left_out() else {
        return Ok(ExitCode::SUCCESS);
    };
    complain(&format!("left out, see the notes: {names}"));
    Ok(ExitCode::from(LEFT_OUT))
}

impl MeasureArguments {
    fn settings(&self) -> RunSettings {
        RunSettings {
            scale: match self.quick {
                true => RunScale::Quick,
                false => RunScale::Full,
            },
            rounds: self.rounds,
            patience: self.patience.map(Duration::from_secs),
            scratch: self.scratch.clone(),
            congestion: self.congestion.clone(),
            command: command_line(),
        }
    }

    /// Reports a file that cannot be written before anything is measured.
    fn check_files(&self) -> Result<(), String> {
        let mut files = self.json.iter().chain(self.files.paths());
        files.try_for_each(|path| check_report_path(path).map_err(message))
    }

    /// Writes files first, because standard output may be closed. The text is printed whether they
    /// could be written or not.
    fn report(&self, document: &Document) -> Result<(), String> {
        let json = self
            .json
            .iter()
            .map(|path| document.write(path).map_err(message));
        let written = json
            .chain([self.files.write(document)])
            .fold(Ok(()), Result::and);
        written.and(print_result(&document.text(columns())))
    }
}

/// The command line as `underpass bench` takes it.
fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let line = shlex::try_join(words.iter().map(String::as_str));
    format!(
        "underpass bench {}",
        line.unwrap_or_else(|_| words.join(" "))
    )
}
