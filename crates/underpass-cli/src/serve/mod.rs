//! `underpass serve [DIR]`: runs the HTTP file server until it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use underpass_net::{Address, EarlySignals, Inherited, Notifier};
use underpass_serve::{Access, FileServer, Scheme, ServeSummary};

mod advice;
mod arguments;
mod banner;
mod bodies;
mod check;
mod signals;
mod tools;

pub(crate) use arguments::{ServeArguments, options};

use advice::with_advice;
use banner::{details, farewell, greeting, qr_code, reachable, self_signed, url};
use bodies::{BodyPlans, BodyTrial};

use crate::console::{OUTPUT_IS_LOG, say};
use crate::layout::print_result;

/// Serves until a signal ends it. Prints the addresses to standard output at the start, and a
/// summary at the end.
///
/// # Errors
/// A message for the user: what failed, why and what to try.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), String> {
    if let Some(tool) = &arguments.tool {
        return tools::run(tool, ServeArguments::configured);
    }
    if let Some(file) = &arguments.check {
        return print_result(&check::check(file, arguments)?);
    }
    let signals = EarlySignals::keep().map_err(|error| error.to_string())?;
    let (inherited, predecessor) = Inherited::take().map_err(|error| error.to_string())?;
    let served = match start(arguments, inherited, signals) {
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
        None => served.notifier.ready(&signals::status(&served.server)),
    }
    let mut summary = ServeSummary::default();
    for worker in running.join() {
        summary += &worker;
    }
    say(&farewell(&summary));
    Ok(())
}

/// A running server that handles signals.
struct StartedServer {
    server: Arc<FileServer>,
    notifier: Arc<Notifier>,
}

fn start(
    arguments: &ServeArguments,
    inherited: Inherited,
    signals: EarlySignals,
) -> Result<StartedServer, String> {
    let options = options(arguments)?;
    OUTPUT_IS_LOG.store(options.log.access == Access::Output, Ordering::Relaxed);
    let plans = BodyPlans::new(&options.policy);
    if let Some(only) = arguments.only {
        plans.check(only)?;
    }
    let confinement = options
        .confine
        .probe()
        .map_err(|error| with_advice(&error.into()))?;
    let server = underpass_serve::serve_on(&options, inherited);
    let server = Arc::new(server.map_err(|error| with_advice(&error))?);
    let notifier = Arc::new(Notifier::from_environment());
    let again = arguments.clone();
    signals::handle(signals, &server, &notifier, move || self::options(&again))?;
    let details = arguments.reporting.verbose.then(|| {
        let site = options.sites.first();
        let tried = site.filter(|_| arguments.only.is_none());
        let tried = tried.and_then(|site| BodyTrial::run(&site.root));
        let addresses = server.addresses();
        let is_plain = addresses.iter().any(|(scheme, _)| *scheme == Scheme::Http);
        let bodies = match is_plain {
            true => plans.describe(tried.as_ref()),
            false => "bodies pass user space, where they are encrypted, unless the kernel does it \
                      (tls.offload)"
                .to_owned(),
        };
        details(&options, &confinement, &bodies)
    });
    say(&greeting(&options, &server, &confinement, details));
    let addresses = server.addresses();
    let mut urls = addresses
        .iter()
        .filter_map(|(scheme, address)| match address {
            Address::Tcp(address) => Some(url(*scheme, &reachable(*address)[0])),
            Address::Unix(_) => None,
        });
    if let Some(pin) = server.self_signed() {
        let secured = urls.clone().find(|url| url.starts_with("https:"));
        let has_users = options
            .sites
            .first()
            .is_some_and(|site| site.access.has_users());
        let user = has_users.then_some("NAME");
        say(&self_signed(&pin, secured.as_deref(), user));
    }
    if let (true, Some(url)) = (arguments.reporting.qr, urls.next()) {
        say(&qr_code(&url).unwrap_or_default());
    }
    Ok(StartedServer { server, notifier })
}
