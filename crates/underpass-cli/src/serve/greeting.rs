//! The first and the last thing a server says.

use underpass::{Mechanism, Plan, Reason};
use underpass_net::Running;
use underpass_serve::{SiteOptions, Summary};

/// What is served, where, by how many, and how bodies will travel.
pub(super) fn greeting(
    sites: &[SiteOptions],
    running: &Running<Summary>,
    workers: usize,
    plan: &Plan,
) -> String {
    let address = running.address();
    let shown = match sites {
        [site] => site.root.display().to_string(),
        sites => format!("{} sites", sites.len()),
    };
    let threads = match workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    let how = bodies(plan);
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

/// What became of it.
pub(super) fn farewell(summary: &Summary) -> String {
    let requests = match summary.requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    format!("stopped after {requests}: {}", summary.account)
}
