use std::collections::BTreeSet;

use super::*;
use crate::document::RunOutcome;
use crate::render::tests::sample::{self, Chance};

/// Multiplies one contender's figures of one metric, in all cases of an experiment.
fn rig(document: &mut Document, experiment: usize, place: usize, name: &str, factor: f64) {
    for case in &mut document.experiments[experiment].cases {
        for measured in case.metrics.iter_mut().filter(|one| one.metric == name) {
            let figures = measured.figures[place].as_mut().unwrap();
            figures.rounds.iter_mut().for_each(|round| *round *= factor);
            figures.spread = Spread::of(&figures.rounds).unwrap();
        }
    }
}

fn subjects(changes: &[Change]) -> BTreeSet<(String, String, String)> {
    let subject = |one: &Change| {
        (
            one.variant.clone(),
            one.contender.clone(),
            one.metric.clone(),
        )
    };
    changes.iter().map(subject).collect()
}

#[test]
fn a_contender_that_takes_half_as_long_again_is_named_and_nobody_else() {
    let before = sample::run(1, 0.03, 7);
    let mut after = sample::run(2, 0.03, 7);
    rig(&mut after, 0, 3, "cpu_per_gib", 1.5);
    let changes = compare(&before, &after);
    assert!(changes.is_worse() && changes.better.is_empty());
    let named = (
        "receiver discards".into(),
        "read+write 64 KiB".into(),
        "cpu_per_gib".into(),
    );
    assert_eq!(subjects(&changes.worse), BTreeSet::from([named]));
    assert_eq!(changes.worse.len(), 8, "every case of it");
    assert!(
        changes
            .worse
            .iter()
            .all(|one| (1.3..1.7).contains(&one.factor))
    );
}

#[test]
fn a_small_change_is_found_where_the_spread_is_smaller() {
    let before = sample::run(1, 0.01, 7);
    let mut after = sample::run(2, 0.01, 7);
    rig(&mut after, 4, 0, "requests", 1.15);
    rig(&mut after, 4, 1, "peak_resident", 1.15);
    let changes = compare(&before, &after);
    let better = BTreeSet::from([("".into(), "underpass".into(), "requests".into())]);
    let worse = BTreeSet::from([("".into(), "nginx".into(), "peak_resident".into())]);
    assert_eq!(
        (subjects(&changes.better), subjects(&changes.worse)),
        (better, worse)
    );
}

#[test]
fn what_is_swallowed_by_the_spread_is_no_change() {
    let before = sample::run(1, 0.1, 7);
    let mut after = sample::run(2, 0.1, 7);
    rig(&mut after, 0, 3, "cpu_per_gib", 1.1);
    let changes = compare(&before, &after);
    assert!(!changes.is_worse() && changes.better.is_empty());
    assert!(changes.unchanged > 400);
}

#[test]
fn two_rounds_never_report() {
    let before = sample::run(1, 0.01, 2);
    let mut after = sample::run(2, 0.01, 2);
    rig(&mut after, 0, 3, "cpu_per_gib", 3.0);
    let changes = compare(&before, &after);
    assert!(!changes.is_worse() && changes.unchanged == 0 && changes.too_few_rounds > 400);
}

/// 10 contenders, 20 cases of one metric; each figure has its own spread, 1 to 20 %.
fn noisy(chance: &mut Chance, spreads: &[f64], rounds: usize) -> Document {
    let mut document = sample::empty();
    let mut experiment = sample::experiment("socket", "", "From a file to a socket", rounds);
    experiment.contenders = (0..10)
        .map(|place| sample::contender(&format!("c{place}")))
        .collect();
    for (index, spreads) in spreads.chunks(10).enumerate() {
        let mut case = sample::case(&format!("{index}"), index as f64, "");
        let figures = spreads
            .iter()
            .map(|&spread| Some(chance.rounds(1.0, spread, rounds)));
        case.metrics = vec![sample::measured(
            ("wall", "elapsed time"),
            (Unit::Seconds, Some(Better::Lower)),
            figures.collect(),
        )];
        experiment.cases.push(case);
    }
    document.experiments = vec![experiment];
    document
}

