//! docs/measurements.md: one table for each peer, and the full tables in a file for each document.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};

use super::arguments::PeersArguments;
use super::installation::{FOLDER, Installation};
use super::standing::{BenchResult, Standing, StandingVerdict};
use super::table::{PeerDocument, PeerTable};
use crate::workspace::Fallible;

const PAGES: &str = "docs";
const HEAD: &str = include_str!("head.md");
/// A page that somebody reads to its end.
const LINES_MAX: usize = 150;
/// The worst of a peer; the full tables have all.
const ROWS_MAX: usize = 5;
/// The programs in `peers/`, in one table.
const OWN_PROGRAMS: &str = "Programs in C, Go, Java and Python";

/// What a run was, beside its results.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct RunRecord {
    pub(super) commit: String,
    pub(super) date: String,
    pub(super) minutes: u64,
    /// As each kit prints it.
    pub(super) versions: BTreeMap<String, String>,
    /// Peers and documents, with the reason.
    pub(super) left_out: Vec<String>,
}

/// Writes the pages from the results of the last run. Those of a quick one stay beside its results.
pub(super) fn write(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<()> {
    let root = &installation.workspace.root;
    let read = |name: &str| fs::read_to_string(root.join(arguments.result(name)));
    let mut run: RunRecord = serde_json::from_str(&read("run.json")?)?;
    let pages = match arguments.quick {
        true => arguments.result(""),
        false => PAGES.into(),
    };
    let folder = root.join(&pages).join("measurements");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let mut results = Vec::new();
    for document in &table.documents {
        let name = format!("{}.json", document.name);
        let Ok(text) = read(&name) else { continue };
        let result: BenchResult = serde_json::from_str(&text)?;
        let notes = result.experiments.iter().flat_map(|one| &one.notes);
        let missing = notes.filter(|note| note.starts_with("not "));
        let missing = missing.map(|note| format!("{}: {note}", document.title));
        run.left_out.extend(missing);
        let tables = rendered(installation, &arguments.result(&name))?;
        let page = format!(
            "# {}\n\n{}\n\n{}",
            document.title,
            run.line(),
            tables.trim()
        );
        fs::write(folder.join(format!("{}.md", document.name)), page + "\n")?;
        results.push((document, result));
    }
    let page = page(&run, table, &results);
    let lines = page.lines().count();
    if lines > LINES_MAX {
        return Err(format!("the page has {lines} lines, of at most {LINES_MAX}").into());
    }
    let path = pages.join("measurements.md");
    fs::write(root.join(&path), page)?;
    println!("\n{}", path.display());
    Ok(())
}

impl RunRecord {
    fn line(&self) -> String {
        let RunRecord {
            commit,
            date,
            minutes,
            ..
        } = self;
        format!("One run of {minutes} minutes on {date}, of the build of commit {commit}.")
    }
}

fn page(run: &RunRecord, table: &PeerTable, results: &[(&PeerDocument, BenchResult)]) -> String {
    let is_program = |name: &str| {
        let mut peers = table.peers();
        peers.any(|(option, peer)| option == "--program" && peer.name == name)
    };
    let is_peer = |one: &Standing| {
        let mut peers = table.peers();
        peers.any(|(_, peer)| peer.name == one.peer && peer.kit != "underpass")
    };
    let standings = results
        .iter()
        .flat_map(|(_, result)| result.standings(is_program));
    let standings: Vec<Standing> = standings.filter(is_peer).collect();
    let comparisons = standings.len();
    let machine = results.first().map_or(String::new(), |(_, result)| {
        let of = |name: &str| match &result.machine.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            value => value.map_or(String::new(), ToString::to_string),
        };
        format!(
            "Machine: {} processors ({}), Linux {}, TCP congestion control {}.",
            of("processors"),
            of("processor_model"),
            of("kernel"),
            of("congestion_control")
        )
    });
    let mut page = format!("{HEAD}{} {machine}", run.line());
    let _ = writeln!(page, " {comparisons} comparisons.");
    if !run.left_out.is_empty() {
        let _ = writeln!(page, "\nLeft out: {}.", run.left_out.join("; "));
    }
    let mut of_kits: Vec<(&str, Vec<&Standing>)> = Vec::new();
    for standing in &standings {
        let kit = kit_of(table, &standing.peer);
        match of_kits.iter_mut().find(|(name, _)| *name == kit) {
            Some((_, own)) => own.push(standing),
            None => of_kits.push((kit, vec![standing])),
        }
    }
    for (kit, own) in of_kits {
        let version = run
            .versions
            .get(kit)
            .map_or(String::new(), |line| format!(" ({line})"));
        let _ = write!(page, "\n## {kit}{version}\n{}", section(own, comparisons));
    }
    let _ = writeln!(page, "\n## All tables\n");
    let links = results
        .iter()
        .map(|(document, _)| format!("[{}](measurements/{}.md)", document.title, document.name));
    page + &links.collect::<Vec<_>>().join(", ") + "\n"
}

