//! Tables for a terminal of any width: columns that don't fit go below.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use super::answer::answers;
use super::facts::TOO_FEW_ROUNDS;
use super::figure::in_words;
use super::table::{Importance, Ratios, ReportTable, TableCell, TableGroup, groups};
use crate::document::{Document, Experiment};

/// Narrower tables are not legible.
const WIDTH_MIN: usize = 40;
/// The heading of a column is broken into lines of about this width.
const HEADING: usize = 12;
const GAP: u16 = 2;

impl Document {
    /// The main tables, for a terminal of `width` columns, without colours.
    pub fn text(&self, width: usize) -> String {
        let width = width.max(WIDTH_MIN);
        let mut out = String::new();
        paragraph(&mut out, "", &self.origin(), width);
        paragraph(&mut out, "", &format!("command: {}", self.command), width);
        paragraph(&mut out, "", &self.machine.describe(), width);
        let warnings = self.warnings.iter().map(String::as_str);
        for line in self.interruption().into_iter().chain(warnings) {
            paragraph(&mut out, "! ", line, width);
        }
        for experiment in &self.experiments {
            of_experiment(&mut out, experiment, width);
        }
        let mut heading = "\nAnswer\n──────\n";
        for (question, text) in answers(self) {
            out.push_str(std::mem::take(&mut heading));
            paragraph(&mut out, "- ", &format!("{question}: {text}"), width);
        }
        out
    }
}

fn of_experiment(out: &mut String, experiment: &Experiment, width: usize) {
    let heading = experiment.heading();
    let rule = "─".repeat(heading.chars().count().min(width));
    let _ = writeln!(out, "\n{heading}\n{rule}");
    paragraph(out, "", &experiment.measured, width);
    if let [load] = &experiment.loads()[..] {
        paragraph(out, "", &format!("load: {load}"), width);
    }
    let versions = experiment.versions();
    let versions = versions.map(|(name, version)| format!("{name} ({version})"));
    let versions = versions.collect::<Vec<_>>().join(", ");
    if !versions.is_empty() {
        paragraph(out, "", &format!("versions: {versions}"), width);
    }
    let groups = groups(experiment);
    let mut further = Vec::new();
    for group in &groups {
        match group.importance {
            Importance::Main => of_group(out, group, width),
            Importance::Further => further.push(group.title.as_str()),
        }
    }
    if !further.is_empty() {
        let line = format!("in the full report as well: {}", further.join(", "));
        out.push('\n');
        paragraph(out, "", &line, width);
    }
    for note in experiment.all_notes() {
        paragraph(out, "- ", &note, width);
    }
}

fn of_group(out: &mut String, group: &TableGroup<'_>, width: usize) {
    out.push('\n');
    paragraph(out, "", &group.figures.caption, width);
    two_lines(&group.figures).write(out, width);
    match &group.ratios {
        Some(Ratios::Table(ratios)) => {
            out.push('\n');
            paragraph(out, "", &ratios.caption, width);
            two_lines(ratios).write(out, width);
        }
        Some(Ratios::TooFewRounds) => paragraph(out, "  ", TOO_FEW_ROUNDS, width),
        None => {}
    }
}

/// The headings of the columns and the rows below, each with its name first. Cells have lines.
struct TextGrid(Vec<Vec<String>>);

/// A figure with its range below, a ratio with its interval.
fn two_lines(table: &ReportTable) -> TextGrid {
    let headings = table.columns.iter().map(|one| textwrap::fill(one, HEADING));
    let rows = table.rows.iter().map(|row| {
        let cells = row.cells.iter().map(lines);
        [row.name.clone()].into_iter().chain(cells).collect()
    });
    let headings = [String::new()].into_iter().chain(headings).collect();
    TextGrid([headings].into_iter().chain(rows).collect())
}

fn lines(cell: &TableCell) -> String {
    match cell {
        TableCell::Absent => "–".into(),
        TableCell::Figure { median, range, .. } => format!("{median}\n{range}"),
        TableCell::Ratio { ratio, interval } => format!("{ratio}\n{interval}"),
        TableCell::Withheld(verdict) => in_words(*verdict).replace(' ', "\n"),
        TableCell::Plain(text) => text.clone(),
    }
}

impl TextGrid {
    /// Writes as few blocks as the width allows, with about the same number of columns each.
    fn write(&self, out: &mut String, width: usize) {
        let columns = self.0[0].len() - 1;
        let fits = |text: &String| text.lines().all(|line| line.chars().count() <= width);
        let mut layouts = (1..columns).map(|blocks| self.blocks(columns.div_ceil(blocks)));
        let layout = layouts.find(fits).unwrap_or_else(|| self.blocks(1));
        out.push_str(&layout);
    }

    /// At most this many columns in a row, and the others below.
    fn blocks(&self, columns_max: usize) -> String {
        let columns: Vec<usize> = (1..self.0[0].len()).collect();
        let blocks = columns.chunks(columns_max).map(|shown| self.block(shown));
        blocks.collect::<Vec<_>>().join("\n")
    }

    fn block(&self, columns: &[usize]) -> String {
        let height = |cell: &String| cell.split('\n').count();
        let shown = |row: &'_ Vec<String>| {
            let of_row = [0].iter().chain(columns).map(|&column| row[column].clone());
            of_row.collect::<Vec<_>>()
        };
        let mut headings = shown(&self.0[0]);
        let lines = headings.iter().map(height).max().unwrap_or(0);
        for heading in &mut headings {
            // A short heading is on the last line, next to its column.
            let above = "\n".repeat(lines - height(heading));
            heading.insert_str(0, &above);
        }
        let mut table = Table::new();
        table
            .load_style(NOTHING)
            .set_header(headings)
            .add_rows(self.0[1..].iter().map(shown));
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((GAP, 0));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt() + "\n"
    }
}

/// Writes text in lines; the first one begins with a mark, and the others are indented.
pub(crate) fn paragraph(out: &mut String, mark: &str, text: &str, width: usize) {
    let indent = " ".repeat(mark.len());
    let options = textwrap::Options::new(width).break_words(false);
    let lines = options.initial_indent(mark).subsequent_indent(&indent);
    let _ = writeln!(out, "{}", textwrap::fill(text, lines));
}
