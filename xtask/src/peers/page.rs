//! docs/measurements.md: one table for each peer, and the full tables in a file for each document.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde::{Deserialize, Serialize};
use underpass_bench::document::{Document, RunOutcome};

use super::arguments::PeersArguments;
use super::installation::Installation;
use super::standing::{self, Standing, StandingVerdict};
use super::table::{PeerDocument, PeerProgram, PeerTable};
use crate::workspace::Fallible;

const PAGES: &str = "docs";
const HEAD: &str = include_str!("head.md");
/// The page of brokers, which has a separate run.
pub(super) const LOG_PAGE: &str = "log.md";
/// The maximum length of the page.
const LINES_MAX: usize = 150;
/// Rows for the worst cases of a peer; the full tables have all cases.
const ROWS_MAX: usize = 5;
/// The title for the programs in `peers/`, which share a table.
const OWN_PROGRAMS: &str = "Programs in C, Go, Java and Python";

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

/// Writes the pages from the results of the last run. A quick run's pages stay next to its results.
pub(super) fn write(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<()> {
    let root = &installation.workspace.root;
    let record = fs::read_to_string(root.join(arguments.result("run.json")));
    let record = record.map_err(|error| format!("there is no run to write of: {error}"))?;
    let mut run: RunRecord = serde_json::from_str(&record)?;
    let (mut results, mut pages) = (Vec::new(), Vec::new());
    for document in table.documents.iter().filter(|one| !one.is_apart) {
        let title = &document.title;
        let json = root.join(arguments.result(&format!("{}.json", document.name)));
        match Document::read(&json) {
            Ok(result) => {
                let is_cut = result.outcome == RunOutcome::Interrupted;
                let cut = is_cut.then_some("interrupted: the rest is not measured");
                let notes = standing::left_out(&result).into_iter().chain(cut);
                run.left_out
                    .extend(notes.map(|note| format!("{title}: {note}")));
                let (line, text) = (run.line(), result.markdown());
                let page = format!("# {title}\n\n{line} {ALONE}\n\n{text}");
                pages.push((format!("measurements/{}.md", document.name), page));
                results.push((document, result));
            }
            // The record says that it was left out, with the reason.
            Err(_) if run.left_out.iter().any(|one| one.starts_with(title)) => {}
            Err(_) if !json.exists() => run.left_out.push(format!("{title}: not measured")),
            Err(error) => run.left_out.push(format!("{title}: {error}")),
        }
    }
    let page = page(&run, table, &results);
    pages.push(("measurements.md".into(), page));
    let folder = match arguments.quick {
        true => arguments.result(""),
        false => PAGES.into(),
    };
    // Old files are removed only once all new ones can be written.
    let tables = root.join(&folder).join("measurements");
    fs::create_dir_all(&tables)?;
    for entry in fs::read_dir(&tables)? {
        let path = entry?.path();
        if !path.ends_with(LOG_PAGE) {
            fs::remove_file(path)?;
        }
    }
    for (name, text) in pages {
        fs::write(root.join(&folder).join(name), text)?;
    }
    println!("\n{}", folder.join("measurements.md").display());
    Ok(())
}

const ALONE: &str = "Each interval here holds by itself. [The page of all measurements]\
                     (../measurements.md) has those that hold together, which are wider.";

impl RunRecord {
    pub(super) fn line(&self) -> String {
        let (minutes, date, commit) = (self.minutes, &self.date, &self.commit);
        format!("One run of {minutes} minutes on {date}, of the build of commit {commit}.")
    }
}

type PeerResults<'t> = [(&'t PeerDocument, Document)];

/// Returns our standings compared with the peers of the table, in its order.
fn standings<'r>(
    table: &PeerTable,
    results: impl Iterator<Item = &'r (&'r PeerDocument, Document)>,
) -> Vec<Standing> {
    let is = |name: &str, is: &dyn Fn(&str, &PeerProgram) -> bool| {
        let mut peers = table.peers();
        peers.any(|(option, peer)| peer.name == name && is(option, peer))
    };
    let is_program = |name: &str| is(name, &|option, _| option == "--program");
    let is_peer = |one: &Standing| {
        is(&one.peer, &|_, peer| {
            peer.kit != "underpass" && !peer.is_bound
        })
    };
    let standings = results.flat_map(|(_, result)| standing::standings(result, is_program));
    standings.filter(is_peer).collect()
}

/// Writes the page with as many rows for each peer as there is room for.
fn page(run: &RunRecord, table: &PeerTable, results: &PeerResults<'_>) -> String {
    let mut pages = (1..=ROWS_MAX)
        .rev()
        .map(|rows| page_with(run, table, results, rows));
    let shortest = pages.find(|page| page.lines().count() <= LINES_MAX);
    shortest.unwrap_or_else(|| page_with(run, table, results, 1))
}

