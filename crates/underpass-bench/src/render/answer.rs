//! The answer of a run in words, computed from its figures: what the first contender of each
//! experiment takes compared with others. Where that one moves bytes in the kernel, it is compared
//! with the one that copies them by read/write, and with programs that don't report how they do it.

use super::chart::ends;
use super::facts::first_to_last;
use super::figure::{figure, ratio};
use super::summary::telling;
use crate::document::{Better, Case, Document, Experiment, Measured};
use crate::stats::{RatioEstimate, RatioVerdict};

/// With more of them the table is easier to read.
const OTHERS_MAX: usize = 3;

const READ_WRITE: &str = "read_write";

/// Ratios that have a name, and how far a ratio may be from it.
const NAMED: [(f64, &str); 7] = [
    (0.25, "about a quarter of the"),
    (1.0 / 3.0, "about a third of the"),
    (0.5, "about half the"),
    (2.0 / 3.0, "about two thirds of the"),
    (0.75, "about three quarters of the"),
    (2.0, "about twice the"),
    (3.0, "about three times the"),
];
const NAMED_WITHIN: f64 = 0.06;

/// A heading and a text for each experiment that has an answer, and for the left-out contenders.
pub(super) fn answers(document: &Document) -> Vec<(String, String)> {
    let experiments = document.experiments.iter();
    let answers = experiments.filter_map(|one| Some((one.heading(), answer(one)?)));
    let left_out = document.left_out();
    let left_out = left_out.map(|names| ("Left out".into(), format!("{names}: see the notes.")));
    answers.chain(left_out).collect()
}

fn answer(experiment: &Experiment) -> Option<String> {
    let cases = telling(experiment);
    let others = others(experiment).into_iter();
    let sentences = others.filter_map(|other| sentence(experiment, &cases, other));
    let mut words: Vec<String> = sentences.collect();
    if words.is_empty() {
        words.extend(cases.iter().filter_map(|one| alone(experiment, *one)));
    }
    (!words.is_empty()).then(|| words.join(" "))
}

/// Those that the first contender is compared with.
fn others(experiment: &Experiment) -> Vec<usize> {
    let moved = |place| {
        experiment
            .cases
            .iter()
            .find_map(|case| mechanism(case, place))
    };
    let mut others: Vec<usize> = (1..experiment.contenders.len()).collect();
    if moved(0).is_some_and(|own| own != READ_WRITE) {
        let mut copying = others.iter().copied();
        let copying = copying.find(|place| moved(*place) == Some(READ_WRITE));
        others.retain(|place| moved(*place).is_none() || Some(*place) == copying);
    }
    others.truncate(OTHERS_MAX);
    others
}

/// The mechanism that moved most of a contender's bytes.
fn mechanism(case: &Case, place: usize) -> Option<&str> {
    let own = case.travelled.iter().filter(|one| one.contender == place);
    let most = own.max_by_key(|one| one.bytes).filter(|one| one.bytes > 0);
    most.map(|one| one.mechanism.as_str())
}

/// The figure of the first contender, if it is not compared with another.
fn alone(experiment: &Experiment, (case, measured): (&Case, &Measured)) -> Option<String> {
    let median = measured.figures.first()?.as_ref()?.spread.median;
    let (name, figure) = (
        &experiment.contenders[0].name,
        figure(median, measured.unit),
    );
    let label = &measured.label;
    Some(format!(
        "{}{name}: {label} {figure}.",
        prefix(experiment, &case.label)
    ))
}

/// The cases, where the heading doesn't name them.
fn prefix(experiment: &Experiment, cases: &str) -> String {
    match experiment.heading().contains(cases) {
        true => String::new(),
        false => format!("{cases}: "),
    }
}

/// The comparison of two contenders in one case.
struct Finding<'a> {
    case: &'a str,
    /// The names of the two, or of their manners if one of them moves bytes in the kernel.
    subject: String,
    reference: String,
    estimate: RatioEstimate,
}

impl Finding<'_> {
    fn is_different(&self) -> bool {
        self.estimate.verdict == RatioVerdict::Different
    }

    fn is_alike(&self, other: &Finding<'_>) -> bool {
        let side = |one: &Finding<'_>| one.is_different() && one.estimate.ratio < 1.0;
        (&self.subject, self.estimate.verdict) == (&other.subject, other.estimate.verdict)
            && side(self) == side(other)
    }
}

fn finding<'a>(
    experiment: &Experiment,
    (case, measured): (&'a Case, &Measured),
    other: usize,
) -> Option<Finding<'a>> {
    let name = |place: usize| experiment.contenders[place].name.clone();
    let moved = mechanism(case, 0).filter(|own| *own != READ_WRITE);
    let moved = moved.filter(|_| mechanism(case, other) == Some(READ_WRITE));
    Some(Finding {
        case: &case.label,
        subject: moved.map_or_else(|| name(0), |own| manner(experiment, own)),
        reference: moved.map_or_else(|| name(other), |_| "read/write".into()),
        estimate: (*measured.comparisons.get(other)?)?,
    })
}

/// The manner of a contender whose bytes this mechanism moves.
fn manner(experiment: &Experiment, mechanism: &str) -> String {
    match (mechanism, &*experiment.name) {
        ("clone", _) => "sharing blocks (clone)".into(),
        // Between files, the kernel copies.
        (mechanism, "copy") => format!("copying in the kernel ({mechanism})"),
        (mechanism, _) => format!("zero-copy ({mechanism})"),
    }
}

/// The first contender and another: cases that show the same have one part.
fn sentence(experiment: &Experiment, cases: &[(&Case, &Measured)], other: usize) -> Option<String> {
    let found = cases
        .iter()
        .filter_map(|one| finding(experiment, *one, other));
    let found: Vec<_> = found.collect();
    let measured = cases.first()?.1;
    let names_both = found.iter().any(Finding::is_different);
    let part = |group: &[Finding<'_>]| {
        let Finding {
            subject,
            reference,
            estimate,
            ..
        } = &group[0];
        let words = match estimate.verdict {
            RatioVerdict::TooFewRounds => "too few rounds to tell".into(),
            RatioVerdict::NotDistinguishable if names_both => "no measurable difference".into(),
            RatioVerdict::NotDistinguishable => {
                format!("no measurable difference between {subject} and {reference}")
            }
            RatioVerdict::Different => {
                let (amount, label) = (amount(group), &measured.label);
                let is_gain = measured.better == Some(Better::Higher);
                let verb = if is_gain { "reaches" } else { "takes" };
                format!("{subject} {verb} {amount} {label} of {reference}")
            }
        };
        let labels: Vec<_> = group.iter().map(|one| one.case).collect();
        prefix(experiment, &first_to_last(&labels)) + &words
    };
    let parts: Vec<_> = found.chunk_by(Finding::is_alike).map(part).collect();
    (!parts.is_empty()).then(|| parts.join("; ") + ".")
}

fn amount(group: &[Finding<'_>]) -> String {
    let ratios: Vec<f64> = group.iter().map(|one| one.estimate.ratio).collect();
    let is_near = |value: f64| {
        ratios
            .iter()
            .all(|one| (one / value - 1.0).abs() <= NAMED_WITHIN)
    };
    if let Some((_, name)) = NAMED.iter().find(|(value, _)| is_near(*value)) {
        return (*name).to_owned();
    }
    let (low, high) = ends(&ratios);
    match [low, high].map(ratio) {
        [low, high] if low == high => format!("{low} times the"),
        [low, high] => format!("{low} to {high} times the"),
    }
}
