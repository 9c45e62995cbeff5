//! What has to be said beside the figures: noise, limits, bars. In words, since a reader who has to
//! decode a flag will not.

use super::case::Case;
use super::metric::{Metric, Observation};
use super::proc::CpuSource;
use super::rounds::Played;
use super::stats::Spread;

/// What disturbed the rounds, in plain words.
pub(crate) fn of_rounds(case: &Case, played: &Played<Observation>) -> Vec<String> {
    let mut notes = Vec::new();
    if played.repeated > 0 {
        notes.push(format!(
            "{} rounds were broken off and played again: other programs or the hypervisor took \
             more than a tenth of a processor, or the page cache lost files",
            played.repeated
        ));
    }
    if played.disturbed > 0 {
        let most = |share: &dyn Fn(&Observation) -> f64| {
            let shares = played.rounds.iter().flatten().map(share);
            shares.fold(0.0, f64::max) * 100.0
        };
        let mut note = format!(
            "{} of {} rounds are disturbed and count all the same: other programs took up to \
             {:.0} % of a processor, the hypervisor up to {:.0} %",
            played.disturbed,
            played.rounds.len(),
            most(&|o| o.window.share_of_elapsed(o.window.foreign_cpu)),
            most(&|o| o.window.share_of_elapsed(o.window.steal)),
        );
        if case.wants_page_cache() {
            let stored = most(&Observation::share_from_storage);
            note += &format!(", up to {stored:.1} % of the bytes came from storage");
        }
        notes.push(note);
    }
    notes
}

/// What to know about one server's figures.
pub(crate) fn of_server(name: &str, observations: &[&Observation]) -> Vec<String> {
    let rounds = observations.len();
    let count = |is: &dyn Fn(&Observation) -> bool| observations.iter().filter(|o| is(o)).count();
    let shares = |share: &dyn Fn(&Observation) -> f64| {
        let shares: Vec<f64> = observations.iter().map(|o| share(o)).collect();
        Spread::of(&shares).map_or(0.0, |spread| spread.median * 100.0)
    };
    let mut notes = Vec::new();
    let bound = count(&|o| o.window.is_client_bound());
    if bound > 0 {
        notes.push(format!(
            "with {name} the client was the bottleneck in {bound} of {rounds} rounds (client \
             {:.0} %, server {:.0} % of a processor): only processor time tells, not throughput",
            shares(&|o| o.window.client_share()),
            shares(&|o| o.window.server_share())
        ));
    }
    let coarse = count(&|o| o.window.server_cpu_source == CpuSource::Ticks);
    if coarse > 0 {
        notes.push(format!(
            "{name}'s processor time is in ticks of 10 ms in {coarse} of {rounds} rounds, since \
             threads came or went"
        ));
    }
    notes
}

/// Whether a server stays below the bar.
pub(crate) fn of_bar(
    name: &str,
    bar: (Metric, f64),
    observations: &[&Observation],
) -> Option<String> {
    let (metric, limit) = bar;
    let figures: Vec<f64> = observations.iter().map(|o| metric.of(o)).collect();
    let max = Spread::of(&figures)?.max;
    let verdict = if max < limit { "below" } else { "NOT below" };
    Some(format!(
        "{name}: {} at most {max:.1}, {verdict} the bar of {limit}",
        metric.label()
    ))
}