fn page_with(
    run: &RunRecord,
    table: &PeerTable,
    results: &PeerResults<'_>,
    rows_max: usize,
) -> String {
    let mut standings = standings(table, results.iter());
    standings.sort_by(|a, b| a.factor().total_cmp(&b.factor()));
    let comparisons = standings.len();
    // The rest of the description differs between documents.
    let machine = results.first().map(|(_, result)| result.machine.describe());
    let machine = machine.as_deref().and_then(|all| all.split(", TCP").next());
    let mut page = format!(
        "{HEAD}{} On a {}. {comparisons} comparisons.\n",
        run.line(),
        machine.unwrap_or("machine"),
    );
    if !run.left_out.is_empty() {
        page += &format!("\nLeft out:\n\n- {}\n", run.left_out.join("\n- "));
    }
    let mut of_kits = BTreeMap::<_, Vec<_>>::new();
    for standing in &standings {
        let kit = of_kits.entry(kit_of(table, &standing.peer));
        kit.or_default().push(standing);
    }
    let mut of_kits: Vec<_> = of_kits.into_iter().collect();
    of_kits.sort_by_key(|(_, own)| {
        let is_loss = |one: &&&Standing| one.verdict(comparisons) == StandingVerdict::Worse;
        std::cmp::Reverse(own.iter().filter(is_loss).count() * 1000 / own.len())
    });
    page += "\n| instead of | better | worse | no difference | above all for | not for |\n";
    page += "|---|---:|---:|---:|---|---|\n";
    for (kit, own) in &of_kits {
        page += &summary_row(kit, own, comparisons);
    }
    for (kit, own) in of_kits {
        let version = run
            .versions
            .get(kit)
            .map_or(String::new(), |line| format!(" ({line})"));
        let _ = write!(
            page,
            "\n## {kit}{version}\n\n{}",
            section(&own, comparisons, rows_max)
        );
    }
    let _ = writeln!(page, "\n## All tables\n");
    let links = results
        .iter()
        .map(|(document, _)| format!("[{}](measurements/{}.md)", document.title, document.name));
    page + &links.collect::<Vec<_>>().join(", ") + "\n"
}

/// Returns a row with the number of cases we win and lose against a kit, and the extreme ones.
fn summary_row(kit: &str, standings: &[&Standing], comparisons: usize) -> String {
    use StandingVerdict::{Better, Level, Worse};
    let of = |verdict| {
        let mut alike = standings.to_vec();
        alike.retain(|one| one.verdict(comparisons) == verdict);
        alike
    };
    let [worse, level, better] = [Worse, Level, Better].map(of);
    let named =
        |one: &&Standing| format!("{}, {}: {}", one.question, one.metric, digits(one.factor()));
    format!(
        "| {kit} | {} | {} | {} | {} | {} |\n",
        better.len(),
        worse.len(),
        level.len(),
        better.last().map_or("–".into(), named),
        worse.first().map_or("–".into(), named)
    )
}

/// Returns the name of the kit under which users know a peer.
fn kit_of<'t>(table: &'t PeerTable, peer: &str) -> &'t str {
    let mut peers = table.peers().filter(|(_, one)| one.name == peer);
    match peers.next() {
        Some((_, one)) if !one.command.contains("target/peers/") && !one.takes_jobs(table) => {
            &one.kit
        }
        _ => OWN_PROGRAMS,
    }
}

/// Returns a table of the worst of these cases, which are sorted.
fn section(standings: &[&Standing], comparisons: usize, rows_max: usize) -> String {
    // One row for each experiment and peer, with its worst case.
    let mut shown: Vec<&Standing> = Vec::new();
    for one in standings {
        let is_new =
            |known: &&Standing| (&known.experiment, &known.peer) != (&one.experiment, &one.peer);
        if shown.iter().all(is_new) && shown.len() < rows_max {
            shown.push(one);
        }
    }
    let mut text = "| the worst cases | beside | by | times as good | its processor time |\n\
                    |---|---|---|---:|---:|\n"
        .to_owned();
    for one in shown {
        let cpu = one.cpu.map(|cpu| format!("× {}", digits(cpu)));
        let (cpu, factor) = (cpu.as_deref().unwrap_or("–"), one.words(comparisons));
        let (peer, metric, question) = (&one.peer, &one.metric, &one.question);
        let _ = writeln!(
            text,
            "| {question} | {peer} | {metric} | {factor} | {cpu} |"
        );
    }
    text
}

impl Standing {
    /// Formats the factor with its interval; losses are in bold.
    fn words(&self, comparisons: usize) -> String {
        let (low, high) = self.interval(comparisons).unwrap_or_default();
        let [factor, low, high] = [self.factor(), low, high].map(digits);
        match self.verdict(comparisons) {
            StandingVerdict::Better => format!("{factor} ({low}–{high})"),
            StandingVerdict::Worse => format!("**{factor}** ({low}–{high})"),
            StandingVerdict::Unknown => "too few rounds".to_owned(),
            StandingVerdict::Level => "not distinguishable".to_owned(),
        }
    }
}

