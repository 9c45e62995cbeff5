//! `cargo xtask measure serve`: our server against others, in one run, on this machine.
//!
//! ```text
//!    processor 0                      processor 1
//!   ┌─────────────────────┐          ┌───────────────────────────┐
//!   │ server A │ server B │ loopback │ client: one epoll, bodies  │
//!   │ (one at a time)     │◄────────►│ thrown away in the kernel  │
//!   └─────────────────────┘          └───────────────────────────┘
//! ```
//!
//! The walls: `client` and `exchange` make load and know nothing of servers; `server` and `peer`
//! start servers and know nothing of load; `case` says what is asked, `load` asks it, `window`
//! and `proc` read what it cost; `rounds` orders, `stats` judges, `report` prints. `bench` is the
//! only one that knows them all.
//!
//! A figure is believed for these reasons: every body's hash is verified beforehand and every
//! body is counted to its last byte while measuring; both servers have the same processor, files
//! and client in the same run, alternating; the primary figure is the server's processor time,
//! which a slow client does not change; a difference within the spread is not printed as one.

mod bench;
mod build;
mod case;
mod client;
mod data;
mod error;
mod exchange;
mod load;
mod machine;
mod metric;
mod network;
mod noise;
mod notes;
mod peer;
mod proc;
mod report;
mod response;
mod rounds;
mod scratch;
mod server;
mod stats;
mod throttle;
mod trace;
mod verify;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::workspace::Workspace;

use bench::{Bench, Ground, Tracing};
use case::{Case, CaseName, Scale};
use client::Waiting;
use error::{Doing, Error, Result};
use machine::Machine;
use peer::{Contender, Peer};
use report::{CaseEntry, Document, SCHEMA};
use scratch::Scratch;
use server::Processor;
use throttle::Throttle;

const ROUNDS_FULL: usize = 7;
const ROUNDS_QUICK: usize = 3;

const ISOLATED: &str = "--isolated";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Compare file servers over HTTP
    Serve(Box<ServeArguments>),
    /// Bind to a processor and become a command, ending with the parent
    #[command(hide = true)]
    Become {
        #[arg(long)]
        processor: usize,
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Remove a directory once standard input ends
    #[command(hide = true)]
    TakeCare { directory: PathBuf },
}

#[derive(clap::Args)]
struct ServeArguments {
    /// The server in question
    #[arg(long, default_value = "underpass")]
    server: Peer,
    /// A server to compare it with; may be given several times
    #[arg(long = "peer", default_value = "nginx")]
    peers: Vec<Peer>,
    /// Also compare with the server in question varied: for underpass the absolute path of another
    /// build, NAME=VALUE in its environment or an argument, for the others a line of their
    /// configuration; may be given several times
    #[arg(long = "variant", allow_hyphen_values = true)]
    variants: Vec<String>,
    /// What to measure; may be given several times
    #[arg(long = "case", default_values = ["large", "small", "memory", "cold", "crossover"])]
    cases: Vec<CaseName>,
    /// Short rounds and few, to see that all of it works
    #[arg(long)]
    quick: bool,
    /// Rounds that count [default: 7, quick: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Connections of the large, small and crossover cases [default: 4, 64, 32]
    #[arg(long)]
    connections: Option<usize>,
    /// Write the whole result there
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the tables there, as Markdown
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Where to make the files to serve; has to be on a disk for the cold case
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// The underpass program to measure [default: a fresh release build]
    #[arg(long)]
    underpass: Option<PathBuf>,
    /// What the client does while no answer is there
    #[arg(long, default_value = "sleeping")]
    client: Waiting,
    /// Measure on a loopback of its own with this TCP congestion control, as root; cubic is the
    /// kernel's default [default: the machine's]
    #[arg(long)]
    congestion: Option<String>,
    /// The loopback is set up: said by the program to itself
    #[arg(long, hide = true)]
    isolated: bool,
    /// Let the servers read at most so many MiB per second from the disk, as root
    #[arg(long)]
    disk_mib: Option<u64>,
    /// Leave out the pass that counts system calls with strace
    #[arg(long)]
    no_calls: bool,
    /// For how many seconds a case may wait for a quiet machine and repeat disturbed rounds
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// The processor of the servers
    #[arg(long, default_value_t = 0)]
    server_processor: usize,
    /// The processor of the client
    #[arg(long, default_value_t = 1)]
    client_processor: usize,
}

