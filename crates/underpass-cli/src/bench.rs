//! `underpass bench`: arguments, Ctrl-C, and where the result goes.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use underpass::{Cloning, Mechanism};
use underpass_bench::document::{Document, Outcome};
use underpass_bench::experiment::{Scale, copy, socket};
use underpass_bench::{MoverSettings, Named, Role, Settings, Taking, Wanted};

/// Said by the program to itself when it is in a network namespace of its own.
const ISOLATED: &str = "--isolated";

/// Measure what zero-copy buys on this machine: without an experiment, all of them
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
    Render(Render),
    /// Receive from `bench socket --to` on another machine
    Sink {
        /// Where to listen; the port behind it is listened on too
        #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7070")]
        listen: String,
    },
    /// What the program becomes when it measures
    #[command(hide = true)]
    Role {
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

/// What is made of a result
#[derive(Debug, Args)]
struct Pages {
    /// Write the tables there, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a page with charts there, as HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Pages {
    fn write(&self, document: &Document) -> Result<(), String> {
        let write = |path: &PathBuf, text: String| {
            let written = std::fs::write(path, text);
            written.map_err(|error| format!("cannot write '{}': {error}", path.display()))
        };
        if let Some(path) = &self.markdown {
            write(path, document.markdown())?;
        }
        if let Some(path) = &self.report {
            write(path, document.html())?;
        }
        Ok(())
    }
}

/// A file through a TCP socket, by size, by every mechanism
#[derive(Debug, Args)]
struct Socket {
    /// File sizes, such as 7MB,1GiB [default: 7 to 1000 MB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// What the receiver does with the bytes
    #[arg(long, value_name = "HOW", default_value = "both")]
    receiver: Receiver,
    /// Send to `underpass bench sink` on another machine
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    to: Option<(String, u16)>,
    /// Also measure a program that does jobs as told on its standard input (docs/bench.md)
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<Named>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Receiver {
    /// The kernel throws them away: the sender's cost alone
    Discard,
    /// It copies them into a buffer, as programs do
    Copy,
    /// One after the other
    Both,
}

/// A file to a file, by size, by every mechanism
#[derive(Debug, Args)]
struct Copy {
    /// File sizes, such as 10KiB,1GiB [default: 10 KiB to 1 GiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// Copy in this folder; several times for several file systems [default: --scratch]
    #[arg(long = "in", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Also measure a program that does jobs as told on its standard input (docs/bench.md)
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<Named>,
    /// Also measure a program that is started for each copy, as in 'gnu=cp {from} {to}'
    #[arg(long = "program", value_name = "NAME=COMMAND")]
    programs: Vec<Named>,
    #[command(flatten)]
    common: Common,
}

/// Make tables and pages of results that were written by --json; several become one
#[derive(Debug, Args)]
struct Render {
    /// What --json wrote
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    #[command(flatten)]
    pages: Pages,
}

impl Render {
    fn run(&self) -> Result<(), String> {
        let read = |path: &PathBuf| Document::read(path).map_err(plainly);
        let documents: Result<Vec<Document>, String> = self.results.iter().map(read).collect();
        let mut documents = documents?.into_iter();
        let first = documents.next().ok_or("no result to render")?;
        let document = documents.fold(first, Document::followed_by);
        self.pages.write(&document)?;
        say(&document.text(text_columns()));
        Ok(())
    }
}

/// Nobody may be listening.
fn say(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// The terminal's width, or what fits everywhere.
fn text_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 100 } else { columns }
}

#[derive(Debug, Subcommand)]
enum Part {
    Become {
        #[arg(long)]
        processor: Option<usize>,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    TakeCare {
        directory: PathBuf,
    },
    Mover {
        #[arg(long)]
        only: Option<Mechanism>,
        #[arg(long)]
        call_bytes: Option<u64>,
        #[arg(long)]
        unshared: bool,
    },
}

/// Measures, and tells. Exit codes: 0 all done, 1 it could not be done, 130 interrupted: what was
/// done by then is told.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match dispatch(arguments) {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(message) => {
            eprintln!("underpass bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// As shells say it of SIGINT.
const INTERRUPTED: u8 = 130;

fn dispatch(arguments: Arguments) -> Result<Outcome, String> {
    let (wanted, common) = match arguments.command {
        None => (everything(), arguments.common),
        Some(Command::Socket(socket)) => (vec![Wanted::Socket(socket.options())], socket.common),
        Some(Command::Copy(copy)) => (vec![Wanted::Copy(copy.options())], copy.common),
        Some(Command::Render(render)) => {
            render.run()?;
            return Ok(Outcome::Complete);
        }
        Some(Command::Sink { listen }) => {
            let tell = |line: &str| println!("{line}");
            underpass_bench::receive_for_others(listen.as_str(), tell).map_err(plainly)?;
            return Ok(Outcome::Complete);
        }
        Some(Command::Role { role }) => {
            role.role().play().map_err(plainly)?;
            return Ok(Outcome::Complete);
        }
    };
    let document = measure(&wanted, &common)?;
    common.tell(&document)?;
    Ok(document.outcome)
}

fn plainly(error: underpass_bench::Error) -> String {
    error.to_string()
}

fn everything() -> Vec<Wanted> {
    vec![
        Wanted::Socket(socket::Options::default()),
        Wanted::Copy(copy::Options::default()),
    ]
}

fn measure(wanted: &[Wanted], common: &Common) -> Result<Document, String> {
    match &common.congestion {
        Some(_) if !common.isolated => {
            underpass_bench::become_isolated(ISOLATED).map_err(plainly)?;
        }
        Some(congestion) => underpass_bench::set_up_loopback(congestion).map_err(plainly)?,
        None => {}
    }
    let stop = stop_on_signals().map_err(|error| format!("cannot catch Ctrl-C: {error}"))?;
    underpass_bench::measure(wanted, &common.settings(), &stop).map_err(plainly)
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
    fn settings(&self) -> Settings {
        Settings {
            scale: match self.quick {
                true => Scale::Quick,
                false => Scale::Full,
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

impl Socket {
    fn options(&self) -> socket::Options {
        socket::Options {
            sizes: self.sizes.clone(),
            taking: match self.receiver {
                Receiver::Discard => Some(Taking::Discarding),
                Receiver::Copy => Some(Taking::Copying),
                Receiver::Both => None,
            },
            to: self.to.clone(),
            peers: self.peers.clone(),
        }
    }
}

impl Copy {
    fn options(&self) -> copy::Options {
        copy::Options {
            sizes: self.sizes.clone(),
            folders: self.folders.clone(),
            peers: self.peers.clone(),
            programs: self.programs.clone(),
        }
    }
}

impl Part {
    fn role(self) -> Role {
        match self {
            Part::Become { processor, command } => Role::Become { processor, command },
            Part::TakeCare { directory } => Role::TakeCare(directory),
            Part::Mover {
                only,
                call_bytes,
                unshared,
            } => Role::Mover(MoverSettings {
                only,
                call_bytes,
                cloning: match unshared {
                    true => Cloning::Never,
                    false => Cloning::default(),
                },
            }),
        }
    }
}

/// `7MB`, `64KiB`, `1G`: a whole number, and a decimal or binary unit; a single letter is binary,
/// as GNU's tools have it.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("K", 1 << 10),
        ("KiB", 1 << 10),
        ("KB", 1000),
        ("M", 1 << 20),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("G", 1 << 30),
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
    ];
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))
        .ok_or("the unit is none of K, KiB, KB, M, MiB, MB, G, GiB, GB")?;
    let number: u64 = number.parse().map_err(|_| "a whole number is needed")?;
    let size = number.checked_mul(unit.1).filter(|&size| size > 0);
    size.ok_or_else(|| "a size from 1 byte on is needed".to_owned())
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("expected HOST:PORT")?;
    let port: u16 = port.parse().map_err(|_| "the port is no number")?;
    match port.checked_add(1) {
        Some(_) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err("a host, and a port below 65535, are needed".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["7MB", "64KiB", "1G", "123", "10 kb"].map(|text| bytes(text).ok());
        let expected = [7_000_000, 65_536, 1 << 30, 123, 10_000].map(Some);
        assert_eq!(sizes, expected);
        for text in ["", "MB", "7XB", "-1", "0", "99999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sink_has_a_host_and_a_port_with_one_behind_it() {
        assert_eq!(host_and_port("::1:70"), Ok(("::1".into(), 70)));
        for text in ["here", ":70", "here:x", "here:65535"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }
}