#[test]
fn equal_runs_report_nothing_in_more_than_199_of_200_pairs() {
    let mut chance = Chance(42);
    for rounds in [3, 4, 5, 7] {
        let mut alarms = 0;
        for _ in 0..500 {
            let spreads: Vec<f64> = (0..200).map(|_| 0.01 + 0.19 * chance.share()).collect();
            let before = noisy(&mut chance, &spreads, rounds);
            let after = noisy(&mut chance, &spreads, rounds);
            let changes = compare(&before, &after);
            assert_eq!(changes.judged(), 200);
            alarms += usize::from(!changes.worse.is_empty() || !changes.better.is_empty());
        }
        assert!(alarms <= 2, "{alarms} of 500 pairs with {rounds} rounds");
    }
}

#[test]
fn metrics_without_a_better_way_and_zeros_are_not_judged() {
    let before = sample::run(1, 0.01, 7);
    let mut after = sample::run(2, 0.01, 7);
    rig(&mut after, 0, 3, "context_switches", 3.0);
    rig(&mut after, 2, 0, "user", 0.0);
    let changes = compare(&before, &after);
    assert!(!changes.is_worse() && changes.better.is_empty());
    assert_eq!(changes.not_judged, 2 * 8 * 10 * 2 + 1);
}

/// With its variant.
const TREE: &str = "tree (on ext4, -j 1)";

#[test]
fn what_only_one_run_has_is_listed_by_its_largest_part() {
    let before = sample::run(1, 0.01, 7);
    let mut after = sample::run(2, 0.01, 7);
    after.outcome = RunOutcome::Interrupted;
    after.experiments.truncate(5);
    after.experiments[0].cases.truncate(6);
    after.experiments[2].contenders[1].name = "another cp".into();
    let changes = compare(&before, &after);
    let lost = ["700 MB", "1 GB"].map(|size| format!("socket (receiver discards): case {size}"));
    let lost = lost
        .into_iter()
        .chain(["copy (on ext4): contender cp".into()]);
    let lost = lost.chain(["small", "cold", "many", TREE].map(|name| format!("experiment {name}")));
    assert_eq!(changes.only_before, lost.collect::<Vec<_>>());
    assert_eq!(changes.only_after, ["copy (on ext4): contender another cp"]);
    assert!(changes.doubts[0].contains("the later run was interrupted"));
    assert!(!changes.is_worse() && changes.unchanged > 100);
}

#[test]
fn other_machines_and_versions_are_doubts_but_our_own_version_is_not() {
    let before = sample::run(1, 0.01, 7);
    let mut after = sample::run(1, 0.01, 7);
    after.machine.kernel = "6.6.1".into();
    after.machine.congestion_control = "bbr".into();
    after.experiments[4].contenders[0].version = "underpass 9".into();
    after.experiments[4].contenders[1].version = "nginx 9".into();
    assert_eq!(
        compare(&before, &after).doubts,
        [
            "kernel: 6.1.0-18-amd64 before, 6.6.1 after",
            "TCP congestion control: cubic before, bbr after",
            "version of nginx: nginx 1.2.3 before, nginx 9 after",
        ]
    );
}

#[test]
fn people_see_who_changed_by_how_much_and_from_what_to_what() {
    let mut before = sample::run(1, 0.0, 7);
    before.experiments.drain(..4);
    let mut after = before.clone();
    rig(&mut after, 0, 1, "cpu_share", 1.5);
    let changes = compare(&before, &after);
    let text = changes.text(80);
    let worse = "\nWorse\n  ×1.50  nginx: processor share, http, 1 MiB: 51.0 % (51.0–51.0) \
                 → 76.5 %\n  (76.5–76.5)\n";
    assert!(text.ends_with(worse), "{text}");
    assert!(text.contains(" 1 got worse, 0 got better, "), "{text}");
    let json = serde_json::to_value(&changes).unwrap();
    assert_eq!(json["worse"][0]["contender"], "nginx");
}

#[test]
fn a_warning_with_other_numbers_is_the_same_warning() {
    let noisy = |percent| format!("the machine was noisy: up to {percent} % more or less");
    let mut before = sample::run(1, 0.01, 7);
    let mut after = before.clone();
    before.warnings = vec![noisy("17.5")];
    after.warnings = vec![noisy("9"), "there is only one processor".into()];
    let doubts = compare(&before, &after).doubts;
    assert_eq!(
        doubts,
        ["only the later run warned: there is only one processor"]
    );
}
