//! The report as one HTML page: for each experiment its charts, and every figure as text.

use std::fmt::Write as _;

use super::chart::{escaped, patch, swatch};
use super::facts::{HOW_TO_READ, TOO_FEW_ROUNDS};
use super::figure::in_words;
use super::page::page;
use super::plots::{Legend, Plot, plots};
use super::table::{Importance, Ratios, ReportTable, TableCell, groups};
use crate::document::{Contender, Document, Experiment};

/// More columns need smaller letters.
const COLUMNS: usize = 9;

impl Document {
    /// A page that needs nothing else: no scripts, nothing loaded, light and dark, printable.
    pub fn html(&self) -> String {
        let mut body = String::new();
        self.head(&mut body);
        for (index, experiment) in self.experiments.iter().enumerate() {
            of_experiment(&mut body, experiment, &format!("e{index}"));
        }
        let title = format!("{} bench, {}", self.tool.name, self.date);
        page(&title, &body)
    }

    fn head(&self, out: &mut String) {
        let names = self.tool.name.as_str();
        let _ = writeln!(out, "<header><h1>What {} measured</h1>", escaped(names));
        let _ = writeln!(out, "<p class=\"muted\">{}</p>", escaped(&self.origin()));
        let _ = writeln!(
            out,
            "<dl><dt>Machine</dt><dd>{}</dd><dt>Command</dt><dd><code>{}</code></dd></dl>",
            escaped(&self.machine.describe()),
            escaped(&self.command)
        );
        if let Some(interruption) = self.interruption() {
            let _ = writeln!(out, "<p class=\"warn\"><strong>{interruption}</strong></p>");
        }
        if !self.warnings.is_empty() {
            out.push_str("<div class=\"warn\"><strong>Reasons to doubt the figures</strong>");
            list(out, &self.warnings);
            out.push_str("</div>\n");
        }
        let _ = writeln!(out, "<p>{HOW_TO_READ}</p>\n</header>");
        if self.experiments.len() > 1 {
            out.push_str("<nav aria-label=\"Experiments\"><ul>\n");
            for (index, experiment) in self.experiments.iter().enumerate() {
                let heading = escaped(&experiment.heading());
                let _ = writeln!(out, "<li><a href=\"#e{index}\">{heading}</a></li>");
            }
            out.push_str("</ul></nav>\n");
        }
    }
}

fn of_experiment(out: &mut String, experiment: &Experiment, id: &str) {
    let heading = escaped(&experiment.heading());
    let _ = writeln!(
        out,
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{heading}</h2>"
    );
    let _ = writeln!(out, "<p>{}</p>", escaped(&experiment.measured));
    let _ = writeln!(out, "<p>{}</p>", escaped(&experiment.reading));
    if let [load] = &experiment.loads()[..] {
        let _ = writeln!(out, "<p class=\"small muted\">Load: {}.</p>", escaped(load));
    }
    let plots = plots(experiment, id);
    for group in groups(experiment) {
        let own = plots.iter().filter(|plot| plot.group == group.title);
        let own: Vec<&Plot> = own.collect();
        charts(out, experiment, &own);
        let further = group.importance == Importance::Further;
        if further {
            let _ = writeln!(out, "<details><summary>{}</summary>", escaped(&group.title));
        }
        table(out, &group.figures);
        match &group.ratios {
            Some(Ratios::Table(ratios)) => table(out, ratios),
            Some(Ratios::TooFewRounds) => {
                let _ = writeln!(out, "<p class=\"note\">{TOO_FEW_ROUNDS}</p>");
            }
            None => {}
        }
        if further {
            out.push_str("</details>\n");
        }
    }
    let distributions: Vec<&Plot> = plots.iter().filter(|plot| plot.group.is_empty()).collect();
    charts(out, experiment, &distributions);
    titled_list(out, "Bytes by mechanism", &experiment.payload_paths());
    titled_list(
        out,
        "System calls per operation",
        &experiment.system_calls(),
    );
    titled_list(out, "Notes", &experiment.all_notes());
    contenders(out, &experiment.contenders);
    out.push_str("</section>\n");
}

/// Charts over the whole width, and those in pairs, each with its numbers.
fn charts(out: &mut String, experiment: &Experiment, plots: &[&Plot]) {
    for run in plots.chunk_by(|a, b| a.is_small && b.is_small) {
        let paired = run[0].is_small;
        if paired {
            out.push_str("<div class=\"pair\">\n");
        }
        for plot in run {
            figure(out, experiment, plot);
        }
        if paired {
            out.push_str("</div>\n");
        }
        for table_below in run.iter().filter_map(|plot| plot.numbers.as_ref()) {
            table(out, table_below);
        }
    }
}

