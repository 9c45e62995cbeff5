//! The result: one document, three ways to print it.
//!
//! `Document` is what `--json` writes; its `schema` rises when a field changes its meaning. The
//! terminal table and the Markdown are made from it and from nothing else.

use std::fmt::Write as _;

use serde::Serialize;

use super::machine::Machine;
use super::metric::Better;
use super::stats::{Comparison, Spread, Verdict};
use super::trace::Calls;

/// Rises when a field is removed or changes its meaning.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) schema: u32,
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// The limit on what servers read from the disk, if there was one.
    pub(crate) disk_mib_per_second: Option<u64>,
    pub(crate) rounds: usize,
    pub(crate) servers: Vec<ServerEntry>,
    pub(crate) cases: Vec<CaseEntry>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ServerEntry {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) command: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) configuration: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CaseEntry {
    pub(crate) name: String,
    pub(crate) part: String,
    pub(crate) load: String,
    pub(crate) metrics: Vec<MetricEntry>,
    pub(crate) calls: Vec<CallsEntry>,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct MetricEntry {
    pub(crate) metric: &'static str,
    pub(crate) better: Better,
    /// In the order of the servers.
    pub(crate) figures: Vec<Figures>,
    /// The first server against each of the others; empty where a ratio means nothing.
    pub(crate) comparisons: Vec<Comparison>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) spread: Spread,
    pub(crate) rounds: Vec<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CallsEntry {
    pub(crate) server: String,
    pub(crate) requests: u64,
    pub(crate) calls: Calls,
}

/// A table before it is laid out: a heading and rows of equal length.
struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Document {
    /// For the terminal.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}\n", self.surroundings());
        for server in &self.servers {
            let _ = writeln!(out, "{}: {}", server.name, server.version);
        }
        for group in self.groups() {
            let _ = writeln!(out, "\n{}: {}", group[0].name, group[0].load);
            out.push_str(&self.table(group).aligned());
            lines_of_group(&mut out, group, "  ");
        }
        out
    }

    /// For `docs/measurements.md`.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!(
            "Measured on {} by `{}`.\n{}. Medians with minimum and maximum of {} interleaved \
             rounds; a ratio is the median of the ratios within each round, with its 95 % \
             sign-test interval, and is left out where that interval contains 1.\n\n",
            self.date,
            self.command,
            self.surroundings(),
            self.rounds
        );
        for server in &self.servers {
            let _ = writeln!(out, "- {}: {}", server.name, server.version);
        }
        for group in self.groups() {
            let _ = writeln!(out, "\n### {}\n\n{}.\n", group[0].name, group[0].load);
            out.push_str(&self.table(group).markdown());
            out.push('\n');
            lines_of_group(&mut out, group, "- ");
        }
        out
    }

    fn surroundings(&self) -> String {
        let limit = self
            .disk_mib_per_second
            .map(|mib| format!(", read at most at {mib} MiB/s"));
        self.machine.describe() + &limit.unwrap_or_default()
    }

    /// Parts of one case stand next to each other and share a table.
    fn groups(&self) -> impl Iterator<Item = &[CaseEntry]> {
        self.cases.chunk_by(|a, b| a.name == b.name)
    }

    fn table(&self, group: &[CaseEntry]) -> Table {
        let names: Vec<&str> = self
            .servers
            .iter()
            .map(|server| server.name.as_str())
            .collect();
        let mut heading = vec![String::new()];
        heading.extend(names.iter().map(|&name| name.to_owned()));
        heading.extend(
            names
                .iter()
                .skip(1)
                .map(|peer| format!("{} / {peer}", names[0])),
        );
        let rows = group.iter().flat_map(|case| {
            case.metrics
                .iter()
                .map(|metric| row(&case.part, metric, names.len()))
        });
        Table {
            heading,
            rows: rows.collect(),
        }
    }
}

fn row(part: &str, metric: &MetricEntry, servers: usize) -> Vec<String> {
    let label = format!("{part} {}", metric.metric);
    let mut row = vec![label.trim().to_owned()];
    row.extend(metric.figures.iter().map(|figures| spread(&figures.spread)));
    row.extend(metric.comparisons.iter().map(comparison));
    row.resize(servers * 2, String::new());
    row
}

fn spread(spread: &Spread) -> String {
    let Spread { median, min, max } = *spread;
    format!("{} ({}–{})", figure(median), figure(min), figure(max))
}

fn comparison(comparison: &Comparison) -> String {
    let (low, high) = (ratio(comparison.low), ratio(comparison.high));
    match comparison.verdict {
        Verdict::Different => format!("{} ({low}–{high})", ratio(comparison.ratio)),
        Verdict::NotDistinguishable => format!("not distinguishable: spread {low}–{high}"),
        Verdict::TooFewRounds => format!("too few rounds: {low}–{high}"),
    }
}

/// Hundredths, and for what is smaller one digit that is not 0.
fn ratio(value: f64) -> String {
    match value {
        0.1.. => format!("{value:.2}"),
        _ => {
            let zeros = (-value.max(1e-9).log10()).floor() as usize;
            format!("{value:.*}", zeros + 1)
        }
    }
}

