//! `underpass bench`: arguments, Ctrl-C, and where the result goes.

mod moves;
mod numbers;
mod pages;
mod role;
mod servers;
mod trees;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use underpass_bench::compare::Changes;
use underpass_bench::document::{Document, RunOutcome};
use underpass_bench::experiment::{RunScale, cold, copy, http, many, small, socket};
use underpass_bench::{RunSettings, Wanted};

use moves::{Copy, Socket};
use pages::{Compare, Pages, Render, say, text_columns};
use role::Part;
use servers::{Cold, Http, Many, Small};
use trees::Tree;

/// Said by the program to itself when it is in a network namespace of its own.
const ISOLATED: &str = "--isolated";

/// Measure what zero-copy buys on this machine: without an experiment, all of them but tree
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    Socket(Socket),
    Copy(Copy),
    Http(Http),
    Small(Small),
    Cold(Cold),
    Many(Many),
    Tree(Tree),
    Compare(Compare),
    Render(Render),
    /// Receive from `bench socket --to` on another machine
    Sink {
        /// Where to listen; the port behind it is listened on too
        #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7070")]
        listen: String,
    },
    /// What the program becomes when it measures
    #[command(hide = true)]
    SubprocessRole {
        #[command(subcommand)]
        role: Part,
    },
}

/// How to measure, and where the result goes
#[derive(Debug, Args)]
struct Common {
    /// All experiments within a minute: fewer sizes, shorter rounds
    #[arg(long)]
    quick: bool,
    /// Rounds that count; fewer than 6 can't tell a ratio [default: 7, with --quick 6]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Write the whole result there, as JSON, for `bench render` and `bench compare`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    pages: Pages,
    /// Where to make the files that are moved
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
    /// Measure on a loopback of its own with this TCP congestion control, as root; cubic is the
    /// kernel's default [default: the machine's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// For how many seconds a case may wait for a quiet machine and repeat disturbed rounds
    /// [default: 10, with --quick 0]
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u64>,
    #[arg(long, hide = true)]
    isolated: bool,
}

/// Measures, and tells. Exit codes: 0 all done; 1 it could not be done, or something became worse;
/// 2 results can't be compared; 130 interrupted: what was done by then is told.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let (wanted, common) = match arguments.command {
        None => (everything(), arguments.common),
        Some(Command::Socket(socket)) => (vec![Wanted::Socket(socket.options())], socket.common),
        Some(Command::Copy(copy)) => (vec![Wanted::Copy(copy.options())], copy.common),
        Some(Command::Http(http)) => (vec![Wanted::Http(http.options())], http.beside.common),
        Some(Command::Small(small)) => (vec![Wanted::Small(small.options())], small.beside.common),
        Some(Command::Cold(cold)) => (vec![Wanted::Cold(cold.options())], cold.beside.common),
        Some(Command::Many(many)) => (vec![Wanted::Many(many.options())], many.beside.common),
        Some(Command::Tree(tree)) => (vec![Wanted::Tree(tree.options())], tree.common),
        Some(Command::Compare(compare)) => return compared(compare.run()),
        Some(Command::Render(render)) => return done(render.run()),
        Some(Command::Sink { listen }) => return done(receive(&listen)),
        Some(Command::SubprocessRole { role }) => return done(role.role().play().map_err(plainly)),
    };
    match measure(&wanted, &common) {
        Ok(RunOutcome::Interrupted) => ExitCode::from(INTERRUPTED),
        measured => done(measured.map(drop)),
    }
}

/// As shells say it of SIGINT.
const INTERRUPTED: u8 = 130;

/// As diff says it: a difference, and trouble.
const WORSE: u8 = 1;
const INCOMPARABLE: u8 = 2;

fn done(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("underpass bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn compared(outcome: Result<Changes, String>) -> ExitCode {
    match outcome {
        Ok(changes) if changes.is_worse() => ExitCode::from(WORSE),
        Ok(_) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("underpass bench compare: {message}");
            ExitCode::from(INCOMPARABLE)
        }
    }
}

fn receive(listen: &str) -> Result<(), String> {
    let tell = |line: &str| say(&format!("{line}\n"));
    underpass_bench::receive_for_others(listen, tell).map_err(plainly)
}

fn plainly(error: underpass_bench::Error) -> String {
    error.to_string()
}

/// Without `tree`, which makes millions of files.
fn everything() -> Vec<Wanted> {
    vec![
        Wanted::Socket(socket::SocketOptions::default()),
        Wanted::Copy(copy::FileCopyOptions::default()),
        Wanted::Http(http::HttpOptions::default()),
        Wanted::Small(small::SmallOptions::default()),
        Wanted::Cold(cold::ColdOptions::default()),
        Wanted::Many(many::ManyOptions::default()),
    ]
}

fn measure(wanted: &[Wanted], common: &Common) -> Result<RunOutcome, String> {
    match &common.congestion {
        Some(_) if !common.isolated => {
            underpass_bench::become_isolated(ISOLATED).map_err(plainly)?;
        }
        Some(congestion) => underpass_bench::set_up_loopback(congestion).map_err(plainly)?,
        None => {}
    }
    let stop = stop_on_signals().map_err(|error| format!("cannot catch Ctrl-C: {error}"))?;
    let document = underpass_bench::measure(wanted, &common.settings(), &stop).map_err(plainly)?;
    common.tell(&document)?;
    Ok(document.outcome)
}

/// The first signal asks for an end, the second one makes it.
fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

impl Common {
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

    /// Files first: nobody may be listening to standard output.
    fn tell(&self, document: &Document) -> Result<(), String> {
        if let Some(path) = &self.json {
            document.write(path).map_err(plainly)?;
        }
        self.pages.write(document)?;
        say(&document.text(text_columns()));
        Ok(())
    }
}

/// As it was typed, without the path of the program.
fn command_line() -> String {
    let words = std::env::args().skip(1).filter(|word| word != ISOLATED);
    let words: Vec<String> = words.collect();
    let line = shlex::try_join(words.iter().map(String::as_str));
    format!("underpass {}", line.unwrap_or_else(|_| words.join(" ")))
}
