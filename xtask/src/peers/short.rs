//! Where the first contender is ahead, where behind: lists made of the comparisons of a result.

use serde::Deserialize;

use super::table::PeerTable;

/// What of a result of `underpass bench` is needed here; docs/bench-format.md describes it.
#[derive(Deserialize)]
pub(super) struct BenchResult {
    experiments: Vec<ExperimentResult>,
}

#[derive(Deserialize)]
struct ExperimentResult {
    title: String,
    contenders: Vec<ContenderName>,
    cases: Vec<CaseResult>,
}

#[derive(Deserialize)]
struct ContenderName {
    name: String,
}

#[derive(Deserialize)]
struct CaseResult {
    label: String,
    load: String,
    metrics: Vec<MetricResult>,
}

#[derive(Deserialize)]
struct MetricResult {
    label: String,
    /// `lower` or `higher`, where one of them is better.
    better: Option<String>,
    comparisons: Vec<Option<RatioToPeer>>,
}

/// The first contender's figure divided by another's.
#[derive(Deserialize)]
struct RatioToPeer {
    verdict: String,
    ratio: f64,
    low: f64,
    high: f64,
}

/// What may be said of the first contender beside another.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    Ahead,
    Behind,
    Level,
    Unknown,
}

const RELATIONS: [(Standing, &str); 3] = [
    (Standing::Ahead, "better than"),
    (Standing::Behind, "worse than"),
    (Standing::Level, "not distinguishable from"),
];

impl BenchResult {
    /// Of each experiment, the peers that the first contender beats, those that beat it, and those
    /// that are as good.
    pub(super) fn in_short(&self, table: &PeerTable) -> String {
        let experiments = self.experiments.iter();
        experiments.map(|it| it.in_short(table)).collect()
    }
}

impl ExperimentResult {
    fn in_short(&self, table: &PeerTable) -> String {
        let first = self.contenders.first().map_or("", |first| &first.name);
        // Where no plan is made, ours are named after what they are held to.
        let first = match first {
            whole if whole.starts_with("underpass") => whole.to_owned(),
            mechanism => format!("underpass by {mechanism}"),
        };
        let lists = RELATIONS.map(|(standing, relation)| {
            let cases = self.cases.iter();
            let lines = cases.filter_map(|case| case.line(self, standing, table));
            (relation, lines.collect::<String>())
        });
        let mut text = format!("\n### {}\n", self.title);
        if lists.iter().any(|(_, lines)| !lines.is_empty()) {
            for (relation, lines) in &lists {
                let lines = if lines.is_empty() {
                    "- nobody\n"
                } else {
                    lines
                };
                text += &format!("\n**{first} is {relation}**\n\n{lines}");
            }
        }
        let unknown = |case: &CaseResult| case.peers(self, Standing::Unknown, table).len();
        match self.cases.iter().map(unknown).sum() {
            0 => text,
            unknown => text + &format!("\n{unknown} comparisons had too few rounds to tell.\n"),
        }
    }
}

impl CaseResult {
    /// `- CASE, METRIC: PEER RATIO (LOW–HIGH), …`, the clearest first; none without such peers.
    fn line(
        &self,
        experiment: &ExperimentResult,
        standing: Standing,
        table: &PeerTable,
    ) -> Option<String> {
        let described = |(name, found): &(&str, &RatioToPeer)| match standing {
            Standing::Level => (*name).to_owned(),
            _ => {
                let [ratio, low, high] = [found.ratio, found.low, found.high].map(ratio);
                format!("{name} {ratio} ({low}–{high})")
            }
        };
        let peers = self.peers(experiment, standing, table);
        let peers: Vec<_> = peers.iter().map(described).collect();
        let case = if self.label.is_empty() {
            &self.load
        } else {
            &self.label
        };
        let (metric, _) = self.metric()?;
        (!peers.is_empty()).then(|| format!("- {case}, {}: {}\n", metric.label, peers.join(", ")))
    }

    /// The first metric of which one can say what is better, and that.
    fn metric(&self) -> Option<(&MetricResult, &str)> {
        let mut metrics = self.metrics.iter();
        metrics.find_map(|metric| Some((metric, metric.better.as_deref()?)))
    }