/// Four significant digits or so, without an exponent.
fn figure(value: f64) -> String {
    match value.abs() {
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// What was said of each part, alike lines once with the parts they belong to.
fn lines_of_group(out: &mut String, group: &[CaseEntry], bullet: &str) {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (case, note) in group
        .iter()
        .flat_map(|case| case.notes.iter().map(move |n| (case, n)))
    {
        match lines.iter_mut().find(|(line, _)| *line == note) {
            Some((_, parts)) => parts.push(&case.part),
            None => lines.push((note, vec![&case.part])),
        }
    }
    for (note, parts) in lines {
        let at = if parts.len() == group.len() {
            String::new()
        } else {
            parts.join(", ") + ": "
        };
        let _ = writeln!(out, "{bullet}{at}{note}");
    }
    for server in 0..group[0].calls.len() {
        let _ = writeln!(out, "{bullet}{}", calls_of_group(group, server));
    }
}

/// By name for a case in one part; for several, each part's sum.
fn calls_of_group(group: &[CaseEntry], server: usize) -> String {
    let said = match group {
        [case] => case.calls[server].describe(),
        parts => {
            let sum = |case: &CaseEntry| {
                let calls = case.calls.get(server);
                format!(
                    "{} {}",
                    case.part,
                    short(calls.map_or(0.0, CallsEntry::sum))
                )
            };
            parts.iter().map(sum).collect::<Vec<_>>().join(", ")
        }
    };
    format!(
        "system calls per request of {}: {said}",
        group[0].calls[server].server
    )
}

impl CallsEntry {
    fn sum(&self) -> f64 {
        self.calls.values().sum::<u64>() as f64 / self.requests as f64
    }

    /// Calls per request, the most frequent first; what happens less than once in a thousand
    /// requests is left out.
    fn describe(&self) -> String {
        let per_request = |calls: u64| calls as f64 / self.requests as f64;
        let mut calls: Vec<(&String, f64)> = self
            .calls
            .iter()
            .map(|(name, &calls)| (name, per_request(calls)))
            .collect();
        calls.retain(|&(_, calls)| calls >= 0.001);
        calls.sort_by(|a, b| b.1.total_cmp(&a.1));
        let names: Vec<String> = calls
            .iter()
            .map(|(name, calls)| format!("{name} {}", short(*calls)))
            .collect();
        format!("{} ({})", short(self.sum()), names.join(", "))
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Table {
    fn aligned(&self) -> String {
        let width = |column: usize| {
            let cells = self.lines().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let mut out = String::new();
        for line in self.lines() {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| format!("{cell:<width$}"));
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
        }
        out
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        for (index, line) in self.lines().enumerate() {
            let _ = writeln!(out, "| {} |", line.join(" | "));
            if index == 0 {
                let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
            }
        }
        out
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.heading).chain(&self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_keeps_about_four_digits() {
        let figures = [0.123_456, 1.234_56, 123.456, 65_432.1].map(figure);
        assert_eq!(figures, ["0.1235", "1.23", "123.5", "65432"]);
    }

    fn compared(verdict: Verdict) -> String {
        comparison(&Comparison {
            verdict,
            ratio: 0.98,
            low: 0.93,
            high: 1.1,
            confidence: 0.98,
        })
    }

    #[test]
    fn a_ratio_is_printed_only_where_there_is_a_difference() {
        assert_eq!(compared(Verdict::Different), "0.98 (0.93–1.10)");
        let swallowed = compared(Verdict::NotDistinguishable);
        assert_eq!(swallowed, "not distinguishable: spread 0.93–1.10");
        assert_eq!(compared(Verdict::TooFewRounds), "too few rounds: 0.93–1.10");
    }

    #[test]
    fn a_small_ratio_keeps_a_digit() {
        let ratios = [1.234, 0.1, 0.0654, 0.000_32].map(ratio);
        assert_eq!(ratios, ["1.23", "0.10", "0.07", "0.0003"]);
    }

    fn entry(part: &str, notes: &[&str]) -> CaseEntry {
        let calls = [("accept4", 1), ("recvfrom", 1000), ("writev", 2000)];
        let calls = calls.map(|(name, count)| (name.to_owned(), count)).into();
        CaseEntry {
            name: "case".into(),
            part: part.into(),
            load: String::new(),
            metrics: Vec::new(),
            calls: vec![CallsEntry {
                server: "x".into(),
                requests: 2000,
                calls,
            }],
            notes: notes.iter().map(|&note| note.to_owned()).collect(),
        }
    }

    #[test]
    fn calls_are_told_by_name_for_a_case_and_by_sum_for_its_parts() {
        let one = calls_of_group(&[entry("", &[])], 0);
        assert_eq!(
            one,
            "system calls per request of x: 1.5 (writev 1, recvfrom 0.5)"
        );
        let two = calls_of_group(&[entry("1 KiB", &[]), entry("2 KiB", &[])], 0);
        assert_eq!(two, "system calls per request of x: 1 KiB 1.5, 2 KiB 1.5");
    }

    #[test]
    fn alike_notes_are_told_once() {
        let group = [entry("1 KiB", &["all", "one"]), entry("2 KiB", &["all"])];
        let mut out = String::new();
        lines_of_group(&mut out, &group, "- ");
        assert!(
            out.starts_with("- all\n- 1 KiB: one\n- system calls"),
            "{out}"
        );
    }

    #[test]
    fn tables_are_aligned_by_characters_and_complete_in_markdown() {
        let cells = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let table = Table {
            heading: cells(["", "x"]),
            rows: vec![cells(["p50 µs", "1"])],
        };
        assert_eq!(table.aligned(), "          x\n  p50 µs  1\n");
        assert_eq!(table.markdown(), "|  | x |\n|---|---|\n| p50 µs | 1 |\n");
    }
}