/// Runs the subcommand; a failure is told on standard error.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> ExitCode {
    let done = match &arguments.command {
        Command::Serve(_) if cfg!(debug_assertions) => build::become_release(workspace),
        Command::Serve(arguments) => serve(workspace, arguments),
        Command::Become { processor, command } => {
            server::become_server(Processor(*processor), command)
        }
        Command::TakeCare { directory } => scratch::take_care(directory),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(workspace: &Workspace, arguments: &ServeArguments) -> Result<()> {
    match &arguments.congestion {
        Some(_) if !arguments.isolated => return network::become_isolated(ISOLATED),
        Some(congestion) => network::set_up_loopback(congestion)?,
        None => {}
    }
    let underpass = arguments.underpass_program(workspace)?;
    server::bind_to(Processor(arguments.client_processor))?;
    let scratch = Scratch::create(&arguments.directory)?;
    let measured = measure(arguments, &scratch, underpass);
    scratch.finish()?;
    let document = measured?;
    print!("{}", document.text());
    arguments.write(&document)
}

fn measure(arguments: &ServeArguments, scratch: &Scratch, underpass: PathBuf) -> Result<Document> {
    let machine = Machine::look(scratch.path());
    let machine = match &arguments.congestion {
        Some(congestion) => machine.with_congestion_control(congestion),
        None => machine,
    };
    let throttle = |mib: u64| Throttle::create(scratch.path(), mib << 20);
    let ground = Ground {
        processor: Processor(arguments.server_processor),
        underpass,
        waiting: arguments.client,
        throttle: arguments.disk_mib.map(throttle).transpose()?,
    };
    let mut bench = Bench::start(scratch, &arguments.contenders(), ground)?
        .with_rounds(arguments.rounds())
        .with_patience(Duration::from_secs(arguments.patience))
        .with_tracing(if arguments.no_calls {
            Tracing::Skip
        } else {
            Tracing::Count
        });
    let cases = run_all(&mut bench, &arguments.all_cases());
    let servers = bench.servers();
    bench.finish()?;
    let cases = cases?;
    let rounds = arguments.rounds();
    let (date, command) = (machine::today(), command_line());
    let disk_mib_per_second = arguments.disk_mib;
    Ok(Document {
        disk_mib_per_second,
        schema: SCHEMA,
        date,
        command,
        machine,
        rounds,
        servers,
        cases,
    })
}

fn run_all(bench: &mut Bench, cases: &[Case]) -> Result<Vec<CaseEntry>> {
    let run = |case: &Case| {
        eprintln!("{} {}", case.title(), case.part);
        bench.run(case)
    };
    cases.iter().map(run).collect()
}

/// As it was typed, without the path of the program.
fn command_line() -> String {
    let words = std::env::args().skip(1).filter(|word| word != ISOLATED);
    let words: Vec<String> = words.collect();
    format!("cargo xtask {}", words.join(" "))
}

impl ServeArguments {
    fn rounds(&self) -> usize {
        self.rounds
            .unwrap_or(if self.quick {
                ROUNDS_QUICK
            } else {
                ROUNDS_FULL
            })
            .max(1)
    }

    fn all_cases(&self) -> Vec<Case> {
        let scale = if self.quick {
            Scale::Quick
        } else {
            Scale::Full
        };
        let of_name = |&name| case::cases(name, scale, self.connections);
        self.cases.iter().flat_map(of_name).collect()
    }

    fn contenders(&self) -> Vec<Contender> {
        let plain = |peer| Contender {
            peer,
            variant: None,
        };
        let variants = self.variants.iter().cloned();
        let variants = variants.map(|v| Contender {
            peer: self.server,
            variant: Some(v),
        });
        let peers = self.peers.iter().copied().map(plain);
        std::iter::once(plain(self.server))
            .chain(variants)
            .chain(peers)
            .collect()
    }

    fn underpass_program(&self, workspace: &Workspace) -> Result<PathBuf> {
        let is_wanted = self.server == Peer::Underpass || self.peers.contains(&Peer::Underpass);
        match &self.underpass {
            Some(program) => Ok(program.clone()),
            None if is_wanted => {
                Ok(build::build_release(workspace, &["underpass-cli"])?.join("underpass"))
            }
            None => Ok(PathBuf::new()),
        }
    }

    fn write(&self, document: &Document) -> Result<()> {
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(document)
                .map_err(|error| Error::Setting(format!("writing JSON: {error}")))?;
            std::fs::write(path, text).doing(|| format!("writing {}", path.display()))?;
        }
        if let Some(path) = &self.markdown {
            let text = document.markdown();
            std::fs::write(path, text).doing(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }
}
