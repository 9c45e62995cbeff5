//! The sentences around the figures, which all forms of the report share.

use super::figure::duration;
use crate::document::{Case, Document, Experiment, RunOutcome};

pub(super) const HOW_TO_READ: &str = "A figure is the median of the rounds, with the least and \
    the greatest beside it. Contenders take turns within a round. A ratio says how many \
    times as good the first of two is: above 1 it is better. It is the median of the ratios \
    within each round, with its interval of 95 % confidence (sign test); where that interval \
    contains 1, or there are too few rounds, the table says so instead of a ratio.";

pub(super) const TOO_FEW_ROUNDS: &str =
    "Too few rounds to print any ratio here: at least six are needed.";

impl Document {
    /// `underpass 0.1.0 on 2026-01-31, in 4 min 12 s`.
    pub(super) fn origin(&self) -> String {
        let Document { tool, date, .. } = self;
        let took = duration(self.seconds);
        format!("{} {} on {date}, in {took}", tool.name, tool.version)
    }

    pub(super) fn interruption(&self) -> Option<&'static str> {
        (self.outcome == RunOutcome::Interrupted)
            .then_some("This run was interrupted: the report has what was complete by then.")
    }
}

impl Experiment {
    /// The title, with the parts of the variant that it doesn't have.
    pub(super) fn heading(&self) -> String {
        let parts = self.variant.split(", ");
        let further = parts.filter(|part| !self.title.contains(part));
        match &further.collect::<Vec<_>>()[..] {
            [] => self.title.clone(),
            further => format!("{}: {}", self.title, further.join(", ")),
        }
    }

    /// The notes of the experiment and of its cases; equal ones once, with their cases.
    pub(super) fn all_notes(&self) -> Vec<String> {
        let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
        let cases = self.cases.iter();
        for (case, note) in cases.flat_map(|case| case.notes.iter().map(move |n| (case, n))) {
            match lines.iter_mut().find(|(line, _)| line == note) {
                Some((_, labels)) => labels.push(&case.label),
                None => lines.push((note, vec![&case.label])),
            }
        }
        let everywhere = |labels: &[&str]| labels.len() == self.cases.len();
        let of_cases = lines.iter().map(|(note, labels)| match everywhere(labels) {
            true => (*note).to_owned(),
            false => format!("{}: {note}", labels.join(", ")),
        });
        self.notes.iter().cloned().chain(of_cases).collect()
    }

    /// The names and versions of the contenders whose version is known.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.contenders.iter();
        let versions = all.map(|one| (one.name.as_str(), one.version.as_str()));
        versions.filter(|(_, version)| !version.is_empty())
    }

    pub(super) fn loads(&self) -> Vec<String> {
        let mut loads: Vec<&str> = Vec::new();
        for case in &self.cases {
            if !case.load.is_empty() && !loads.contains(&case.load.as_str()) {
                loads.push(&case.load);
            }
        }
        loads.into_iter().map(str::to_owned).collect()
    }

    /// By which mechanisms each contender moved its payload, for those that count.
    pub(super) fn payload_paths(&self) -> Vec<String> {
        self.by_contender(paths_of)
    }

    /// The system calls per operation of each contender.
    pub(super) fn system_calls(&self) -> Vec<String> {
        self.by_contender(calls_of)
    }

    /// `name: …` for each contender that has such a text; cases with the same text together.
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

/// `7 MB to 1 GB`.
pub(super) fn first_to_last(labels: &[&str]) -> String {
    match labels {
        [one] => (*one).to_owned(),
        [first, .., last] => format!("{first} to {last}"),
        [] => String::new(),
    }
}

fn paths_of(case: &Case, contender: usize) -> Option<String> {
    let own = || {
        case.travelled
            .iter()
            .filter(|one| one.contender == contender)
    };
    let bytes: u64 = own().map(|one| one.bytes).sum();
    let refusals: u64 = own().map(|one| one.refusals).sum();
    let shares = own().filter(|one| one.bytes > 0).map(|one| {
        match one.bytes as f64 / bytes as f64 * 100.0 {
            99.95.. => format!("all by {}", one.mechanism),
            percent => format!("{percent:.1} % by {}", one.mechanism),
        }
    });
    let shares = shares.collect::<Vec<_>>().join(", ");
    (bytes > 0).then_some(())?;
    Some(match refusals {
        0 => shares,
        1 => format!("{shares} (1 refusal)"),
        many => format!("{shares} ({many} refusals)"),
    })
}

/// The most frequent first, without those below one in a thousand operations.
fn calls_of(case: &Case, contender: usize) -> Option<String> {
    let calls = case.calls.iter().find(|one| one.contender == contender)?;
    let each = |count: u64| count as f64 / calls.operations.max(1) as f64;
    let sum: u64 = calls.by_name.iter().map(|(_, count)| count).sum();
    let names = calls.by_name.iter();
    let names = names.filter(|(_, count)| each(*count) >= 0.001);
    let names = names.map(|(name, count)| format!("{name} {}", short(each(*count))));
    let names: Vec<String> = names.collect();
    Some(format!("{} ({})", short(each(sum)), names.join(", ")))
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
