//! `underpass serve [DIR]`: starts the HTTP file server and waits for its end.

use std::io::{self, Write};
use std::sync::Arc;

use underpass::{Kernel, Kind, Mechanism, Owed, Plan, Policy, Sink, Source};
use underpass_net::{Inherited, Notifier};
use underpass_serve::{Error, FileServer, ServeSummary};

mod addresses;
mod arguments;
mod banner;
mod check;
mod qr;
mod signals;
mod telling;
mod trial;

pub(crate) use arguments::{ServeArguments, options};

use addresses::reachable;
use banner::{BodyPlan, bodies, farewell, greeting, url};
use trial::{TRIED_BYTES, trial};

/// Serves until a signal ends it. Prints to standard output where it listens and how bodies are
/// sent, and at the end what was sent.
///
/// # Errors
/// A message for the user: what failed, why and what to try.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), String> {
    if let Some(file) = &arguments.check {
        say(&check::check(file, arguments)?);
        return Ok(());
    }
    let (inherited, predecessor) = Inherited::take().map_err(|error| error.to_string())?;
    let served = match begin(arguments, inherited) {
        Ok(served) => served,
        Err(why) => {
            if let Some(predecessor) = predecessor {
                predecessor.report_failure(&why);
            }
            return Err(why);
        }
    };
    let running = served.server.running();
    match predecessor {
        // The predecessor reports the new main process to the service manager.
        Some(predecessor) => running
            .take_over_from(predecessor)
            .map_err(|error| error.to_string())?,
        None => served.notifier.ready(&signals::status(running)),
    }
    let mut summary = ServeSummary::default();
    for worker in running.join() {
        summary.add(&worker);
    }
    say(&farewell(&summary));
    Ok(())
}

/// A running server that handles signals.
struct StartedServer {
    server: Arc<FileServer>,
    notifier: Arc<Notifier>,
}

fn begin(arguments: &ServeArguments, inherited: Inherited) -> Result<StartedServer, String> {
    let options = options(arguments)?;
    let plan = body_plan(&options.policy);
    if let Some(only) = arguments.only {
        check_plan(only, &plan.small)?;
    }
    let confinement = options
        .confine
        .probe()
        .map_err(|error| with_advice(&error.into()))?;
    let server = underpass_serve::serve_on(&options, inherited);
    let server = Arc::new(server.map_err(|error| with_advice(&error))?);
    let notifier = Arc::new(Notifier::from_environment());
    let again = arguments.clone();
    signals::obey(&server, &notifier, move || self::options(&again))?;
    let tried = match (arguments.only, options.sites.first()) {
        (None, Some(site)) => trial(&site.root),
        _ => None,
    };
    let bodies = bodies(&plan, tried.as_ref());
    say(&greeting(&options, server.running(), &confinement, &bodies));
    if let (true, Some(address)) = (arguments.telling.qr, server.running().address()) {
        say(&qr::code(&url(&reachable(address)[0])).unwrap_or_default());
    }
    Ok(StartedServer { server, notifier })
}

/// Prints a line; a closed standard output is no reason to stop serving.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The plans for sending a file to a TCP socket on this kernel.
fn body_plan(policy: &Policy) -> BodyPlan {
    let (large, socket) = (Source::sample(Kind::File), Sink::sample(Kind::Tcp));
    let mut small = Source::sample(Kind::File);
    small.owed = Owed::Exactly(TRIED_BYTES);
    let kernel = Kernel::probe();
    let plan = |source| kernel.plan(source, &socket, policy);
    BodyPlan {
        small: plan(&small),
        large: plan(&large),
    }
}

/// Rejects a mechanism that cannot send bodies at the start, before the first request.
fn check_plan(only: Mechanism, plan: &Plan) -> Result<(), String> {
    if plan.tiers().next().is_some() {
        return Ok(());
    }
    let reason = plan
        .left_out()
        .find(|(mechanism, _)| *mechanism == only)
        .map(|(_, reason)| format!(": {reason}"));
    Err(format!(
        "{only} cannot send bodies{}; choose another mechanism with --only, or omit the option",
        reason.unwrap_or_default()
    ))
}

/// The message of an error, followed by what to try.
fn with_advice(error: &Error) -> String {
    use underpass_net::Error as Net;
    let advice = match error {
        Error::Root { .. } => "choose a folder that exists and is readable",
        Error::NoBeneath { .. } => {
            "this needs Linux 5.6 or later and a seccomp filter that allows openat2"
        }
        Error::Net(Net::AddressTaken { .. }) => {
            "stop that process, or choose another port with --listen ADDR:PORT"
        }
        Error::Net(Net::AddressNotHere { .. }) => {
            "choose an address of this machine with --listen ADDR:PORT, or 0.0.0.0 for all"
        }
        Error::Net(Net::PortForbidden { .. }) => {
            "choose a port of 1024 or higher with --listen ADDR:PORT"
        }
        Error::Log { .. } => "choose a file in a writable folder with --log-file FILE",
        Error::Status { .. } => {
            "choose another address with --status ADDR:PORT or --status unix:PATH"
        }
        Error::Thread { .. } => "raise the limit on threads (ulimit -u, TasksMax=)",
        Error::Net(Net::PathTaken { .. }) => {
            "stop that process, or choose another path with --listen unix:/path"
        }
        Error::Net(Net::NoSocketThere { .. }) => {
            "remove it, or choose another path with --listen unix:/path"
        }
        Error::Net(Net::NotActivated { .. }) => {
            "start the service by a socket unit; FileDescriptorName= sets the name"
        }
        Error::Net(Net::Generations { .. }) => "try again after running downloads have completed",
        Error::Fixed { .. } => {
            "send SIGUSR2 instead: a new process takes over without losing a connection"
        }
        Error::NoSite => "add a [[site]] with a root",
        Error::NameTaken { .. } => "remove it from one of them",
        Error::Net(Net::Confine { .. }) => {
            "choose --confine auto to serve without full confinement"
        }
        Error::Net(_)
        | Error::Limits { .. }
        | Error::Config(_)
        | Error::ConfigFile { .. }
        | Error::Site { .. } => {
            return error.to_string();
        }
    };
    format!("{error}; {advice}")
}
