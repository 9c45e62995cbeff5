//! The messages at the start and at the end of `underpass serve`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use underpass::limits::SPLICED_BYTES_MIN;
use underpass::{Mechanism, Plan, Reason};
use underpass_net::{Address, Confinement, Server};
use underpass_serve::{ServeSummary, ServerOptions};

use super::addresses::reachable;
use super::trial::ServedFileTrial;

/// The addresses, the confinement, how bodies are sent, and the address of metrics.
pub(super) fn greeting(
    options: &ServerOptions,
    running: &Server<ServeSummary>,
    confinement: &Confinement,
    bodies: &str,
) -> String {
    let shown = match &options.sites[..] {
        [site] => site.root.display().to_string(),
        sites => format!("{} sites", sites.len()),
    };
    let place = place(&running.addresses());
    let workers = options
        .workers
        .map_or_else(underpass_net::cores, NonZeroUsize::get);
    let threads = match workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    let rights = match rustix::process::geteuid().is_root() {
        true => "warning: running as root; choose another user with --user NAME\n",
        false => "",
    };
    let mut said = format!(
        "serving {shown} on {place} with {threads}; press Ctrl-C to stop\n\
         {rights}{confinement}\n{bodies}"
    );
    if let Some(address) = &options.status.listen {
        said.push_str(&format!("\nmetrics and health on {address}"));
    }
    said
}

/// Every address in a form that a browser, or curl with `--unix-socket`, accepts.
pub(super) fn place(addresses: &[Address]) -> String {
    let mut seen = HashSet::new();
    let mut shown: Vec<String> = addresses
        .iter()
        .flat_map(|address| match address {
            Address::Tcp(address) => reachable(*address).iter().map(url).collect(),
            Address::Unix(_) => vec![address.to_string()],
        })
        .collect();
    shown.retain(|url| seen.insert(url.clone()));
    shown.join(", ")
}

pub(super) fn url(address: &SocketAddr) -> String {
    format!("http://{address}/")
}

/// The plans for sending ranges of files to TCP sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyPlan {
    pub(super) small: Plan,
    pub(super) large: Plan,
}

/// How bodies are sent: as a trial has shown, or as planned if there was none.
pub(super) fn bodies(plans: &BodyPlan, tried: Option<&ServedFileTrial>) -> String {
    let plan = &plans.small;
    let moved =
        |mechanism: &Mechanism| tried.is_some_and(|trial| trial.account.of(*mechanism).bytes > 0);
    let tiers: Vec<_> = plan.tiers().collect();
    let first = Mechanism::ALL.into_iter().find(moved);
    let Some(first) = first.or(tiers.first().copied()) else {
        return "no mechanism can send bodies".to_owned();
    };
    let why = match first {
        Mechanism::Sendfile => "from the page cache straight to the socket",
        Mechanism::Splice => "from the page cache to the socket through a pipe",
        _ => "through a buffer in user space",
    };
    let behind = tiers.iter().skip_while(|tier| **tier != first).skip(1);
    let others: Vec<_> = behind.map(|tier| tier.name()).collect();
    let fallback = match others.is_empty() {
        true => String::new(),
        false => format!("; falls back to {}", others.join(", then ")),
    };
    let missing: Vec<_> = plan
        .left_out()
        .filter(|(_, reason)| matches!(reason, Reason::Refused(..)))
        .map(|(mechanism, reason)| format!("; not {mechanism}: {reason}"))
        .collect();
    let known = match tried {
        Some(trial) => tried_with(trial),
        None => " (planned, not tried)".to_owned(),
    };
    let large = match plans.large.first() {
        Some(other) if Some(other) != plan.first() => format!(
            "; {other} first for {} KiB or more at once",
            SPLICED_BYTES_MIN >> 10
        ),
        _ => String::new(),
    };
    format!(
        "bodies are sent by {first}: {why}{fallback}{}{known}{large}",
        missing.concat()
    )
}

/// ` (tried with NAME)`, with the refusals of the trial.
fn tried_with(trial: &ServedFileTrial) -> String {
    let refusals = trial.account.refusals.iter();
    let refusals: String = refusals.map(|refusal| format!("; {refusal}")).collect();
    // A file name may contain control characters, and this is a terminal.
    let name = trial.name.escape_debug();
    format!(" (tried with {name}{refusals})")
}

/// The number of requests and the account of all bodies.
pub(super) fn farewell(summary: &ServeSummary) -> String {
    let requests = match summary.requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    format!("stopped after {requests}: {}", summary.account)
}
