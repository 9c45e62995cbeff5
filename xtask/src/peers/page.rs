//! docs/measurements.md: a row for each comparison, and a chart. The full tables stay next to the
//! results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use underpass_bench::document::{Contender, Document, Figures, RunOutcome};

use super::arguments::PeersArguments;
use super::installation::Installation;
use super::results;
use super::standing::{self, Standing};
use super::table::{PeerComparison, PeerTable};
use crate::workspace::Fallible;

const PAGE: &str = "docs/measurements.md";
const HEAD: &str = include_str!("head.md");
/// The document and the metric of the chart.
const CHART: (&str, &str) = ("serve-large", "cpu_per_gib");
/// The length of the longest bar.
const BAR_MAX: f64 = 30.0;

/// The record of a run, stored next to its results.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct RunRecord {
    pub(super) commit: String,
    pub(super) date: String,
    pub(super) minutes: u64,
    /// Versions as printed by each kit.
    pub(super) versions: BTreeMap<String, String>,
    /// Peers and documents that were left out, with the reason.
    pub(super) left_out: Vec<String>,
}

/// A comparison with its rounds.
type ComparedPeer<'t> = (&'t PeerComparison, Standing);

/// Writes the page from the results of the last run. A quick run's page stays next to its results.
pub(super) fn write(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<()> {
    let root = &installation.workspace.root;
    let folder = root.join(arguments.result(""));
    let record = fs::read_to_string(folder.join(arguments.record()));
    let record = record.map_err(|error| format!("there is no run to write of: {error}"))?;
    let mut run: RunRecord = serde_json::from_str(&record)?;
    let results = run.read_results(table, &folder);
    write_tables(&run, table, &results, &folder)?;
    let path = match arguments.quick {
        true => arguments.result("measurements.md"),
        false => PathBuf::from(PAGE),
    };
    fs::write(root.join(&path), page(&run, table, &results))?;
    println!("\n{}", path.display());
    Ok(())
}

/// The results by the names of their documents.
type PeerResults<'t> = BTreeMap<&'t str, Vec<Document>>;

impl RunRecord {
    pub(super) fn line(&self) -> String {
        let (minutes, date, commit) = (self.minutes, &self.date, &self.commit);
        format!("One run of {minutes} minutes on {date}, of the build of commit {commit}.")
    }

    /// Reads the results for the page, and records what is missing.
    fn read_results<'t>(&mut self, table: &'t PeerTable, folder: &Path) -> PeerResults<'t> {
        let mut results = PeerResults::new();
        for document in table.documents.iter().filter(|one| table.is_compared(one)) {
            let title = &document.title;
            match results::read(folder, document) {
                Ok(calls) => {
                    let is_cut = |one: &Document| one.outcome == RunOutcome::Interrupted;
                    let cut = calls.iter().any(is_cut);
                    let cut = cut.then_some("interrupted: the rest is not measured");
                    let notes: BTreeSet<_> = calls.iter().flat_map(standing::left_out).collect();
                    let notes = notes.into_iter().chain(cut);
                    self.left_out
                        .extend(notes.map(|note| format!("{title}: {note}")));
                    results.insert(&document.name, calls);
                }
                // The record says that it was left out, with the reason.
                Err(_) if self.left_out.iter().any(|one| one.starts_with(title)) => {}
                Err(_) if !folder.join(results::name(document, 1)).exists() => {
                    self.left_out.push(format!("{title}: not measured"));
                }
                Err(error) => self.left_out.push(format!("{title}: {error}")),
            }
        }
        results
    }
}

/// Writes the full tables of all results into `tables` next to them.
fn write_tables(
    run: &RunRecord,
    table: &PeerTable,
    results: &PeerResults<'_>,
    folder: &Path,
) -> Fallible<()> {
    let tables = folder.join("tables");
    fs::create_dir_all(&tables)?;
    for document in &table.documents {
        for (call, result) in results
            .get(&*document.name)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let name = results::name(document, call + 1).replace(".json", ".md");
            let text = format!("# {}\n\n{}\n\n", document.title, run.line());
            fs::write(tables.join(name), text + &result.markdown())?;
        }
    }
    Ok(())
}

fn page(run: &RunRecord, table: &PeerTable, results: &PeerResults<'_>) -> String {
    let mut compared: Vec<ComparedPeer<'_>> = Vec::new();
    for comparison in &table.comparisons {
        let calls = results
            .get(&*comparison.document)
            .map_or(&[][..], Vec::as_slice);
        let standing = results::standing(table, comparison, calls);
        compared.extend(standing.map(|standing| (comparison, standing)));
    }
    compared.sort_by(|(_, a), (_, b)| a.factor().total_cmp(&b.factor()));
    // The rest of the description differs between documents.
    let first = results.values().flatten().next();
    let machine = first.map(|result| result.machine.describe());
    let machine = machine.as_deref().and_then(|all| all.split(", TCP").next());
    let machine = machine.unwrap_or("machine");
    let mut page = format!("{HEAD}{} On a {machine}.\n", run.line());
    if !run.left_out.is_empty() {
        let _ = write!(page, "\nLeft out:\n\n- {}\n", run.left_out.join("\n- "));
    }
    page += "\n| instead of | for | by | times as good (95 %) | its processor time | rounds |\n";
    page += "|---|---|---|---:|---:|---:|\n";
    for (comparison, standing) in &compared {
        page += &row(comparison, standing);
    }
    if let Some(chart) = results.get(CHART.0).and_then(|calls| chart(calls.first()?)) {
        let title = "Processor time to send 1 GiB in files of 100 MiB";
        let _ = write!(page, "\n## {title}\n\nMedians; 4 connections.\n\n{chart}");
    }
    page += "\n## Versions\n\n";
    for (kit, version) in &run.versions {
        let _ = writeln!(page, "- {kit}: {version}");
    }
    page
}

