//! The report as one HTML page: for each experiment its charts, and every figure as text. One file,
//! no scripts, nothing loaded, and a policy that forbids both.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::answer::answers;
use super::chart::{marks, swatch};
use super::facts::{HOW_TO_READ, TOO_FEW_ROUNDS};
use super::figure::in_words;
use super::plots::{MetricScales, Plot, plots};
use super::summary::summary_table;
use super::table::{Importance, Ratios, ReportTable, TableCell, TableGroup, groups};
use crate::document::{Contender, Document, Experiment};

/// More columns need smaller letters.
const COLUMNS: usize = 9;

impl Document {
    /// A page that needs nothing else: no scripts, nothing loaded, light and dark, printable.
    pub fn html(&self) -> String {
        let name = &self.tool.name;
        let ids = (0..).map(|index| format!("e{index}"));
        let scales = MetricScales::of(&self.experiments);
        let experiments: Vec<_> = ids.zip(&self.experiments).collect();
        let body = html! {
            (marks())
            header {
                h1 { "What " (name) " measured" }
                @let answers = answers(self);
                @if !answers.is_empty() {
                    ul.answer {
                        @for (question, text) in &answers {
                            li { strong { (question) } ": " (text) }
                        }
                    }
                }
                p.muted { (self.origin()) }
                @if let Some(summary) = summary_table(self) { div.summary { (table(&summary)) } }
                @if experiments.len() > 1 {
                    nav aria-label="Contents" {
                        ul {
                            @for (id, experiment) in &experiments {
                                li { a href={ "#" (id) } { (experiment.heading()) } }
                            }
                        }
                    }
                }
                dl {
                    dt { "Machine" } dd { (self.machine.describe()) }
                    dt { "Command" } dd { code { (self.command) } }
                }
                @if let Some(interruption) = self.interruption() {
                    p.warn { strong { (interruption) } }
                }
                @if !self.warnings.is_empty() {
                    div.warn { strong { "Reasons to doubt the figures" } (list(&self.warnings)) }
                }
                p { (HOW_TO_READ) }
            }
            @for (id, experiment) in &experiments { (section(experiment, id, &scales)) }
        };
        page(&format!("{name} bench, {}", self.date), &body)
    }
}

fn page(title: &str, body: &Markup) -> String {
    let style = include_str!("page.css");
    // The nonce allows this style sheet and no other: whoever adds one changes the page's hash. No
    // source is allowed for anything else.
    let hash = Sha256::digest(body.0.as_bytes());
    let nonce: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'"
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(PreEscaped(policy));
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style nonce=(nonce) { (PreEscaped(style)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn section(experiment: &Experiment, id: &str, scales: &MetricScales) -> Markup {
    let plots = plots(experiment, id, scales);
    let charts_of = |group: &str| {
        let own = plots.iter().filter(|plot| plot.group == group);
        charts(experiment, &own.collect::<Vec<_>>())
    };
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (experiment.heading()) }
            p { (experiment.measured) }
            p { (experiment.reading) }
            @if let [load] = &experiment.loads()[..] { p.small.muted { "Load: " (load) "." } }
            @for group in groups(experiment) {
                (charts_of(&group.title))
                @match group.importance {
                    Importance::Main => (tables(&group)),
                    Importance::Further => details { summary { (group.title) } (tables(&group)) },
                }
            }
            (titled_list("Bytes by mechanism", &experiment.payload_paths()))
            (titled_list("System calls per operation", &experiment.system_calls()))
            (titled_list("Notes", &experiment.all_notes()))
            details {
                summary { "Contenders: versions and commands" }
                ul { @for contender in &experiment.contenders { (item(contender)) } }
            }
        }
    }
}

fn tables(group: &TableGroup<'_>) -> Markup {
    html! {
        (table(&group.figures))
        @match &group.ratios {
            Some(Ratios::Table(ratios)) => (table(ratios)),
            Some(Ratios::TooFewRounds) => p.note { (TOO_FEW_ROUNDS) },
            None => {}
        }
    }
}

/// Charts over the whole width, and those in pairs.
fn charts(experiment: &Experiment, plots: &[&Plot]) -> Markup {
    html! {
        @for run in plots.chunk_by(|a, b| a.is_small && b.is_small) {
            div.pair[run[0].is_small] { @for plot in run { (figure(experiment, plot)) } }
        }
    }
}

fn figure(experiment: &Experiment, plot: &Plot) -> Markup {
    let name = |place: &usize| &experiment.contenders[*place].name;
    html! {
        figure {
            figcaption { h3 { (plot.words.title) } p { (plot.words.description) } }
            @if let Some(places) = &plot.legend {
                ul.key { @for at in places { li { (swatch(*at)) (name(at)) } } }
            }
            // On a phone its letters would be too small: it is scrolled there.
            div.wide[!plot.is_small] tabindex=[(!plot.is_small).then_some("0")] { (plot.svg) }
        }
    }
}

fn table(table: &ReportTable) -> Markup {
    // No line break between a number and its sign.
    let headings = table
        .columns
        .iter()
        .map(|column| column.replace(" %", "\u{a0}%"));
    html! {
        p.caption aria-hidden="true" { (table.caption) }
        div.wide tabindex="0" role="region" aria-label=(table.caption) {
            table.many[table.columns.len() > COLUMNS] {
                thead {
                    tr {
                        th scope="col" { (table.head) }
                        @for heading in headings { th scope="col" { (heading) } }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            th scope="row" { (row.name) }
                            @for cell in &row.cells { (html_of(cell)) }
                        }
                    }
                }
            }
        }
    }
}

fn html_of(cell: &TableCell) -> Markup {
    html! {
        @match cell {
            TableCell::Absent => td.no { "–" },
            TableCell::Figure { median: middle, range, .. }
            | TableCell::Ratio { ratio: middle, interval: range } => {
                td { b { (middle) } " " small { (range) } }
            }
            TableCell::Withheld(verdict) => td.no { (in_words(*verdict)) },
            TableCell::Plain(text) => td { (text) },
        }
    }
}

fn titled_list(title: &str, lines: &[String]) -> Markup {
    html! { @if !lines.is_empty() { div.note { h3 { (title) } (list(lines)) } } }
}

fn list(lines: &[String]) -> Markup {
    html! { ul { @for line in lines { li { (line) } } } }
}

/// Version and command line, to repeat the measurement.
fn item(contender: &Contender) -> Markup {
    let environment = contender.environment.iter();
    let settings = environment.map(|(name, value)| format!("{name}={value}"));
    let words: Vec<String> = settings.chain(contender.command.iter().cloned()).collect();
    html! {
        li {
            strong { (contender.name) }
            @if !contender.version.is_empty() { ", " (contender.version) }
            @if !words.is_empty() { br; code { (words.join(" ")) } }
            @if let Some(configuration) = &contender.configuration { pre { (configuration) } }
        }
    }
}
