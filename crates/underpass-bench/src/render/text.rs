//! Tables for a terminal of any width: what does not fit beside goes below.

use std::fmt::Write as _;
use std::ops::Range;

use super::facts::TOO_FEW_ROUNDS;
use super::figure::plus_minus;
use super::table::{Importance, Ratios, ReportTable, TableCell, TableGroup, groups};
use crate::document::{Document, Experiment};
use crate::stats::RatioVerdict;

/// Narrower than this a table can't be read anyway.
const WIDTH_MIN: usize = 40;
/// A heading of a column is broken into lines of about this.
const HEADING: usize = 12;
const GAP: &str = "  ";

impl Document {
    /// The most telling tables, for a terminal of `width` columns. No colours.
    pub fn text(&self, width: usize) -> String {
        let width = width.max(WIDTH_MIN);
        let mut out = String::new();
        paragraph(&mut out, "", &self.origin(), width);
        paragraph(&mut out, "", &format!("command: {}", self.command), width);
        paragraph(&mut out, "", &self.machine.describe(), width);
        for line in self
            .interruption()
            .iter()
            .copied()
            .chain(self.warnings.iter().map(|w| &**w))
        {
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
    let _ = writeln!(
        out,
        "\n{heading}\n{}",
        "─".repeat(heading.chars().count().min(width))
    );
    paragraph(out, "", &experiment.measured, width);
    let loads = experiment.loads();
    if let [load] = &loads[..] {
        paragraph(out, "", &format!("load: {load}"), width);
    }
    let versioned = experiment
        .contenders
        .iter()
        .filter(|one| !one.version.is_empty());
    let versions: Vec<String> = versioned
        .map(|one| format!("{} ({})", one.name, one.version))
        .collect();
    if !versions.is_empty() {
        paragraph(
            out,
            "",
            &format!("versions: {}", versions.join(", ")),
            width,
        );
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

/// What the signs in the cells of a table of ratios mean, where there are such.
fn legend(out: &mut String, ratios: &ReportTable, width: usize) {
    let cells = || ratios.rows.iter().flat_map(|row| &row.cells);
    let has = |verdict| cells().any(|cell| matches!(cell, TableCell::Withheld(v) if *v == verdict));
    if has(RatioVerdict::NotDistinguishable) {
        paragraph(
            out,
            "  ",
            "= not distinguishable: the spread swallows the difference",
            width,
        );
    }
    if has(RatioVerdict::TooFewRounds) {
        paragraph(out, "  ", "? too few rounds to tell", width);
    }
}

/// A table of lines of text: each row takes as many as its longest cell.
struct TextGrid {
    headings: Vec<Vec<String>>,
    names: Vec<String>,
    /// By row, by column, by line.
    cells: Vec<Vec<Vec<String>>>,
}

/// Medians, and the widest spread of the row as its last column.
fn medians(table: &ReportTable) -> TextGrid {
    let mut grid = grid(table, |cell| match cell {
        TableCell::Figure { median, .. } => vec![median.clone()],
        other => lines(other),
    });
    if table.columns.len() > 1 {
        grid.headings.push(vec!["spread".into(), "at most".into()]);
        for (row, cells) in table.rows.iter().zip(&mut grid.cells) {
            let spreads = row.cells.iter().filter_map(|cell| match cell {
                TableCell::Figure { half_range, .. } => *half_range,
                _ => None,
            });
            let widest = spreads.max_by(f64::total_cmp);
            cells.push(vec![widest.map_or("–".into(), plus_minus)]);
        }
    } else {
        return two_lines(table);
    }
    grid
}

fn two_lines(table: &ReportTable) -> TextGrid {
    grid(table, lines)
}

fn grid(table: &ReportTable, lines: impl Fn(&TableCell) -> Vec<String>) -> TextGrid {
    let row = |cells: &Vec<TableCell>| cells.iter().map(&lines).collect();
    TextGrid {
        headings: table
            .columns
            .iter()
            .map(|column| broken(column, HEADING))
            .collect(),
        names: table.rows.iter().map(|row| row.name.clone()).collect(),
        cells: table.rows.iter().map(|one| row(&one.cells)).collect(),
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
    /// In as few blocks as the width allows, with about as many columns each.
    fn write(&self, out: &mut String, width: usize) {
        let names = self
            .names
            .iter()
            .map(|name| columns(name))
            .max()
            .unwrap_or(0);
        let widths: Vec<usize> = (0..self.headings.len()).map(|at| self.width(at)).collect();
        let room = width.saturating_sub(GAP.len() + names);
        let fewest = blocks(&widths, room, widths.len()).len();
        let columns_max = widths.len().div_ceil(fewest.max(1));
        for (index, at) in blocks(&widths, room, columns_max).into_iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            self.block(out, names, &widths, at);
        }
    }

    fn block(&self, out: &mut String, names: usize, widths: &[usize], at: Range<usize>) {
        let headings = &self.headings[at.clone()];
        let tallest = headings.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..tallest {
            // A short heading stands on the last line, next to its column.
            let cell = |heading: &Vec<String>| {
                let above = tallest - heading.len();
                line.checked_sub(above)
                    .map(|own| heading[own].clone())
                    .unwrap_or_default()
            };
            let cells: Vec<String> = headings.iter().map(cell).collect();
            write_line(out, "", names, &cells, &widths[at.clone()]);
        }
        for (name, row) in self.names.iter().zip(&self.cells) {
            let cells = &row[at.clone()];
            for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let texts: Vec<String> = cells
                    .iter()
                    .map(|cell| cell.get(line).cloned().unwrap_or_default())
                    .collect();
                let name = if line == 0 { name } else { "" };
                write_line(out, name, names, &texts, &widths[at.clone()]);
            }
        }
    }

    fn width(&self, column: usize) -> usize {
        let cells = self
            .cells
            .iter()
            .map(|row| &row[column])
            .chain([&self.headings[column]]);
        cells.flatten().map(|line| columns(line)).max().unwrap_or(0)
    }
}

/// Columns that stand beside each other: at least one, at most `columns_max`, and no more than fit.
fn blocks(widths: &[usize], room: usize, columns_max: usize) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (index, width) in widths.iter().enumerate() {
        let width = GAP.len() + width;
        match blocks.last_mut() {
            Some(last) if last.len() < columns_max && used + width <= room => {
                last.end += 1;
                used += width;
            }
            _ => {
                blocks.push(index..index + 1);
                used = width;
            }
        }
    }
    blocks
}

fn write_line(out: &mut String, name: &str, names: usize, cells: &[String], widths: &[usize]) {
    let mut line = format!("{GAP}{name:<names$}");
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(line, "{GAP}{cell:>width$}");
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// Text broken at spaces, further lines indented like what follows the first line's mark.
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
