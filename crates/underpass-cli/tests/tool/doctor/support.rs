//! Runs `underpass doctor` and reads its report.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use underpass_testkit::{ExitReport, run};

use crate::support::BINARY;

pub(crate) const MECHANISMS: [&str; 5] =
    ["clone", "copy_range", "sendfile", "splice", "read_write"];

/// Runs it with text output.
pub(crate) fn doctor(paths: &[&Path]) -> ExitReport {
    run(Command::new(BINARY).arg("doctor").args(paths))
}

/// Runs it with `--json`; returns the report and the exit code.
pub(crate) fn json(paths: &[&Path]) -> (Value, i32) {
    json_of(Command::new(BINARY).args(["doctor", "--json"]).args(paths))
}

/// Runs a custom command; returns the report and the exit code.
pub(crate) fn json_of(command: &mut Command) -> (Value, i32) {
    let done = run(command);
    let report = serde_json::from_str(&done.output);
    let report = report.unwrap_or_else(|error| panic!("{error}: {done:?}"));
    (report, done.code.expect("it ended by itself"))
}

pub(crate) fn paths(report: &Value) -> &[Value] {
    report["paths"].as_array().expect("paths")
}

pub(crate) fn pairs(report: &Value) -> &[Value] {
    report["pairs"].as_array().expect("pairs")
}

/// Returns the row with a label such as `A → TCP`.
pub(crate) fn pair<'a>(report: &'a Value, label: &str) -> &'a Value {
    let (source, sink) = label.split_once(" → ").expect("two ends");
    let row = pairs(report)
        .iter()
        .find(|row| row["source"] == source && row["sink"] == sink);
    row.unwrap_or_else(|| panic!("no {label} in {report:#}"))
}
