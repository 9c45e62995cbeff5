//! What is said beside the figures, in sentences that every form of the report shares.

use super::figure::duration;
use crate::document::{Case, Document, Experiment, RunOutcome};

/// How to read any table, once for the page.
pub(super) const HOW_TO_READ: &str = "A figure is the median of the rounds, with the least and \
    the greatest beside it. Contenders take turns within a round. A ratio is the median of the \
    ratios within each round, with the interval that holds the true one with 95 % confidence \
    (sign test); where that interval contains 1, or there are too few rounds to tell, there is no \
    ratio, and that is said.";

pub(super) const TOO_FEW_ROUNDS: &str =
    "Too few rounds to print any ratio here: it takes six at the least.";

impl Document {
    /// `underpass 0.1.0 on 2026-01-31, in 4 min 12 s`.
    pub(super) fn origin(&self) -> String {
        let Document { tool, date, .. } = self;
        let took = duration(self.seconds);
        format!("{} {} on {date}, in {took}", tool.name, tool.version)
    }

    /// Says that a run was broken off.
    pub(super) fn interruption(&self) -> Option<&'static str> {
        (self.outcome == RunOutcome::Interrupted).then_some(
            "This run was interrupted: what was measured until then is here, the rest is missing.",
        )
    }
}

impl Experiment {
    /// The title, with what sets it apart from its kind.
    pub(super) fn heading(&self) -> String {
        match self.variant.as_str() {
            "" => self.title.clone(),
            variant if self.title.contains(variant) => self.title.clone(),
            variant => format!("{}: {variant}", self.title),
        }
    }

    /// Notes of the experiment and of its cases, alike ones once with the cases they belong to.
    pub(super) fn all_notes(&self) -> Vec<String> {
        let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
        let of_cases = self.cases.iter();
        for (case, note) in of_cases.flat_map(|case| case.notes.iter().map(move |n| (case, n))) {
            match lines.iter_mut().find(|(line, _)| line == note) {
                Some((_, labels)) => labels.push(&case.label),
                None => lines.push((note, vec![&case.label])),
            }
        }
        let everywhere = |labels: &[&str]| labels.len() == self.cases.len();
        let told = lines.iter().map(|(note, labels)| match everywhere(labels) {
            true => (*note).to_owned(),
            false => format!("{}: {note}", labels.join(", ")),
        });
        self.notes.iter().cloned().chain(told).collect()
    }

    /// The loads, alike ones once.
    pub(super) fn loads(&self) -> Vec<String> {
        let mut loads: Vec<&str> = Vec::new();
        for case in &self.cases {
            if !case.load.is_empty() && !loads.contains(&case.load.as_str()) {
                loads.push(&case.load);
            }
        }
        loads.into_iter().map(str::to_owned).collect()
    }

    /// By which mechanisms each contender's payload went, for those that tell.
    pub(super) fn travels(&self) -> Vec<String> {
        self.by_contender(travel_of)
    }

    /// System calls of each contender for each operation.
    pub(super) fn system_calls(&self) -> Vec<String> {
        self.by_contender(calls_of)
    }

    /// `name: …` for each contender that has something to say, cases that say the same together.
    fn by_contender(&self, of: fn(&Case, usize) -> Option<String>) -> Vec<String> {
        let lines = self
            .contenders
            .iter()
            .enumerate()
            .filter_map(|(index, contender)| {
                let mut said: Vec<(String, Vec<&str>)> = Vec::new();
                for case in &self.cases {
                    let Some(text) = of(case, index) else {
                        continue;
                    };
                    match said.last_mut().filter(|(last, _)| *last == text) {
                        Some((_, labels)) => labels.push(&case.label),
                        None => said.push((text, vec![&case.label])),
                    }
                }
                let text = match &said[..] {
                    [] => return None,
                    [(text, _)] => text.clone(),
                    several => {
                        let part = |(text, labels): &(String, Vec<&str>)| {
                            format!("{}: {text}", first_to_last(labels))
                        };
                        several.iter().map(part).collect::<Vec<_>>().join("; ")
                    }
                };
                Some(format!("{}: {text}", contender.name))
            });
        lines.collect()
    }
}

fn first_to_last(labels: &[&str]) -> String {
    match labels {
        [one] => (*one).to_owned(),
        [first, .., last] => format!("{first} to {last}"),
        [] => String::new(),
    }
}

fn travel_of(case: &Case, contender: usize) -> Option<String> {
    let own = || {
        case.travelled
            .iter()
            .filter(|one| one.contender == contender)
    };
    let bytes: u64 = own().map(|one| one.bytes).sum();
    let refusals: u64 = own().map(|one| one.refusals).sum();
    let shares = own().filter(|one| one.bytes > 0).map(|one| {
        let percent = one.bytes as f64 / bytes as f64 * 100.0;
        match percent {
            99.95.. => format!("all by {}", one.mechanism),
            percent => format!("{percent:.1} % by {}", one.mechanism),
        }
    });
    let shares = shares.collect::<Vec<_>>().join(", ");
    match (bytes, refusals) {
        (0, _) => None,
        (_, 0) => Some(shares),
        (_, 1) => Some(format!("{shares} (1 refusal)")),
        (_, many) => Some(format!("{shares} ({many} refusals)")),
    }
}

/// The most frequent first; what happens less than once in a thousand operations is left out.
fn calls_of(case: &Case, contender: usize) -> Option<String> {
    let calls = case.calls.iter().find(|one| one.contender == contender)?;
    let each = |count: u64| count as f64 / calls.operations.max(1) as f64;
    let sum: u64 = calls.by_name.iter().map(|(_, count)| count).sum();
    let names = calls
        .by_name
        .iter()
        .filter(|(_, count)| each(*count) >= 0.001);
    let names: Vec<String> = names
        .map(|(name, count)| format!("{name} {}", short(each(*count))))
        .collect();
    Some(format!("{} ({})", short(each(sum)), names.join(", ")))
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
