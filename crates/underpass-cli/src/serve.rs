//! `underpass serve [DIR]`: the HTTP file server, from its arguments to its last line.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use underpass::limits::JOINED_BYTES_MAX;
use underpass::{Host, Kind, Mechanism, Plan, Policy, Sink, Source};
use underpass_net::{Inherited, Limits, ListenAt, Notifier, Running, cores};
use underpass_serve::{Error, Options, Summary};

use greeting::greeting;

mod greeting;
mod life;

/// Serve the files of a folder over HTTP
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder whose files are served; nothing outside of it can be read
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// Where to wait for connections, once for each place: ADDR:PORT (0.0.0.0:8080 for every
    /// interface, [::]:8080 for version 6 too, port 0 for a free port), unix:/path[,mode=0660], or
    /// systemd[:NAME] for sockets that were passed at the start
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:8080")]
    listen: Vec<ListenAt>,

    /// How long answers under way have to end when the server is told to stop
    #[arg(long, value_name = "TIME", default_value = "30s",
          value_parser = humantime::parse_duration)]
    stop_timeout: Duration,

    /// Threads that answer, each with its own connections [default: the cores this process may use]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Send bodies by this mechanism and no other, small ones too: a connection is reset rather
    /// than served in another way. For measuring, and to find out which one is at fault
    /// [sendfile, splice, read_write]
    #[arg(long, value_name = "MECHANISM")]
    only: Option<Mechanism>,

    /// Answers that fit into so many bytes with their head leave in one write, 0 for none;
    /// `underpass bench small` tells what suits this machine
    #[arg(long, value_name = "BYTES", default_value_t = JOINED_BYTES_MAX,
          value_parser = clap::value_parser!(u64).range(..=JOIN_MAX))]
    join: u64,
}

/// A connection whose peer is slow holds as much memory. Nothing of this size is any faster so.
const JOIN_MAX: u64 = 1 << 20;

/// Serves until a signal ends it. Says on standard output where, how bytes will travel and how to
/// stop it, and at the end how they did.
///
/// The error is one line for people: what was being done, why it failed and what to try.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (inherited, predecessor) = Inherited::take().map_err(|error| error.to_string())?;
    let server = match begin(arguments, inherited) {
        Ok(server) => server,
        Err(why) => {
            if let Some(predecessor) = predecessor {
                predecessor.tell_failed(&why);
            }
            return Err(why);
        }
    };
    match predecessor {
        // It tells the service manager who goes on.
        Some(predecessor) => predecessor
            .tell_ready(&server.running)
            .map_err(|error| error.to_string())?,
        None => server.notifier.ready(&life::status(&server.running)),
    }
    let mut summary = Summary::default();
    for worker in server.running.join() {
        summary.add(&worker);
    }
    say(&farewell(&summary));
    Ok(())
}

/// A server that obeys.
struct Server {
    running: Arc<Running<Summary>>,
    notifier: Arc<Notifier>,
}

fn begin(arguments: &Arguments, inherited: Inherited) -> Result<Server, String> {
    let options = options(arguments)?;
    let plan = body_plan(&options.policy);
    if let Some(only) = arguments.only {
        check(only, &plan)?;
    }
    let running = underpass_serve::serve_on(&options, inherited);
    let running = Arc::new(running.map_err(|error| with_advice(&error))?);
    let notifier = Arc::new(Notifier::of_environment());
    let again = arguments.clone();
    life::obey(&running, &notifier, move || self::options(&again))?;
    let workers = options.workers.map_or_else(cores, NonZeroUsize::get);
    let addresses = running.addresses();
    say(&greeting(&arguments.folder, &addresses, workers, &plan));
    Ok(Server { running, notifier })
}

/// What the arguments ask for. A reload asks again.
fn options(arguments: &Arguments) -> Result<Options, String> {
    Ok(Options {
        listen: arguments.listen.clone(),
        workers: arguments.workers,
        policy: arguments.only.map(Policy::only).unwrap_or_default(),
        connections: Limits {
            joined_bytes_max: arguments.join,
            stop_timeout: arguments.stop_timeout,
            ..Limits::default()
        },
        ..Options::of(&arguments.folder)
    })
}

/// Nobody may be listening to standard output; that is no reason to stop serving.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// How a file gets to a TCP socket on this host.
fn body_plan(policy: &Policy) -> Plan {
    let (file, socket) = (Source::sample(Kind::File), Sink::sample(Kind::Tcp));
    underpass::plan(&file, &socket, &Host::probe(), policy)
}

/// A mechanism that no body can leave by is told before anybody asks for one.
fn check(only: Mechanism, plan: &Plan) -> Result<(), String> {
    if plan.tiers().next().is_some() {
        return Ok(());
    }
    let reason = plan
        .left_out()
        .find(|(mechanism, _)| *mechanism == only)
        .map(|(_, reason)| format!(": {reason}"));
    Err(format!(
        "no body can leave by {only}{}; choose another one with --only, or leave it away",
        reason.unwrap_or_default()
    ))
}

fn farewell(summary: &Summary) -> String {
    let requests = match summary.requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    format!("stopped after {requests}: {}", summary.account)
}

/// What went wrong, and what to try.
fn with_advice(error: &Error) -> String {
    use underpass_net::Error as Net;
    let advice = match error {
        Error::Root { .. } => "name a folder that exists and may be read",
        Error::NoBeneath { .. } => {
            "it needs Linux 5.6 or later and a system call filter that allows openat2"
        }
        Error::Net(Net::AddressTaken { .. }) => {
            "stop that process, or choose another port with --listen ADDR:PORT"
        }
        Error::Net(Net::AddressNotHere { .. }) => {
            "choose an address of this machine with --listen ADDR:PORT, 0.0.0.0 for all of them"
        }
        Error::Net(Net::PortForbidden { .. }) => {
            "choose a port from 1024 on with --listen ADDR:PORT"
        }
        Error::Net(Net::PathTaken { .. }) => {
            "stop that process, or choose another path with --listen unix:/path"
        }
        Error::Net(Net::NoSocketThere { .. }) => {
            "remove it, or choose another path with --listen unix:/path"
        }
        Error::Net(Net::NotActivated { .. }) => {
            "a socket unit passes them, with FileDescriptorName= as their name"
        }
        Error::Net(Net::Generations { .. }) => "try again when downloads have ended",
        Error::Net(_) | Error::Config(_) | Error::NoSite | Error::NameTaken { .. } => {
            return error.to_string();
        }
    };
    format!("{error}; {advice}")
}
