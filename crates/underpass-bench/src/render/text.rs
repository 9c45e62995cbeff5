//! Tables for a terminal of any width: columns that don't fit go below.

use std::fmt::Write as _;

use super::facts::TOO_FEW_ROUNDS;
use super::figure::plus_minus;
use super::table::{Importance, Ratios, ReportTable, TableCell, TableGroup, TableRow, groups};
use crate::document::{Document, Experiment};
use crate::stats::RatioVerdict;

/// Narrower tables are not legible.
const WIDTH_MIN: usize = 40;
/// The heading of a column is broken into lines of about this width.
const HEADING: usize = 12;
const GAP: &str = "  ";

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
    let figures = match group.metrics[..] {
        [_] => medians(&group.figures),
        _ => two_lines(&group.figures),
    };
    out.push('\n');
    paragraph(out, "", &group.figures.caption, width);
    figures.write(out, width);
    match &group.ratios {
        Some(Ratios::Table(ratios)) => {
            out.push('\n');
            paragraph(out, "", &ratios.caption, width);
            two_lines(ratios).write(out, width);
            legend(out, ratios, width);
        }
        Some(Ratios::TooFewRounds) => paragraph(out, "  ", TOO_FEW_ROUNDS, width),
        None => {}
    }
}

/// Explains the signs in the cells of a table of ratios.
fn legend(out: &mut String, ratios: &ReportTable, width: usize) {
    let cells = || ratios.rows.iter().flat_map(|row| &row.cells);
    let has = |verdict| cells().any(|cell| matches!(cell, TableCell::Withheld(v) if *v == verdict));
    if has(RatioVerdict::NotDistinguishable) {
        let equal = "= not distinguishable: the difference is within the spread";
        paragraph(out, "  ", equal, width);
    }
    if has(RatioVerdict::TooFewRounds) {
        paragraph(out, "  ", "? too few rounds", width);
    }
}

/// A table of lines of text: each row is as high as its highest cell.
struct TextGrid {
    names: Vec<String>,
    columns: Vec<TextColumn>,
}

struct TextColumn {
    width: usize,
    /// The heading, then the cells; each has lines.
    cells: Vec<Vec<String>>,
}

impl TextColumn {
    fn new(heading: Vec<String>, cells: impl Iterator<Item = Vec<String>>) -> TextColumn {
        let cells: Vec<_> = [heading].into_iter().chain(cells).collect();
        let width = cells.iter().flatten().map(|line| columns(line)).max();
        TextColumn {
            width: width.unwrap_or(0),
            cells,
        }
    }
}

/// Medians, with the widest spread of the row as the last column.
fn medians(table: &ReportTable) -> TextGrid {
    if table.columns.len() == 1 {
        return two_lines(table);
    }
    let mut grid = grid(table, |cell| match cell {
        TableCell::Figure { median, .. } => vec![median.clone()],
        other => lines(other),
    });
    let widest = |row: &TableRow| {
        let spreads = row.cells.iter().filter_map(|cell| match cell {
            TableCell::Figure { half_range, .. } => *half_range,
            _ => None,
        });
        let widest = spreads.max_by(f64::total_cmp);
        vec![widest.map_or("–".into(), plus_minus)]
    };
    let spreads = TextColumn::new(
        vec!["spread".into(), "at most".into()],
        table.rows.iter().map(widest),
    );
    grid.columns.push(spreads);
    grid
}

fn two_lines(table: &ReportTable) -> TextGrid {
    grid(table, lines)
}

fn grid(table: &ReportTable, lines: impl Fn(&TableCell) -> Vec<String>) -> TextGrid {
    let column = |(index, heading): (usize, &String)| {
        TextColumn::new(
            broken(heading, HEADING),
            table.rows.iter().map(|row| lines(&row.cells[index])),
        )
    };
    let names = table.rows.iter().map(|row| row.name.clone());
    TextGrid {
        names: [String::new()].into_iter().chain(names).collect(),
        columns: table.columns.iter().enumerate().map(column).collect(),
    }
}

fn lines(cell: &TableCell) -> Vec<String> {
    match cell {
        TableCell::Absent => vec!["–".into()],
        TableCell::Figure { median, range, .. } => vec![median.clone(), range.clone()],
        TableCell::Ratio { ratio, interval } => vec![ratio.clone(), interval.clone()],
        TableCell::Withheld(RatioVerdict::TooFewRounds) => vec!["?".into()],
        TableCell::Withheld(_) => vec!["=".into()],
        TableCell::Plain(text) => vec![text.clone()],
    }
}

impl TextGrid {
    /// Writes as few blocks as the width allows, with about the same number of columns each.
    fn write(&self, out: &mut String, width: usize) {
        let names = self.names.iter().map(|name| columns(name)).max();
        let names = names.unwrap_or(0);
        let room = width.saturating_sub(GAP.len() + names);
        let fewest = blocks(&self.columns, room, self.columns.len()).len();
        let columns_max = self.columns.len().div_ceil(fewest.max(1));
        for (index, block) in blocks(&self.columns, room, columns_max).iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            for (row, name) in self.names.iter().enumerate() {
                write_row(out, row, &format!("{GAP}{name:<names$}"), block);
            }
        }
    }
}

fn write_row(out: &mut String, row: usize, name: &str, block: &[TextColumn]) {
    let height = block.iter().map(|column| column.cells[row].len()).max();
    let height = height.unwrap_or(0);
    for line in 0..height {
        let mut text = match line {
            0 => name.to_owned(),
            _ => " ".repeat(columns(name)),
        };
        for column in block {
            let (cell, width) = (&column.cells[row], column.width);
            // A short heading is on the last line, next to its column.
            let above = if row == 0 { height - cell.len() } else { 0 };
            let own = line.checked_sub(above).and_then(|line| cell.get(line));
            let _ = write!(text, "{GAP}{:>width$}", own.map_or("", String::as_str));
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
}

/// Columns beside each other: at least one, at most `columns_max`, and no more than fit.
fn blocks(columns: &[TextColumn], room: usize, columns_max: usize) -> Vec<&[TextColumn]> {
    let width = |column: &TextColumn| GAP.len() + column.width;
    let (mut used, mut count) = (columns.first().map_or(0, width), 1);
    let beside = |_: &TextColumn, next: &TextColumn| {
        let fits = count < columns_max && used + width(next) <= room;
        (used, count) = match fits {
            true => (used + width(next), count + 1),
            false => (width(next), 1),
        };
        fits
    };
    columns.chunk_by(beside).collect()
}

/// Writes text in lines; the first one begins with a mark, and the others are indented.
pub(crate) fn paragraph(out: &mut String, mark: &str, text: &str, width: usize) {
    let indent = columns(mark);
    for (index, line) in broken(text, width - indent).iter().enumerate() {
        let before = if index == 0 { mark } else { "" };
        let _ = writeln!(out, "{before:<indent$}{line}");
    }
}

/// Lines of at most `width` columns, where its words allow.
pub(super) fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if columns(line) + 1 + columns(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn columns(text: &str) -> usize {
    text.chars().count()
}
