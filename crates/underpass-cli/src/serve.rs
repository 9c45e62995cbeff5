//! `underpass serve [DIR]`: the HTTP file server, from its arguments to its last line.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use underpass::{Host, Kind, Mechanism, Plan, Policy, Reason, Sink, Source};
use underpass_net::Running;
use underpass_serve::{Error, Options, Site, Summary};

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
}

/// Serves until a signal ends it. Says on standard output where, how bytes will travel and how to
/// stop it, and at the end how they did.
///
/// The error is one line for people: what was being done, why it failed and what to try.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let cores = underpass_net::cores();
    let options = Options {
        listen: arguments.listen,
        workers: arguments.workers.map_or(cores, NonZeroUsize::get),
        ..Options::default()
    };
    let running = Site::open(&arguments.folder)
        .and_then(|site| underpass_serve::serve(site, &options))
        .map_err(|error| with_advice(&error))?;
    underpass_net::obey_signals(running.shutdown()).map_err(|error| error.to_string())?;
    say(&greeting(&arguments.folder, &running, options.workers));
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

fn greeting(folder: &Path, running: &Running<Summary>, workers: usize) -> String {
    let address = running.address();
    let shown = folder.display();
    let threads = match workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    let how = bodies(&body_plan());
    format!("serving {shown} on http://{address}/ with {threads}; Ctrl-C stops it\n{how}")
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
fn body_plan() -> Plan {
    let (file, socket) = (Source::sample(Kind::File), Sink::sample(Kind::Tcp));
    underpass::plan(&file, &socket, &Host::probe(), &Policy::default())
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
        Error::Net(_) => return error.to_string(),
    };
    format!("{error}; {advice}")
}