    /// The peers of the table with this standing. Our own mover with one mechanism is no peer.
    fn peers<'e>(
        &'e self,
        experiment: &'e ExperimentResult,
        standing: Standing,
        table: &PeerTable,
    ) -> Vec<(&'e str, &'e RatioToPeer)> {
        let Some((metric, better)) = self.metric() else {
            return Vec::new();
        };
        let names = experiment.contenders.iter().map(|one| one.name.as_str());
        let compared = names.zip(metric.comparisons.iter().map(Option::as_ref));
        let mut peers: Vec<_> = compared
            .filter_map(|(name, comparison)| Some((name, comparison?)))
            .filter(|(name, comparison)| {
                comparison.standing(better) == standing
                    && table.peers().any(|(_, peer)| peer.name == *name)
            })
            .collect();
        peers.sort_by(|(_, a), (_, b)| b.clearness().total_cmp(&a.clearness()));
        peers
    }
}

impl RatioToPeer {
    fn standing(&self, better: &str) -> Standing {
        match &*self.verdict {
            "too_few_rounds" => Standing::Unknown,
            "not_distinguishable" => Standing::Level,
            _ if (self.ratio < 1.0) == (better == "lower") => Standing::Ahead,
            _ => Standing::Behind,
        }
    }

    /// How far from 1, either way.
    fn clearness(&self) -> f64 {
        self.ratio.ln().abs()
    }
}

/// Hundredths, and for what is smaller one digit that is not 0.
fn ratio(value: f64) -> String {
    let zeros = (-value.max(1e-9).log10()).floor().max(0.0) as usize;
    format!("{value:.*}", (zeros + 1).max(2))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_small_ratio_keeps_a_digit() {
        let ratios = [22.934, 1.2, 0.1, 0.0654, 0.000_32].map(super::ratio);
        assert_eq!(ratios, ["22.93", "1.20", "0.10", "0.07", "0.0003"]);
    }

    use super::*;

    fn table() -> PeerTable {
        PeerTable::read().expect("a table")
    }

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
    fn wins_and_losses_are_listed_alike() {
        let document: BenchResult = serde_json::from_str(DOCUMENT).expect("a document");
        let expected = "\n### Files over HTTP\n\
            \n**underpass is better than**\n\n\
            - 1 KiB, CPU time: caddy 0.40 (0.30–0.50), h2o 0.80 (0.70–0.90)\n\
            \n**underpass is worse than**\n\n\
            - 1 KiB, CPU time: nginx 1.25 (1.10–1.40)\n\
            \n**underpass is not distinguishable from**\n\n\
            - 1 KiB, CPU time: dufs\n";
        assert_eq!(document.in_short(&table()), expected);
    }

    #[test]
    fn more_is_better_where_it_says_so() {
        let text = DOCUMENT.replace("\"lower\"", "\"higher\"");
        let document: BenchResult = serde_json::from_str(&text).expect("a document");
        let short = document.in_short(&table());
        let (_, worse) = short.split_once("worse than").expect("a heading");
        assert!(worse.contains("caddy 0.40"), "{short}");
    }

    #[test]
    fn without_a_comparison_of_enough_rounds_there_are_no_lists() {
        let text = DOCUMENT
            .replace("\"different\"", "\"too_few_rounds\"")
            .replace("\"not_distinguishable\"", "\"too_few_rounds\"");
        let document: BenchResult = serde_json::from_str(&text).expect("a document");
        let expected = "\n### Files over HTTP\n\n4 comparisons had too few rounds to tell.\n";
        assert_eq!(document.in_short(&table()), expected);
    }

    #[test]
    fn too_few_rounds_say_nothing() {
        let text = DOCUMENT.replace("\"different\"", "\"too_few_rounds\"");
        let document: BenchResult = serde_json::from_str(&text).expect("a document");
        let short = document.in_short(&table());
        assert!(short.contains("worse than**\n\n- nobody\n"), "{short}");
        assert!(short.ends_with("\n3 comparisons had too few rounds to tell.\n"));
    }
}
