//! Markdown, for a page of the documentation or a comment: every table, no charts.

use std::fmt::Write as _;

use super::answer::answers;
use super::facts::{HOW_TO_READ, TOO_FEW_ROUNDS};
use super::figure::in_words;
use super::summary::summary_table;
use super::table::{Ratios, ReportTable, TableCell, groups};
use crate::document::{Document, Experiment};

impl Document {
    /// Every figure, as Markdown with tables.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        for (question, text) in answers(self) {
            let _ = writeln!(out, "- **{}**: {}", escaped(&question), escaped(&text));
        }
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(out, "Measured by {}: `{}`.", self.origin(), self.command);
        if let Some(summary) = summary_table(self) {
            table(&mut out, &summary);
        }
        let machine = escaped(&self.machine.describe());
        let _ = writeln!(out, "\n{machine}. {HOW_TO_READ}");
        if let Some(interruption) = self.interruption() {
            let _ = writeln!(out, "\n**{interruption}**");
        }
        list(&mut out, "Reasons to doubt the figures:", &self.warnings);
        for experiment in &self.experiments {
            of_experiment(&mut out, experiment);
        }
        out
    }
}

fn of_experiment(out: &mut String, experiment: &Experiment) {
    let _ = writeln!(
        out,
        "\n## {}\n\n{}",
        experiment.heading(),
        escaped(&experiment.measured)
    );
    let _ = writeln!(out, "\n{}", escaped(&experiment.reading));
    match &experiment.loads()[..] {
        [load] => {
            let _ = writeln!(out, "\nLoad: {}.", escaped(load));
        }
        several => list(out, "Loads:", several),
    }
    let versions = experiment.versions();
    let versions = versions.map(|(name, version)| format!("{name}: {version}"));
    list(out, "Versions:", &versions.collect::<Vec<_>>());
    for group in groups(experiment) {
        table(out, &group.figures);
        match &group.ratios {
            Some(Ratios::Table(ratios)) => table(out, ratios),
            Some(Ratios::TooFewRounds) => {
                let _ = writeln!(out, "\n{TOO_FEW_ROUNDS}");
            }
            None => {}
        }
    }
    list(out, "Bytes by mechanism:", &experiment.payload_paths());
    list(
        out,
        "System calls per operation:",
        &experiment.system_calls(),
    );
    list(out, "Notes:", &experiment.all_notes());
}

fn list(out: &mut String, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{heading}\n");
    for line in lines {
        let _ = writeln!(out, "- {}", escaped(line));
    }
}

fn table(out: &mut String, table: &ReportTable) {
    let _ = writeln!(out, "\n**{}**\n", escaped(&table.caption));
    let columns: Vec<String> = table.columns.iter().map(|column| escaped(column)).collect();
    let _ = writeln!(out, "| {} | {} |", table.head, columns.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(columns.len()));
    for row in &table.rows {
        let cells: Vec<String> = row.cells.iter().map(cell).collect();
        let _ = writeln!(out, "| {} | {} |", escaped(&row.name), cells.join(" | "));
    }
}

fn cell(cell: &TableCell) -> String {
    match cell {
        TableCell::Absent => "–".into(),
        TableCell::Figure { median, range, .. } => format!("{median} ({range})"),
        TableCell::Ratio { ratio, interval } => format!("**{ratio}** ({interval})"),
        TableCell::Withheld(verdict) => in_words(*verdict).into(),
        TableCell::Plain(text) => escaped(text),
    }
}

pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '*' | '_' | '<' | '\\' | '[' => out.extend(['\\', character]),
            '\n' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}
