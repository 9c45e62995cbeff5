//! docs/measurements.md: what was written by hand, what came of it in short, every table.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::Arguments;
use super::kit::{SHOP, Shop};
use super::run::SHAPES;
use super::table::PEERS;
use crate::workspace::Fallible;

const PAGE: &str = "docs/measurements.md";
const HEAD: &str = include_str!("head.md");

/// What of a result of `underpass bench` is needed here; docs/bench-format.md describes it.
#[derive(Deserialize)]
struct Document {
    experiments: Vec<Experiment>,
}

#[derive(Deserialize)]
struct Experiment {
    title: String,
    contenders: Vec<Contender>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Contender {
    name: String,
}

#[derive(Deserialize)]
struct Case {
    label: String,
    load: String,
    metrics: Vec<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    label: String,
    better: Option<Better>,
    comparisons: Vec<Option<Comparison>>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Better {
    Lower,
    Higher,
}

/// The first contender's figure divided by another's.
#[derive(Clone, Copy, Deserialize)]
struct Comparison {
    verdict: Verdict,
    ratio: f64,
    low: f64,
    high: f64,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Different,
    NotDistinguishable,
    TooFewRounds,
}

/// What may be said of the first contender beside another.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    Ahead,
    Behind,
    Level,
    Unknown,
}

/// Writes the page from all results that are there. A quick run has nothing to say in `docs`.
pub(super) fn write(shop: &Shop<'_>, arguments: &Arguments) -> Fallible<()> {
    let root = &shop.workspace.root;
    let (mut short, mut tables) = (String::new(), String::new());
    for shape in SHAPES
        .iter()
        .filter(|shape| root.join(shape.json()).exists())
    {
        let json = root.join(shape.json());
        let document: Document = serde_json::from_str(&fs::read_to_string(&json)?)?;
        for experiment in &document.experiments {
            short += &experiment.in_short();
        }
        let markdown = json.with_extension("md");
        let mut render = shop.command("underpass");
        render.args(["bench", "render"]).arg(shape.json());
        render.arg("--markdown").arg(&markdown);
        match render.stdout(std::process::Stdio::null()).status()? {
            status if status.success() => {}
            status => return Err(format!("underpass bench render: {status}").into()),
        }
        let markdown = fs::read_to_string(markdown)?;
        let _ = write!(tables, "\n{}", lowered(&markdown).trim());
        tables.push('\n');
    }
    let page = if arguments.quick {
        Path::new(SHOP).join("measurements.md")
    } else {
        PAGE.into()
    };
    fs::write(root.join(&page), format!("{HEAD}{short}{tables}"))?;
    println!("\n{}", page.display());
    Ok(())
}

/// Headings one level down: the page has a title already.
fn lowered(markdown: &str) -> String {
    let mut is_code = false;
    let line = |line: &str| {
        is_code ^= line.starts_with("```");
        let heading = if line.starts_with('#') && !is_code {
            "#"
        } else {
            ""
        };
        format!("{heading}{line}\n")
    };
    markdown.lines().map(line).collect()
}

impl Experiment {
    /// Where the first contender is ahead of the peers, where behind, both by the most telling
    /// metric of each case.
    fn in_short(&self) -> String {
        let first = self.contenders.first().map_or("", |first| &first.name);
        let mut text = format!("\n### {}\n", self.title);
        let mut unknown = 0;
        for (standing, heading) in [
            (Standing::Ahead, "better than"),
            (Standing::Behind, "worse than"),
            (Standing::Level, "not to be told from"),
        ] {
            let _ = write!(text, "\n**{first} is {heading}**\n\n");
            let mut lines = self
                .cases
                .iter()
                .filter_map(|case| case.line(self, standing))
                .peekable();
            if lines.peek().is_none() {
                text.push_str("- nobody\n");
            }
            lines.for_each(|line| text.push_str(&line));
        }
        for case in &self.cases {
            unknown += case
                .standings(self)
                .filter(|(_, standing, _)| *standing == Standing::Unknown)
                .count();
        }
        if unknown > 0 {
            let _ = write!(
                text,
                "\n{unknown} comparisons had too few rounds to say anything.\n"
            );
        }
        text
    }
}

impl Case {
    /// `- CASE, METRIC: PEER RATIO (LOW–HIGH), …` of those peers, the clearest first.
    fn line(&self, experiment: &Experiment, standing: Standing) -> Option<String> {
        let metric = self.metric()?;
        let mut found: Vec<(&str, Comparison)> = self
            .standings(experiment)
            .filter(|(_, is, _)| *is == standing)
            .map(|(name, _, comparison)| (name, comparison))
            .collect();
        found.sort_by(|(_, a), (_, b)| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
        let peers: Vec<String> = found
            .iter()
            .map(|(name, c)| match standing {
                Standing::Level => (*name).to_owned(),
                _ => format!("{name} {:.2} ({:.2}–{:.2})", c.ratio, c.low, c.high),
            })
            .collect();
        let label = if self.label.is_empty() {
            &self.load
        } else {
            &self.label
        };
        (!peers.is_empty()).then(|| format!("- {label}, {}: {}\n", metric.label, peers.join(", ")))
    }

    fn metric(&self) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.better.is_some())
    }