/// Returns a row of the table; losses are in bold.
fn row(comparison: &PeerComparison, standing: &Standing) -> String {
    let factor = match standing.interval() {
        None => "too few rounds".to_owned(),
        Some((low, high)) => {
            let [factor, low, high] = [standing.factor(), low, high].map(digits);
            let (from, to) = if standing.factor() < 1.0 {
                ("**", "**")
            } else {
                ("", "")
            };
            format!("{from}{factor}{to} ({low}–{high})")
        }
    };
    let cpu = standing.cpu().map(|cpu| format!("× {}", digits(cpu)));
    format!(
        "| {} | {} | {} | {factor} | {} | {} |\n",
        comparison.peer,
        comparison.question,
        standing.metric,
        cpu.as_deref().unwrap_or("–"),
        standing.rounds(),
    )
}

/// Draws the medians of a result, the best first; `None` if there are no figures.
fn chart(result: &Document) -> Option<String> {
    let experiment = result.experiments.first()?;
    let metrics = &experiment.cases.first()?.metrics;
    let metric = metrics.iter().find(|one| one.metric == CHART.1)?;
    let figures = experiment.contenders.iter().zip(&metric.figures);
    let median = |(one, figures): (&'_ Contender, &Option<Figures>)| {
        Some((figures.as_ref()?.spread.median, one.name.clone()))
    };
    let mut bars: Vec<_> = figures.filter_map(median).collect();
    bars.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = bars.last()?.0;
    let line = |(seconds, name): &(f64, String)| {
        let bar = "█".repeat((seconds / most * BAR_MAX).round().max(1.0) as usize);
        format!("    {name:18} {bar} {:.0} ms\n", seconds * 1000.0)
    };
    Some(bars.iter().map(line).collect())
}

