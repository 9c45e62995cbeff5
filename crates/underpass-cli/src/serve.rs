//! `underpass serve [DIR]`: the HTTP file server, from its arguments to its last line.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use underpass::limits::JOINED_BYTES_MAX;
use underpass::{Host, Kind, Mechanism, Plan, Policy, Reason, Sink, Source};
use underpass_net::{Confine, Confinement, Limits, Running, User};
use underpass_serve::{Error, Options, Summary};

/// Serve the files of a folder over HTTP
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder whose files are served; nothing outside of it can be read
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// Where to wait for connections: 0.0.0.0:8080 for every interface, port 0 for a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Threads that answer, each with its own connections [default: the cores this process may use]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Become this user once it listens, for good: NAME or NAME:GROUP. Only root can, and should
    #[arg(long, value_name = "NAME[:GROUP]")]
    user: Option<User>,

    /// Whether workers give up everything but reading what is served (Landlock): as far as this
    /// kernel can, or not at all, or else don't start [auto, required, off]
    #[arg(long, value_name = "HOW", default_value = "auto")]
    confine: Confine,

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
    let options = Options {
        listen: arguments.listen,
        workers: arguments.workers,
        user: arguments.user.clone(),
        confine: arguments.confine,
        policy: arguments.only.map(Policy::only).unwrap_or_default(),
        connections: Limits {
            joined_bytes_max: arguments.join,
            ..Limits::default()
        },
        ..Options::of(&arguments.folder)
    };
    let plan = body_plan(&options.policy);
    if let Some(only) = arguments.only {
        check(only, &plan)?;
    }
    let confinement = options
        .confine
        .probe()
        .map_err(|error| with_advice(&error.into()))?;
    let running = underpass_serve::serve(&options).map_err(|error| with_advice(&error))?;
    underpass_net::obey_signals(running.shutdown()).map_err(|error| error.to_string())?;
    say(&greeting(
        &arguments.folder,
        &running,
        options
            .workers
            .map_or_else(underpass_net::cores, NonZeroUsize::get),
        &confinement,
        &plan,
    ));
    let mut summary = Summary::default();
    for worker in running.join() {
        summary.add(&worker);
    }
    say(&farewell(&summary));
    Ok(())
}

/// Nobody may be listening to standard output; that is no reason to stop serving.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn greeting(
    folder: &Path,
    running: &Running<Summary>,
    workers: usize,
    confinement: &Confinement,
    plan: &Plan,
) -> String {
    let address = running.address();
    let shown = folder.display();
    let threads = match workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    let how = bodies(plan);
    let rights = match rustix::process::geteuid().is_root() {
        true => "warning: it runs as root; name another user with --user NAME\n",
        false => "",
    };
    format!(
        "serving {shown} on http://{address}/ with {threads}; Ctrl-C stops it\n\
         {rights}{confinement}\n{how}"
    )
}

fn bodies(plan: &Plan) -> String {
    let tiers: Vec<_> = plan.tiers().collect();
    let Some((first, others)) = tiers.split_first() else {
        return "bodies cannot leave: nothing is allowed".to_owned();
    };
    let why = match first {
        Mechanism::Sendfile => "pages of the page cache go straight to the socket",
        Mechanism::Splice => "pages of the page cache go to the socket through a pipe",
        _ => "they pass through a buffer of this program",
    };
    let others: Vec<_> = others.iter().map(|tier| tier.name()).collect();
    let fallback = match others.is_empty() {
        true => String::new(),
        false => format!("; where it is refused, by {}", others.join(", then ")),
    };
    let missing: Vec<_> = plan
        .left_out()
        .filter(|(_, reason)| matches!(reason, Reason::Refused(..)))
        .map(|(mechanism, reason)| format!("; not by {mechanism}: {reason}"))
        .collect();
    format!(
        "bodies leave by {first}: {why}{fallback}{}",
        missing.concat()
    )
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
        Error::Net(Net::Confine { .. }) => "choose --confine auto to serve all the same",
        Error::Net(_)
        | Error::Limits { .. }
        | Error::Config(_)
        | Error::NoSite
        | Error::NameTaken { .. } => {
            return error.to_string();
        }
    };
    format!("{error}; {advice}")
}