    /// The peers of this project's table, so not our own mover held to one mechanism.
    fn standings<'c>(
        &'c self,
        experiment: &'c Experiment,
    ) -> impl Iterator<Item = (&'c str, Standing, Comparison)> {
        let metric = self.metric().into_iter();
        let compared = metric.flat_map(|metric| {
            let pairs = experiment.contenders.iter().zip(&metric.comparisons);
            pairs.filter_map(|(contender, comparison)| {
                let comparison = (*comparison)?;
                Some((
                    contender.name.as_str(),
                    comparison.standing(metric.better?),
                    comparison,
                ))
            })
        });
        compared.filter(|(name, _, _)| PEERS.iter().any(|peer| peer.name == *name))
    }
}

impl Comparison {
    fn standing(&self, better: Better) -> Standing {
        match self.verdict {
            Verdict::TooFewRounds => Standing::Unknown,
            Verdict::NotDistinguishable => Standing::Level,
            Verdict::Different if (self.ratio < 1.0) == (better == Better::Lower) => {
                Standing::Ahead
            }
            Verdict::Different => Standing::Behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"experiments": [{
        "title": "Files over HTTP",
        "contenders": [
            {"name": "underpass"}, {"name": "sendfile"}, {"name": "nginx"}, {"name": "h2o"},
            {"name": "caddy"}, {"name": "dufs"}],
        "cases": [{"label": "1 KiB", "load": "", "metrics": [
            {"label": "page faults", "better": null, "comparisons": []},
            {"label": "CPU time", "better": "lower", "comparisons": [null,
                {"verdict": "different", "ratio": 0.5, "low": 0.4, "high": 0.6},
                {"verdict": "different", "ratio": 1.25, "low": 1.1, "high": 1.4},
                {"verdict": "different", "ratio": 0.8, "low": 0.7, "high": 0.9},
                {"verdict": "different", "ratio": 0.4, "low": 0.3, "high": 0.5},
                {"verdict": "not_distinguishable", "ratio": 1, "low": 0.9, "high": 1.1}]}]}]}]}"#;

    #[test]
    fn wins_and_losses_are_told_alike() {
        let document: Document = serde_json::from_str(DOCUMENT).expect("a document");
        let expected = "\n### Files over HTTP\n\
            \n**underpass is better than**\n\n\
            - 1 KiB, CPU time: caddy 0.40 (0.30–0.50), h2o 0.80 (0.70–0.90)\n\
            \n**underpass is worse than**\n\n\
            - 1 KiB, CPU time: nginx 1.25 (1.10–1.40)\n\
            \n**underpass is not to be told from**\n\n\
            - 1 KiB, CPU time: dufs\n";
        assert_eq!(document.experiments[0].in_short(), expected);
    }

    #[test]
    fn more_is_better_where_it_says_so() {
        let text = DOCUMENT.replace("\"lower\"", "\"higher\"");
        let document: Document = serde_json::from_str(&text).expect("a document");
        let short = document.experiments[0].in_short();
        let (_, worse) = short.split_once("worse than").expect("a heading");
        assert!(worse.contains("caddy 0.40"), "{short}");
    }

    #[test]
    fn too_few_rounds_say_nothing() {
        let text = DOCUMENT.replace("\"different\"", "\"too_few_rounds\"");
        let document: Document = serde_json::from_str(&text).expect("a document");
        let short = document.experiments[0].in_short();
        assert!(short.contains("better than**\n\n- nobody\n"), "{short}");
        assert!(short.ends_with("\n3 comparisons had too few rounds to say anything.\n"));
    }

    #[test]
    fn headings_go_down_and_code_stays() {
        let text = "# a\n\n```text\n# b\n```\n## c\n";
        assert_eq!(lowered(text), "## a\n\n```text\n# b\n```\n### c\n");
    }
}