/// Formats hundredths, and smaller values with one nonzero digit.
pub(super) fn digits(value: f64) -> String {
    let zeros = (-value.max(1e-9).log10()).floor().max(0.0) as usize;
    format!("{value:.*}", (zeros + 1).max(2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace::Workspace;

    /// Makes a result with one case. Each contender has a scale for the rounds of all metrics.
    fn document(title: &str, contenders: &[(&str, f64)], metrics: &[(&str, &str)]) -> Document {
        let figures = |scale: f64| {
            let rounds = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0].map(|round| round * scale);
            json!({ "rounds": rounds, "spread": {"median": scale, "min": scale, "max": scale} })
        };
        let figures: Vec<_> = contenders
            .iter()
            .map(|(_, scale)| figures(*scale))
            .collect();
        let metrics = metrics.iter().map(|(name, label)| {
            json!({
                "metric": name, "label": label, "unit": "count", "better": "lower",
                "figures": figures, "comparisons": vec![(); contenders.len()],
            })
        });
        let contenders = contenders.iter().map(|(name, _)| {
            json!({
                "name": name, "version": "", "command": [], "environment": [],
                "configuration": null,
            })
        });
        serde_json::from_value(json!({
            "schema": 2, "tool": {"name": "underpass", "version": "1"}, "date": "2026-01-31",
            "command": "underpass bench http", "seconds": 1.0, "outcome": "complete",
            "machine": {
                "processors": 2, "processor_model": "AMD", "virtual_machine": true,
                "kernel": "6.18", "memory_bytes": 1 << 30, "congestion_control": "cubic",
                "file_system": "ext4",
            },
            "warnings": [],
            "experiments": [{
                "name": "http", "variant": "", "title": title, "measured": "", "reading": "",
                "axis": {"label": "", "unit": "count"}, "rounds": 6,
                "contenders": contenders.collect::<Vec<_>>(),
                "cases": [{
                    "label": "1 KiB", "x": 1.0, "load": "", "travelled": [], "calls": [],
                    "notes": ["h2o is left out from there on"],
                    "metrics": metrics.collect::<Vec<_>>(),
                }],
                "notes": ["not measured: h2o does not start"],
            }],
        }))
        .expect("a result")
    }

    /// Makes a sample: nginx is twice as good, lighttpd half as good, the bound four times as good.
    fn sample(title: &str) -> Document {
        let own = [("underpass", 2.0), ("underpass, sendfile only", 1.0)];
        let others = [("nginx", 1.0), ("lighttpd", 4.0), ("floor", 0.5)];
        let contenders = [&own[..], &others].concat();
        let metrics = [("p99", "response time"), ("cpu_per_gib", "processor time")];
        document(title, &contenders, &metrics)
    }

    fn sample_page(samples: Vec<(&'static str, Document)>, run: &RunRecord) -> String {
        let table = PeerTable::read().expect("a table");
        let results = samples.into_iter().map(|(name, one)| (name, vec![one]));
        page(run, &table, &results.collect())
    }

    #[test]
    fn the_page_names_build_versions_and_those_left_out_and_puts_losses_first() {
        let run = RunRecord {
            commit: "abc1234".into(),
            date: "2026-01-31".into(),
            minutes: 40,
            versions: BTreeMap::from([("nginx".into(), "nginx/1.22.1".into())]),
            left_out: vec!["h2o: not there".into()],
        };
        let page = sample_page(vec![("serve-small", sample("Files"))], &run);
        for part in [
            "One run of 40 minutes on 2026-01-31, of the build of commit abc1234. On a virtual \
             machine with 2 processors (AMD), 1 GiB of memory, Linux 6.18.\n",
            "Left out:\n\n- h2o: not there\n",
            "|---:|\n| nginx | files of 1 KiB | response time | **0.50** (0.50–0.50) | × 0.50 | \
             6 |\n| lighttpd | files of 1 KiB | response time | 2.00 (2.00–2.00) | × 2.00 | 6 |\n",
            "## Versions\n\n- nginx: nginx/1.22.1\n",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(!page.contains("floor"), "it is in no comparison");
    }

    #[test]
    fn a_program_is_compared_with_our_program() {
        let contenders = [("underpass", 1.0), ("underpass cp", 4.0), ("GNU cp", 8.0)];
        let result = document("A file copied", &contenders, &[("wall", "time")]);
        let page = sample_page(vec![("copy-large", result)], &RunRecord::default());
        let row = "| GNU cp | a local copy of 1 GiB | time | 2.00 (2.00–2.00) | – | 6 |";
        assert!(page.contains(row), "{page}");
    }

    #[test]
    fn the_chart_has_the_medians_the_best_first() {
        let page = sample_page(
            vec![("serve-large", sample("Files"))],
            &RunRecord::default(),
        );
        let chart = format!(
            "    floor              {} 500 ms\n    underpass, sendfile only {} 1000 ms\n",
            "█".repeat(4),
            "█".repeat(8),
        );
        assert!(page.contains(&chart), "{page}");
    }

    #[test]
    fn the_page_is_short() {
        let table = PeerTable::read().expect("a table");
        let names: BTreeSet<_> = table.peers().map(|(_, peer)| peer.name.as_str()).collect();
        let names = ["underpass"].into_iter().chain(names);
        let contenders: Vec<_> = names.map(|name| (name, 1.0)).collect();
        let one = document("Files", &contenders, &[("wall", "time")]);
        let documents = table.documents.iter();
        let results = documents.map(|document| (&*document.name, vec![one.clone()]));
        let run = RunRecord {
            left_out: vec!["h2o: not there".into(); 9],
            ..RunRecord::default()
        };
        let page = page(&run, &table, &results.collect());
        assert!(page.lines().count() <= 120, "{page}");
        assert_eq!(page.matches("| 6 |").count(), table.comparisons.len());
    }

    #[test]
    fn a_broken_result_is_named_and_later_calls_add_rounds() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().to_owned();
        let workspace = Workspace { root: root.clone() };
        let installation = Installation::open(&workspace).expect("an installation");
        let quick = root.join("target/peers/quick");
        fs::create_dir_all(&quick).expect("a folder");
        let run = RunRecord {
            left_out: vec!["Files of 1 KiB over HTTP: it broke".into()],
            ..RunRecord::default()
        };
        let run = serde_json::to_string(&run).expect("a record");
        fs::write(quick.join("run.json"), run).expect("a record");
        fs::write(quick.join("serve-large.json"), "{").expect("a result");
        for name in ["serve-reconnect.json", "serve-reconnect-2.json"] {
            let written = sample("Files").write(&quick.join(name));
            written.expect("a result");
        }
        let arguments = PeersArguments::quick();
        let table = PeerTable::read().expect("a table");
        write(&installation, &table, &arguments).expect("pages");
        let read = |name: &str| fs::read_to_string(quick.join(name)).expect("a page");
        let page = read("measurements.md");
        assert!(
            page.contains("is not a result of underpass bench (EOF while"),
            "{page}"
        );
        assert_eq!(page.matches("of 1 KiB over HTTP:").count(), 1, "{page}");
        assert!(
            page.contains("**0.50** (0.50–0.50) | × 0.50 | 12 |"),
            "{page}"
        );
        assert!(read("tables/serve-reconnect-2.md").contains("# A connection for every request"));
    }

    #[test]
    fn a_small_ratio_keeps_a_digit() {
        let ratios = [22.934, 1.2, 0.1, 0.0654, 0.000_32].map(digits);
        assert_eq!(ratios, ["22.93", "1.20", "0.10", "0.07", "0.0003"]);
    }
}
