//! A mechanism that was made slow shows up in `bench compare`, and nothing else does: played by
//! strace.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{BINARY, WAITS, list, read, spawn_into};
use serde_json::Value;
use underpass_testkit::{ExitReport, run, strace};

const RUN: [&str; 5] = ["socket", "--sizes", "4MB", "--receiver", "discard"];

/// A run in which each sendfile takes two hundred milliseconds longer, or none does.
fn measure(folder: &Path, name: &str, rounds: &str, delay: Option<&str>) -> PathBuf {
    let json = folder.join(name);
    let mut command = match delay {
        None => Command::new(BINARY),
        Some(delay) => {
            let inject = format!("inject={delay}");
            let mut strace = strace(Path::new("/dev/null"), &["trace=sendfile", &inject]);
            strace.arg(BINARY);
            strace
        }
    };
    let arguments = [&RUN[..], &["--rounds", rounds]].concat();
    let bench = spawn_into(&mut command, &arguments, &json);
    bench.end_within(WAITS).assert_success();
    json
}

fn compare(before: &Path, after: &Path) -> (ExitReport, Value) {
    let changes = after.with_extension("changes");
    let mut compare = Command::new(BINARY);
    compare.arg("compare").args([before, after]);
    let report = run(compare.arg("--json").arg(&changes));
    (report, read(&changes))
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_slowed_mechanism_is_caught_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = measure(folder.path(), "before.json", "6", None);
    let after = measure(
        folder.path(),
        "after.json",
        "6",
        Some("sendfile:delay_exit=200000"),
    );
    let (output, changes) = compare(&before, &after);
    assert_eq!(output.code, Some(1), "{output:?}");
    let worse = list(&changes, "worse");
    // The largest change comes first.
    assert_eq!(worse[0]["contender"], "sendfile", "{output:?}");
    let has_slowed = |metric: &str| {
        let mut worse = worse.iter();
        worse.any(|change| change["contender"] == "sendfile" && change["metric"] == metric)
    };
    assert!(
        has_slowed("wall") && has_slowed("throughput"),
        "{changes:#}"
    );
}

/// Two runs under the same conditions, made of the rounds of one: of every four in the order of
/// their figures one half has the outer ones, the other the inner ones. What a busy machine did to
/// some of them is thus in both.
fn halves(document: &Value) -> [Value; 2] {
    [0, 1].map(|parity| {
        let mut half = document.clone();
        each_figures(&mut half, &mut |figures| {
            let rounds = figures["rounds"].as_array().expect("rounds").iter();
            let mut rounds: Vec<f64> = rounds.filter_map(Value::as_f64).collect();
            rounds.sort_by(f64::total_cmp);
            let half = rounds.iter().enumerate();
            let half = half.filter(|(index, _)| (index % 4).div_ceil(2) % 2 == parity);
            let rounds: Vec<f64> = half.map(|(_, round)| *round).collect();
            figures["rounds"] = rounds.clone().into();
            figures["spread"]["median"] = rounds[rounds.len() / 2].into();
            figures["spread"]["min"] = rounds[0].into();
            figures["spread"]["max"] = rounds[rounds.len() - 1].into();
        });
        half
    })
}

fn each_figures(value: &mut Value, change: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(object) if object.contains_key("rounds") && object.contains_key("spread") => {
            change(value);
        }
        Value::Object(object) => object.values_mut().for_each(|v| each_figures(v, change)),
        Value::Array(array) => array.iter_mut().for_each(|v| each_figures(v, change)),
        _ => {}
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn equal_runs_are_called_equal() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = read(&measure(folder.path(), "whole.json", "10", None));
    let paths = ["one.json", "other.json"].map(|name| folder.path().join(name));
    for (path, half) in paths.iter().zip(halves(&document)) {
        std::fs::write(path, half.to_string()).expect("a file");
    }
    let (output, changes) = compare(&paths[0], &paths[1]);
    output.assert_success();
    let changed = (
        list(&changes, "worse").len(),
        list(&changes, "better").len(),
    );
    assert_eq!(changed, (0, 0));
    assert!(changes["unchanged"].as_u64() > Some(20), "{changes:#}");
}