fn figure(out: &mut String, experiment: &Experiment, plot: &Plot) {
    let class = if plot.narrow.is_some() {
        " class=\"has-narrow\""
    } else {
        ""
    };
    let words = &plot.words;
    let _ = writeln!(
        out,
        "<figure{class}><figcaption><h3>{}</h3>",
        escaped(&words.title)
    );
    let _ = writeln!(out, "<p>{}</p></figcaption>", escaped(&words.description));
    out.push_str(&key(experiment, &plot.legend));
    match &plot.narrow {
        Some(narrow) => {
            let _ = writeln!(out, "<div class=\"broad\">{}</div>", plot.svg);
            let _ = writeln!(out, "<div class=\"narrow\">{narrow}</div>");
        }
        None => out.push_str(&plot.svg),
    }
    out.push_str("</figure>\n");
}

fn key(experiment: &Experiment, legend: &Legend) -> String {
    let item = |drawing: String, name: &str| format!("<li>{drawing}{}</li>\n", escaped(name));
    let name = |place: usize| &experiment.contenders[place].name;
    let items: String = match legend {
        Legend::None => return String::new(),
        Legend::Lines(places) => places
            .iter()
            .map(|&at| item(swatch(at), name(at)))
            .collect(),
        Legend::Parts(parts) => parts
            .iter()
            .map(|(at, name)| item(patch(*at), name))
            .collect(),
    };
    format!("<ul class=\"key\">{items}</ul>\n")
}

fn table(out: &mut String, table: &ReportTable) {
    let caption = escaped(&table.caption);
    let class = if table.columns.len() > COLUMNS {
        " class=\"many\""
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "<p class=\"caption\" aria-hidden=\"true\">{caption}</p>\n\
         <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\
         <table{class}>\n<thead><tr><th scope=\"col\">contender</th>"
    );
    for column in &table.columns {
        // No line break between a number and its sign.
        let column = escaped(column).replace(" %", "\u{a0}%");
        let _ = write!(out, "<th scope=\"col\">{column}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escaped(&row.name));
        for cell in &row.cells {
            out.push_str(&html_of(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn html_of(cell: &TableCell) -> String {
    match cell {
        TableCell::Absent => "<td class=\"no\">–</td>".into(),
        TableCell::Figure { median, range, .. } => {
            format!("<td><b>{median}</b> <small>{range}</small></td>")
        }
        TableCell::Ratio { ratio, interval } => {
            format!("<td><b>{ratio}</b> <small>{interval}</small></td>")
        }
        TableCell::Withheld(verdict) => format!("<td class=\"no\">{}</td>", in_words(*verdict)),
        TableCell::Plain(text) => format!("<td>{}</td>", escaped(text)),
    }
}

fn titled_list(out: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ = writeln!(out, "<div class=\"note\"><h3>{title}</h3>");
        list(out, lines);
        out.push_str("</div>\n");
    }
}

fn list(out: &mut String, lines: &[String]) {
    out.push_str("<ul>\n");
    for line in lines {
        let _ = writeln!(out, "<li>{}</li>", with_code(line));
    }
    out.push_str("</ul>\n");
}

/// Escapes text; parts between backticks become code.
fn with_code(text: &str) -> String {
    let pieces: Vec<String> = text.split('`').map(escaped).collect();
    if pieces.len().is_multiple_of(2) {
        return pieces.join("`");
    }
    let piece = |(index, piece): (usize, &String)| match index % 2 {
        0 => piece.clone(),
        _ => format!("<code>{piece}</code>"),
    };
    pieces.iter().enumerate().map(piece).collect()
}

/// Versions and command lines, to repeat the measurement.
fn contenders(out: &mut String, contenders: &[Contender]) {
    out.push_str("<details><summary>Contenders: versions and commands</summary>\n<ul>\n");
    for contender in contenders {
        let _ = write!(out, "<li><strong>{}</strong>", escaped(&contender.name));
        if !contender.version.is_empty() {
            let _ = write!(out, ", {}", escaped(&contender.version));
        }
        let settings = contender
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = settings.chain(contender.command.iter().cloned()).collect();
        if !words.is_empty() {
            let _ = write!(out, "<br><code>{}</code>", escaped(&words.join(" ")));
        }
        if let Some(configuration) = &contender.configuration {
            let _ = write!(out, "<pre>{}</pre>", escaped(configuration));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul></details>\n");
}
