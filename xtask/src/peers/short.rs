//! Where the first contender is ahead, where behind: lists made of the comparisons of a result.

use std::fmt::Write as _;

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
    better: Option<BetterWhen>,
    comparisons: Vec<Option<RatioToPeer>>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum BetterWhen {
    Lower,
    Higher,
}

/// The first contender's figure divided by another's.
#[derive(Clone, Copy, Deserialize)]
struct RatioToPeer {
    verdict: PeerVerdict,
    ratio: f64,
    low: f64,
    high: f64,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum PeerVerdict {
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

impl BenchResult {
    /// Of each experiment, whom the first contender beats, who beats it, and whom it can't be told
    /// from.
    pub(super) fn in_short(&self, table: &PeerTable) -> String {
        let experiments = self.experiments.iter();
        experiments
            .map(|experiment| experiment.in_short(table))
            .collect()
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
        let mut text = format!("\n### {}\n", self.title);
        let lines = |standing| -> String {
            let lines = self
                .cases
                .iter()
                .filter_map(|case| case.line(self, standing, table));
            lines.collect()
        };
        let told = [
            (lines(Standing::Ahead), "better than"),
            (lines(Standing::Behind), "worse than"),
            (lines(Standing::Level), "not to be told from"),
        ];
        if told.iter().any(|(lines, _)| !lines.is_empty()) {
            for (lines, relation) in &told {
                let lines = if lines.is_empty() {
                    "- nobody\n"
                } else {
                    lines
                };
                let _ = write!(text, "\n**{first} is {relation}**\n\n{lines}");
            }
        }
        let unknown = |case: &CaseResult| case.peers(self, Standing::Unknown, table).len();
        match self.cases.iter().map(unknown).sum() {
            0 => {}
            unknown => {
                let _ = writeln!(text, "\n{unknown} comparisons had too few rounds to tell.");
            }
        }
        text
    }
}

/// Hundredths, and for what is smaller one digit that is not 0.
fn ratio(value: f64) -> String {
    let zeros = (-value.max(1e-9).log10()).floor().max(0.0) as usize;
    format!("{value:.*}", (zeros + 1).max(2))
}

impl CaseResult {
    /// `- CASE, METRIC: PEER RATIO (LOW–HIGH), …`, the clearest first; none without such peers.
    fn line(
        &self,
        experiment: &ExperimentResult,
        standing: Standing,
        table: &PeerTable,
    ) -> Option<String> {
        let told = |(name, comparison): &(&str, RatioToPeer)| match standing {
            Standing::Level => (*name).to_owned(),
            _ => {
                let (low, high) = (ratio(comparison.low), ratio(comparison.high));
                format!("{name} {} ({low}–{high})", ratio(comparison.ratio))
            }
        };
        let peers = self.peers(experiment, standing, table);
        let peers: Vec<String> = peers.iter().map(told).collect();
        let case = match &*self.label {
            "" => &self.load,
            label => label,
        };
        let metric = &self.metric()?.label;
        (!peers.is_empty()).then(|| format!("- {case}, {metric}: {}\n", peers.join(", ")))
    }

    fn metric(&self) -> Option<&MetricResult> {
        self.metrics.iter().find(|metric| metric.better.is_some())
    }

    /// Those of the table that stand so: our own mover held to one mechanism is nobody's choice.
    fn peers<'e>(
        &self,
        experiment: &'e ExperimentResult,
        standing: Standing,
        table: &PeerTable,
    ) -> Vec<(&'e str, RatioToPeer)> {
        let Some((metric, better)) = self.metric().and_then(|m| Some((m, m.better?))) else {
            return Vec::new();
        };
        let names = experiment.contenders.iter().map(|one| one.name.as_str());
        let compared = names.zip(metric.comparisons.iter().copied());
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
    fn standing(&self, better: BetterWhen) -> Standing {
        match self.verdict {
            PeerVerdict::TooFewRounds => Standing::Unknown,
            PeerVerdict::NotDistinguishable => Standing::Level,
            PeerVerdict::Different if (self.ratio < 1.0) == (better == BetterWhen::Lower) => {
                Standing::Ahead
            }
            PeerVerdict::Different => Standing::Behind,
        }
    }

    /// How far from 1, either way.
    fn clearness(self) -> f64 {
        self.ratio.ln().abs()
    }
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
    fn wins_and_losses_are_told_alike() {
        let document: BenchResult = serde_json::from_str(DOCUMENT).expect("a document");
        let expected = "\n### Files over HTTP\n\
            \n**underpass is better than**\n\n\
            - 1 KiB, CPU time: caddy 0.40 (0.30–0.50), h2o 0.80 (0.70–0.90)\n\
            \n**underpass is worse than**\n\n\
            - 1 KiB, CPU time: nginx 1.25 (1.10–1.40)\n\
            \n**underpass is not to be told from**\n\n\
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
    fn without_a_comparison_that_tells_there_are_no_lists() {
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