/// Formats hundredths, and smaller values with one nonzero digit.
pub(super) fn digits(value: f64) -> String {
    let zeros = (-value.max(1e-9).log10()).floor().max(0.0) as usize;
    format!("{value:.*}", (zeros + 1).max(2))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
                "figures": figures, "comparisons": [],
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
            "One run of 70 minutes on 2026-01-31, of the build of commit abc1234. On a virtual \
             machine with 2 processors (AMD), 1 GiB of memory, Linux 6.18. 2 comparisons.\n",
            "Left out:\n\n- h2o: not there\n",
            "|---|---|\n| nginx | 0 | 1 | 0 | – | Files 0: 1 KiB, response time: 0.50 |\n",
            "\n| lighttpd | 1 | 0 | 0 | Files 0: 1 KiB, response time: 2.00 | – |\n\n## nginx",
            "## nginx (nginx/1.22.1)\n\n| the worst cases",
            "| Files 0: 1 KiB | nginx | response time | **0.50** (0.50–0.50) | × 0.50 |",
            "| Files 0: 1 KiB | lighttpd | response time | 2.00 (2.00–2.00) | × 2.00 |",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(
            !page.contains("sendfile only"),
            "our own variants are no peers"
        );
        assert!(!page.contains("floor"), "nobody has to beat a bound");
    }

    #[test]
    fn a_program_is_beside_our_program_and_not_beside_our_worker() {
        let contenders = [("underpass", 1.0), ("underpass cp", 4.0), ("GNU cp", 8.0)];
        let result = document("A file copied", &contenders, &[("wall", "time")]);
        let table = PeerTable::read().expect("a table");
        let results = [(&table.documents[0], result)];
        let page = page(&RunRecord::default(), &table, &results);
        let row = "| A file copied: 1 KiB | GNU cp | time | 2.00 (2.00–2.00) | – |";
        assert!(
            page.contains(row) && !page.contains("## underpass"),
            "{page}"
        );
    }

    #[test]
    fn the_page_stays_short_however_much_was_measured() {
        let page = sample_page(12);
        assert!(page.lines().count() < 60, "{page}");
        assert_eq!(page.matches("KiB | nginx |").count(), ROWS_MAX);
    }

    #[test]
    fn the_page_has_room_for_every_peer() {
        let table = PeerTable::read().expect("a table");
        let names: BTreeSet<_> = table.peers().map(|(_, peer)| peer.name.as_str()).collect();
        let names = ["underpass"].into_iter().chain(names);
        let contenders: Vec<_> = names.map(|name| (name, 1.0)).collect();
        let of = |title: String| document(&title, &contenders, &[("wall", "time")]);
        let results = (0..9).map(|number| (&table.documents[0], of(format!("Files {number}"))));
        let run = RunRecord {
            left_out: vec!["h2o: not there".into(); 9],
            ..RunRecord::default()
        };
        let page = page(&run, &table, &results.collect::<Vec<_>>());
        assert!(page.lines().count() <= LINES_MAX, "{page}");
        assert!(
            page.contains("\n## xcp\n") && page.contains("\n## All tables"),
            "{page}"
        );
    }

    #[test]
    fn a_broken_result_is_named_and_the_pages_are_written_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().to_owned();
        let workspace = Workspace { root: root.clone() };
        let installation = Installation::open(&workspace).expect("an installation");
        let quick = root.join("target/peers/quick");
        fs::create_dir_all(&quick).expect("a folder");
        let run = RunRecord {
            commit: "abc1234".into(),
            left_out: vec!["Files of 1 to 100 KiB over HTTP: it broke".into()],
            ..RunRecord::default()
        };
        let run = serde_json::to_string(&run).expect("a record");
        fs::write(quick.join("run.json"), run).expect("a record");
        fs::write(quick.join("serve-large.json"), "{").expect("a result");
        sample("Files")
            .write(&quick.join("cold.json"))
            .expect("a result");
        let arguments = PeersArguments::quick();
        let table = PeerTable::read().expect("a table");
        write(&installation, &table, &arguments).expect("pages");
        let read = |name: &str| fs::read_to_string(quick.join(name)).expect("a page");
        let page = read("measurements.md");
        assert!(
            page.contains("is not a result of underpass bench (EOF while"),
            "{page}"
        );
        assert_eq!(
            page.matches("of 1 to 100 KiB over HTTP").count(),
            1,
            "{page}"
        );
    }

    #[test]
    fn a_small_ratio_keeps_a_digit() {
        let ratios = [22.934, 1.2, 0.1, 0.0654, 0.000_32].map(digits);
        assert_eq!(ratios, ["22.93", "1.20", "0.10", "0.07", "0.0003"]);
    }
}
