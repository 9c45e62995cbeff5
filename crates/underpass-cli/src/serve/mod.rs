//! `underpass serve [DIR]`: the HTTP file server, from its arguments to its last line.

use std::io::{self, Write};
use std::sync::Arc;

use underpass::{Kernel, Kind, Mechanism, Owed, Plan, Policy, Sink, Source};
use underpass_net::{Inherited, Notifier};
use underpass_serve::{Error, Server, Summary};

mod addresses;
mod arguments;
mod check;
mod greeting;
mod life;
mod qr;
mod telling;
mod trial;

pub(crate) use arguments::{Arguments, options};

use addresses::reachable;
use greeting::{BodyPlan, bodies, farewell, greeting, url};
use trial::{TRIED_BYTES, trial};

/// Serves until a signal ends it. Says on standard output where, how bytes will travel and how to
/// stop it, and at the end how they did.
///
/// The error is one line for people: what was being done, why it failed and what to try.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some(file) = &arguments.check {
        say(&check::check(file, arguments)?);
        return Ok(());
    }
    let (inherited, predecessor) = Inherited::take().map_err(|error| error.to_string())?;
    let served = match begin(arguments, inherited) {
        Ok(served) => served,
        Err(why) => {
            if let Some(predecessor) = predecessor {
                predecessor.tell_failed(&why);
            }
            return Err(why);
        }
    };
    let running = served.server.running();
    match predecessor {
        // It tells the service manager who goes on.
        Some(predecessor) => predecessor
            .tell_ready(running)
            .map_err(|error| error.to_string())?,
        None => served.notifier.ready(&life::status(running)),
    }
    let mut summary = Summary::default();
    for worker in running.join() {
        summary.add(&worker);
    }
    say(&farewell(&summary));
    Ok(())
}

/// A server that obeys.
struct Served {
    server: Arc<Server>,
    notifier: Arc<Notifier>,
}

fn begin(arguments: &Arguments, inherited: Inherited) -> Result<Served, String> {
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
    let notifier = Arc::new(Notifier::of_environment());
    let again = arguments.clone();
    life::obey(&server, &notifier, move || self::options(&again))?;
    let tried = match (arguments.only, options.sites.first()) {
        (None, Some(site)) => trial(&site.root),
        _ => None,
    };
    let bodies = bodies(&plan, tried.as_ref());
    say(&greeting(&options, server.running(), &confinement, &bodies));
    if let (true, Some(address)) = (arguments.telling.qr, server.running().address()) {
        say(&qr::code(&url(&reachable(address)[0])).unwrap_or_default());
    }
    Ok(Served { server, notifier })
}

/// Nobody may be listening to standard output; that is no reason to stop serving.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// How a file gets to a TCP socket on this host.
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

/// A mechanism that no body can leave by is told before anybody asks for one.
fn check_plan(only: Mechanism, plan: &Plan) -> Result<(), String> {
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
        Error::Log { .. } => "name a file in a folder that may be written, with --log-file FILE",
        Error::Status { .. } => {
            "choose another address with --status ADDR:PORT or --status unix:PATH"
        }
        Error::Thread { .. } => "allow this process more threads",
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
        Error::Fixed { .. } => "SIGUSR2 has a new process take over, without losing a connection",
        Error::NoSite => "add a [[site]] with a root",
        Error::NameTaken { .. } => "take it away from one of them",
        Error::Net(Net::Confine { .. }) => "choose --confine auto to serve all the same",
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
