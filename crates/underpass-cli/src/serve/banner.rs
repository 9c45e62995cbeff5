//! The messages at the start and at the end of `underpass serve`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use underpass_net::{Address, Confinement, Server};
use underpass_serve::{ServeSummary, ServerOptions};

use super::addresses::reachable;

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

/// The number of requests and the account of all bodies.
pub(super) fn farewell(summary: &ServeSummary) -> String {
    let requests = match summary.requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    format!("stopped after {requests}: {}", summary.account)
}

/// Prints a line; a closed standard output is no reason to stop serving.
pub(super) fn say(line: &str) {
    let _ = crate::layout::print(&format!("{line}\n"));
}
