//! docs/broker-measurements.md: our broker compared with others, in ratios.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use underpass_bench::document::{Better, Case, Document, Experiment};
use underpass_bench::stats::{RatioEstimate, RatioVerdict};

use super::arguments::PeersArguments;
use super::page::{RunRecord, digits};
use super::table::PeerTable;
use crate::workspace::{Fallible, Workspace};

const PAGE: &str = "docs/broker-measurements.md";
const HEAD: &str = include_str!("log-page.md");

/// The figures on the page by experiment and metric, with the ratio aimed at.
const SHOWN: [(&str, &str, &str); 12] = [
    ("fetch", "cpu_per_gib", "at most 0.8"),
    ("fetch", "throughput", ""),
    ("fetch, TLS", "cpu_per_gib", "at most 0.35"),
    ("small", "cpu_per_gib", "at most 0.8"),
    ("produce", "cpu_per_gib", "at most 0.5"),
    ("produce", "throughput", "at least 1"),
    ("durable", "requests", "at least 3"),
    ("replay", "p99", "at most 0.2"),
    ("replay", "p50", ""),
    ("start", "start", ""),
    ("start", "resident", "at most 0.1"),
    ("restart", "start", "at most 0.1"),
];

/// Writes the page from the results of the last run. A quick run's page stays next to its results.
pub(super) fn write(
    workspace: &Workspace,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<()> {
    let record = workspace.root.join(arguments.result(arguments.record()));
    let mut run: RunRecord = serde_json::from_str(&fs::read_to_string(record)?)?;
    let mut experiments = Vec::new();
    for document in arguments.wanted(table) {
        let json = arguments.result(&format!("{}.json", document.name));
        match Document::read(&workspace.root.join(json)) {
            Ok(result) => experiments.extend(result.experiments),
            Err(error) => run.left_out.push(format!("{}: {error}", document.title)),
        }
    }
    let path = match arguments.quick {
        true => arguments.result("broker-measurements.md"),
        false => PathBuf::from(PAGE),
    };
    fs::write(workspace.root.join(&path), page(&run, &experiments))?;
    println!("\n{}", path.display());
    Ok(())
}

fn page(run: &RunRecord, experiments: &[Experiment]) -> String {
    let versions: Vec<_> = run.versions.values().map(String::as_str).collect();
    let mut page = format!("{HEAD}{} {}.\n", run.line(), versions.join("; "));
    if !run.left_out.is_empty() {
        let _ = write!(page, "\nLeft out:\n\n- {}\n", run.left_out.join("\n- "));
    }
    page += "\n| | case | by | Underpass ÷ the other (95 % interval) | aim |\n";
    page += "|---|---|---|---:|---|\n";
    for experiment in experiments {
        for case in &experiment.cases {
            rows(&mut page, experiment, case);
        }
    }
    for experiment in experiments {
        let cases = experiment.cases.iter();
        let notes = experiment
            .notes
            .iter()
            .chain(cases.flat_map(|case| &case.notes));
        let _ = write!(
            page,
            "\n## {}\n\n{}\n",
            experiment.title, experiment.measured
        );
        for note in notes {
            let _ = write!(page, "\n- {note}");
        }
        page += if page.ends_with('\n') { "" } else { "\n" };
    }
    page
}

/// Writes a row for each figure of a case, compared with each other contender.
fn rows(page: &mut String, experiment: &Experiment, case: &Case) {
    let shown = SHOWN
        .iter()
        .filter(|(variant, ..)| *variant == experiment.variant);
    for (_, metric, aim) in shown {
        let Some(measured) = case.metrics.iter().find(|one| one.metric == *metric) else {
            continue;
        };
        for (place, contender) in experiment.contenders.iter().enumerate().skip(1) {
            let Some(ratio) = measured.comparisons.get(place).copied().flatten() else {
                continue;
            };
            let is_own = contender.name.starts_with("underpass");
            let (beside, aim) = match is_own {
                true => (format!(" (÷ {})", contender.name), ""),
                false => (String::new(), *aim),
            };
            let (title, label, by) = (&experiment.title, &case.label, &measured.label);
            let better = measured.better.map_or("", |better| match better {
                Better::Lower => ", lower is better",
                Better::Higher => ", higher is better",
            });
            let ratio = words(&ratio);
            let _ = writeln!(
                page,
                "| {title} | {label} | {by}{better}{beside} | {ratio} | {aim} |"
            );
        }
    }
}

fn words(ratio: &RatioEstimate) -> String {
    match ratio.verdict {
        RatioVerdict::Different => {
            let [ratio, low, high] = [ratio.ratio, ratio.low, ratio.high].map(digits);
            format!("{ratio} ({low}–{high})")
        }
        RatioVerdict::NotDistinguishable => "not distinguishable".to_owned(),
        RatioVerdict::TooFewRounds => "too few rounds".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_has_ratios_with_their_aims_and_no_absolute_figures() {
        let contender = |name: &str| {
            json!({
                "name": name, "version": "", "command": [], "environment": [],
                "configuration": null,
            })
        };
        let figures = json!({
            "rounds": [12345.0], "spread": {"median": 12345.0, "min": 1.0, "max": 2.0},
        });
        let experiment: Experiment = serde_json::from_value(json!({
            "name": "log", "variant": "start", "title": "A start", "measured": "Timed.",
            "reading": "", "axis": {"label": "", "unit": "count"}, "rounds": 6,
            "contenders": [contender("underpass"), contender("kafka")],
            "cases": [{
                "label": "64 MiB", "x": 1.0, "load": "", "travelled": [], "calls": [],
                "notes": ["a note"],
                "metrics": [{
                    "metric": "resident", "label": "memory", "unit": "bytes", "better": "lower",
                    "figures": [figures, figures],
                    "comparisons": [null, {
                        "verdict": "different", "ratio": 0.0284, "low": 0.02, "high": 0.03,
                        "confidence": 0.97,
                    }],
                }],
            }],
            "notes": [],
        }))
        .expect("an experiment");
        let page = page(&RunRecord::default(), &[experiment]);
        let row = "| A start | 64 MiB | memory, lower is better | 0.03 (0.02–0.03) | at most 0.1 |";
        assert!(
            page.contains(row) && page.ends_with("Timed.\n\n- a note\n"),
            "{page}"
        );
        assert!(!page.contains("12345"), "{page}");
    }
}