/// The kit by whose name users know a peer.
fn kit_of<'t>(table: &'t PeerTable, peer: &str) -> &'t str {
    let mut peers = table.peers().filter(|(_, one)| one.name == peer);
    match peers.next() {
        Some((_, one)) if !one.command.contains("target/peers/") && !one.takes_jobs(table) => {
            &one.kit
        }
        _ => OWN_PROGRAMS,
    }
}

/// The answer in a sentence, and the table, the worst row first.
fn section(mut standings: Vec<&Standing>, comparisons: usize) -> String {
    standings.sort_by(|a, b| a.factor().total_cmp(&b.factor()));
    let count = |verdict| {
        let alike = standings
            .iter()
            .filter(|one| one.verdict(comparisons) == verdict);
        alike.count()
    };
    let mut text = format!(
        "Of {} cases Underpass is better in {}, worse in {}, not distinguishable in {}",
        standings.len(),
        count(StandingVerdict::Better),
        count(StandingVerdict::Worse),
        count(StandingVerdict::Level)
    );
    match count(StandingVerdict::Unknown) {
        0 => text.push('.'),
        unknown => {
            let _ = write!(text, "; {unknown} had too few rounds.");
        }
    }
    // One row for each question, that of its worst case.
    let mut shown: Vec<&Standing> = Vec::new();
    for one in &standings {
        let experiment = |one: &Standing| {
            one.question
                .split_once(": ")
                .map(|(title, _)| title.to_owned())
        };
        let is_new =
            |known: &&Standing| (experiment(known), &known.peer) != (experiment(one), &one.peer);
        if shown.iter().all(is_new) && shown.len() < ROWS_MAX {
            shown.push(one);
        }
    }
    text += "\n\n| the worst cases | beside | by | times as good | its processor time |\n";
    text += "|---|---|---|---:|---:|\n";
    for one in shown {
        let [factor, low, high] = {
            let (low, high) = one.interval(comparisons).unwrap_or_default();
            [one.factor(), low, high].map(digits)
        };
        let factor = match one.verdict(comparisons) {
            StandingVerdict::Better | StandingVerdict::Worse => format!("{factor} ({low}–{high})"),
            StandingVerdict::Unknown => "too few rounds".to_owned(),
            StandingVerdict::Level => "not distinguishable".to_owned(),
        };
        let cpu = one.cpu.map(|cpu| format!("× {}", digits(cpu)));
        let (cpu, question) = (cpu.as_deref().unwrap_or("–"), &one.question);
        let (peer, metric) = (&one.peer, &one.metric);
        let _ = writeln!(
            text,
            "| {question} | {peer} | {metric} | {factor} | {cpu} |"
        );
    }
    text
}

/// Hundredths, and for what is smaller one digit that is not 0.
fn digits(value: f64) -> String {
    let zeros = (-value.max(1e-9).log10()).floor().max(0.0) as usize;
    format!("{value:.*}", (zeros + 1).max(2))
}

