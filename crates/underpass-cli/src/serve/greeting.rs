//! The first and the last thing a server says.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use underpass::limits::SPLICED_BYTES_MIN;
use underpass::{Mechanism, Plan, Reason};
use underpass_net::{Address, Confinement, Server};
use underpass_serve::{Options, Summary};

use super::addresses::reachable;
use super::trial::Trial;

/// Where it is served, then how bodies leave, then what else is told where.
pub(super) fn greeting(
    options: &Options,
    running: &Server<Summary>,
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
        true => "warning: it runs as root; name another user with --user NAME\n",
        false => "",
    };
    let mut said = format!(
        "serving {shown} on {place} with {threads}; Ctrl-C stops it\n\
         {rights}{confinement}\n{bodies}"
    );
    if let Some(address) = &options.status.listen {
        said.push_str(&format!("\nmetrics and health on {address}"));
    }
    said
}

/// Every address as a browser, or curl with `--unix-socket`, can use it.
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

/// How ranges of files get to TCP sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyPlan {
    pub(super) small: Plan,
    pub(super) large: Plan,
}

/// How bodies leave, as far as it was tried, else as it is planned.
pub(super) fn bodies(plans: &BodyPlan, tried: Option<&Trial>) -> String {
    let plan = &plans.small;
    let moved =
        |mechanism: &Mechanism| tried.is_some_and(|trial| trial.account.of(*mechanism).bytes > 0);
    let tiers: Vec<_> = plan.tiers().collect();
    let first = Mechanism::ALL.into_iter().find(moved);
    let Some(first) = first.or(tiers.first().copied()) else {
        return "bodies cannot leave: nothing is allowed".to_owned();
    };
    let why = match first {
        Mechanism::Sendfile => "pages of the page cache go straight to the socket",
        Mechanism::Splice => "pages of the page cache go to the socket through a pipe",
        _ => "they pass through a buffer of this program",
    };
    let behind = tiers.iter().skip_while(|tier| **tier != first).skip(1);
    let others: Vec<_> = behind.map(|tier| tier.name()).collect();
    let fallback = match others.is_empty() {
        true => String::new(),
        false => format!("; where it is refused, by {}", others.join(", then ")),
    };
    let missing: Vec<_> = plan
        .left_out()
        .filter(|(_, reason)| matches!(reason, Reason::Refused(..)))
        .map(|(mechanism, reason)| format!("; not by {mechanism}: {reason}"))
        .collect();
    let known = match tried {
        Some(trial) => tried_with(trial),
        None => " (planned, not tried)".to_owned(),
    };
    let large = match plans.large.first() {
        Some(other) if Some(other) != plan.first() => format!(
            "; {} KiB and more at once by {other} first",
            SPLICED_BYTES_MIN >> 10
        ),
        _ => String::new(),
    };
    format!(
        "bodies leave by {first}: {why}{fallback}{}{known}{large}",
        missing.concat()
    )
}

/// ` (tried with NAME)`, and what was refused there.
fn tried_with(trial: &Trial) -> String {
    let refusals = trial.account.refusals.iter();
    let refusals: String = refusals.map(|refusal| format!("; {refusal}")).collect();
    // A name may be anything, and this is a terminal.
    let name = trial.name.escape_debug();
    format!(" (tried with {name}{refusals})")
}

/// What became of it.
pub(super) fn farewell(summary: &Summary) -> String {
    let requests = match summary.requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    format!("stopped after {requests}: {}", summary.account)
}
