//! Runs `underpass-bench` and reads its result.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use underpass_testkit::{ChildProcess, ExitReport};

/// The limit for a run, in multiples of one wait.
pub(crate) const WAITS: u32 = 5;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_underpass-bench");

/// The program `underpass`, which a build of the workspace puts next to this one.
pub(crate) fn underpass() -> String {
    let path = Path::new(BINARY).with_file_name("underpass");
    assert!(path.is_file(), "no {}; build the workspace", path.display());
    path.display().to_string()
}

/// Runs an experiment, and reads its result.
pub(crate) fn bench(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("result.json");
    let bench = spawn_into(&mut Command::new(BINARY), arguments, &json);
    bench.end_within(WAITS).assert_success();
    read(&json)
}

/// Runs an experiment that leaves these contenders out, checks its exit code and its last line, and
/// reads its result.
pub(crate) fn bench_without(left_out: &str, arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("result.json");
    let bench = spawn_into(&mut Command::new(BINARY), arguments, &json);
    assert_left_out(&bench.end_within(WAITS), left_out);
    read(&json)
}

pub(crate) fn assert_left_out(ended: &ExitReport, names: &str) {
    let line = format!("underpass-bench: left out, see the notes: {names}\n");
    assert_eq!((ended.code, &*ended.errors), (Some(3), &*line), "{ended:?}");
}

/// Starts a command that becomes `underpass-bench`, which writes to `json` and works in its folder.
pub(crate) fn spawn_into(command: &mut Command, arguments: &[&str], json: &Path) -> ChildProcess {
    let folder = json.parent().expect("a folder");
    command
        .args(arguments)
        .args(["--patience", "0", "--scratch"])
        .arg(folder)
        .arg("--json")
        .arg(json);
    ChildProcess::spawn(command)
}

pub(crate) fn read(json: &Path) -> Value {
    let text = std::fs::read(json).expect("a result");
    serde_json::from_slice(&text).expect("a document")
}

pub(crate) fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    let list = value[name].as_array();
    list.unwrap_or_else(|| panic!("no list {name} in {value:#}"))
}

pub(crate) fn names(experiment: &Value) -> Vec<&str> {
    let contenders = list(experiment, "contenders").iter();
    contenders
        .map(|c| c["name"].as_str().expect("a name"))
        .collect()
}

/// The figures of all contenders by a metric of a case.
pub(crate) fn metric<'v>(case: &'v Value, name: &str) -> &'v Value {
    let metrics = list(case, "metrics").iter();
    let mut found = metrics.filter(|metric| metric["metric"] == name);
    found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {case:#}"))
}