/// The tables of a result, as the bench writes them.
fn rendered(installation: &Installation<'_>, json: &Path) -> Fallible<String> {
    let markdown: PathBuf = Path::new(FOLDER).join("tables.md");
    let mut render = installation.command("underpass");
    render.args(["bench", "render"]).arg(json);
    render.arg("--markdown").arg(&markdown);
    match render.stdout(Stdio::null()).status()? {
        status if status.success() => {}
        status => return Err(format!("underpass bench render: {status}").into()),
    }
    Ok(fs::read_to_string(
        installation.workspace.root.join(markdown),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result of six rounds beside peers: nginx is twice as good, lighttpd half as good.
    fn sample(title: &str) -> BenchResult {
        let figures = |scale: f64| {
            let rounds = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0].map(|round| round * scale);
            serde_json::json!({ "rounds": rounds })
        };
        let metric = |name: &str, label: &str| {
            let figures = [2.0, 1.0, 1.0, 4.0].map(figures);
            serde_json::json!({
                "metric": name, "label": label, "better": "lower", "figures": figures,
            })
        };
        let metrics = [
            metric("p99", "response time"),
            metric("cpu_per_gib", "processor time"),
        ];
        serde_json::from_value(serde_json::json!({
            "machine": {"processors": 2, "kernel": "6"},
            "experiments": [{
                "title": title,
                "contenders": [{"name": "underpass"}, {"name": "underpass, sendfile only"},
                    {"name": "nginx"}, {"name": "lighttpd"}],
                "cases": [{"label": "1 KiB", "metrics": metrics}],
                "notes": ["not measured: h2o does not start"],
            }],
        }))
        .expect("a result")
    }

    fn sample_page(documents: usize) -> String {
        let table = PeerTable::read().expect("a table");
        let titles = (0..documents).map(|number| format!("Files {number}"));
        let results: Vec<_> = titles
            .map(|title| (&table.documents[0], sample(&title)))
            .collect();
        let run = RunRecord {
            commit: "abc1234".into(),
            date: "2026-01-31".into(),
            minutes: 70,
            versions: BTreeMap::from([("nginx".into(), "nginx/1.22.1".into())]),
            left_out: vec!["h2o: not there".into()],
        };
        page(&run, &table, &results)
    }

    #[test]
    fn the_page_names_build_versions_and_those_left_out_and_puts_losses_first() {
        let page = sample_page(1);
        for part in [
            "One run of 70 minutes on 2026-01-31, of the build of commit abc1234.",
            "Left out: h2o: not there.",
            "## nginx (nginx/1.22.1)\nOf 1 cases Underpass is better in 0, worse in 1,",
            "| Files 0: 1 KiB | nginx | response time | 0.50 (0.50–0.50) | × 0.50 |",
            "| Files 0: 1 KiB | lighttpd | response time | 2.00 (2.00–2.00) | × 2.00 |",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(
            !page.contains("sendfile only"),
            "our own variants are no peers"
        );
    }

    #[test]
    fn a_program_is_beside_our_program_and_not_beside_our_worker() {
        let figures = [1.0, 4.0, 8.0].map(|scale| {
            let rounds = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0].map(|round| round * scale);
            serde_json::json!({ "rounds": rounds })
        });
        let result: BenchResult = serde_json::from_value(serde_json::json!({
            "machine": {},
            "experiments": [{
                "title": "A file copied",
                "contenders": [{"name": "underpass"}, {"name": "underpass cp"}, {"name": "GNU cp"}],
                "cases": [{"label": "1 MiB", "metrics": [{"metric": "wall", "label": "time",
                    "better": "lower", "figures": figures}]}],
                "notes": [],
            }],
        }))
        .expect("a result");
        let table = PeerTable::read().expect("a table");
        let results = [(&table.documents[0], result)];
        let page = page(&RunRecord::default(), &table, &results);
        let row = "| A file copied: 1 MiB | GNU cp | time | 2.00 (2.00–2.00) | – |";
        assert!(
            page.contains(row) && !page.contains("## underpass"),
            "{page}"
        );
    }

    #[test]
    fn the_page_stays_short_however_much_was_measured() {
        let page = sample_page(12);
        assert!(page.lines().count() < 60, "{page}");
        assert_eq!(page.matches("| nginx |").count(), ROWS_MAX);
    }

    #[test]
    fn a_small_ratio_keeps_a_digit() {
        let ratios = [22.934, 1.2, 0.1, 0.0654, 0.000_32].map(digits);
        assert_eq!(ratios, ["22.93", "1.20", "0.10", "0.07", "0.0003"]);
    }
}
