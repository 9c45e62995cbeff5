//! The steps that are calls of cargo, and the results of tests parsed from their output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

use super::report::TestReport;
use crate::needs::Lack;
use crate::workspace::{Fallible, Workspace};

pub(super) fn fmt(workspace: &Workspace, report: &mut TestReport) -> Fallible<()> {
    let mut cargo = workspace.cargo("fmt");
    cargo.args(["--all", "--", "--check"]);
    component(workspace, "fmt", "rustfmt", cargo, report)
}

pub(super) fn clippy(workspace: &Workspace, report: &mut TestReport) -> Fallible<()> {
    // After `--` the flag applies to our crates only, so that no dependency is rebuilt.
    let mut all = workspace.cargo_over_everything("clippy");
    all.args(["--all-targets", "--", "-D", "warnings"]);
    component(workspace, "clippy", "clippy", all, report)
}

/// Documents our crates, with warnings as errors.
pub(super) fn doc(workspace: &Workspace, report: &mut TestReport) -> Fallible<()> {
    let mut cargo = workspace.cargo_over_everything("doc");
    // The comments on the options of programs are their help, not Markdown.
    cargo.args(["--lib", "--no-deps", "--quiet"]);
    let status = cargo.env("RUSTDOCFLAGS", "-D warnings").status()?;
    report.step("doc", status.success());
    Ok(())
}

/// Runs a step that uses a component of the toolchain.
fn component(
    workspace: &Workspace,
    step: &str,
    name: &str,
    mut cargo: Command,
    report: &mut TestReport,
) -> Fallible<()> {
    let mut probe = workspace.cargo(step);
    let probe = probe
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if probe.status()?.success() {
        report.step(step, cargo.status()?.success());
    } else {
        let reason = format!("the toolchain lacks {name}; `rustup component add {name}`");
        report.not_run(step, 1, Lack::of(name, reason));
    }
    Ok(())
}

/// Compiles and runs the examples in the documentation of our crates.
pub(super) fn doc_tests(workspace: &Workspace, report: &mut TestReport) -> Fallible<()> {
    let mut cargo = workspace.cargo_over_everything("test");
    cargo.args(["--doc", "--no-fail-fast"]);
    run_tests("doc tests", cargo, report)
}

/// Runs a program with the output of Rust's test harness, and counts its results.
pub(super) fn run_tests(step: &str, mut program: Command, report: &mut TestReport) -> Fallible<()> {
    let mut child = program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut outcome = TestReport::default();
    if let Some(output) = child.stdout.take() {
        stream(output, io::stdout(), &mut outcome)?;
    }
    conclude(&mut outcome, step, child.wait()?);
    report.add(outcome);
    Ok(())
}

/// Copies the output line by line as it comes, and parses it.
fn stream(output: impl Read, mut terminal: impl Write, outcome: &mut TestReport) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        terminal.write_all(&line)?;
        terminal.flush()?;
        read_results(&String::from_utf8_lossy(&line), outcome);
        line.clear();
    }
    Ok(())
}

/// Counts a line of the test harness.
pub(super) fn read_results(line: &str, outcome: &mut TestReport) {
    if let Some((passed, failed)) = totals(line) {
        outcome.passed += passed;
        outcome.failed += failed;
    } else if let Some(name) = failure(line) {
        outcome.failures.push(name.to_owned());
    }
}

/// Records a failure even if no test failed: a test may have ended the process, or the crate of a
/// documentation test may not have compiled.
pub(super) fn conclude(outcome: &mut TestReport, step: &str, status: ExitStatus) {
    if !status.success() && outcome.is_good() {
        outcome.fail(format!(
            "{step}: {status}, before its tests could be counted"
        ));
    }
}

/// Parses passed and failed tests from `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured;
/// …`. Ignored tests are counted in the step `tests`, where they are run or reported as not run.
fn totals(line: &str) -> Option<(u64, u64)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        let mut counts = counts.split("; ");
        counts.find_map(|count| count.strip_suffix(word)?.trim_end().parse().ok())
    };
    Some((count("passed")?, count("failed")?))
}

/// Parses the name in `test some::name ... FAILED`.
fn failure(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?
        .trim_end()
        .strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const OUTPUT: &str = "\nrunning 4 tests\n\
        test a::b ... ok\n\
        test a::c ... FAILED\n\
        test a::d ... ignored, needs root; run by cargo xtask test\n\
        \n\
        test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; \
        finished in 0.00s\n\
        \n\
        test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; \
        finished in 0.10s\n";

    fn failed() -> ExitStatus {
        ExitStatus::from_raw(101 << 8)
    }

    #[test]
    fn results_are_summed_and_passed_on_unchanged() {
        let (mut outcome, mut terminal) = (TestReport::default(), Vec::new());
        stream(OUTPUT.as_bytes(), &mut terminal, &mut outcome).expect("no input or output");
        assert_eq!(terminal, OUTPUT.as_bytes());
        assert_eq!((outcome.passed, outcome.failed), (13, 1));
        assert_eq!(outcome.failures, ["a::c"]);
    }

    #[test]
    fn a_failure_that_was_counted_is_not_counted_twice() {
        let mut outcome = TestReport::default();
        OUTPUT
            .lines()
            .for_each(|line| read_results(line, &mut outcome));
        conclude(&mut outcome, "unit", failed());
        assert_eq!(outcome.failed, 1);
    }

    #[test]
    fn a_run_that_died_is_a_failure() {
        let mut outcome = TestReport::default();
        read_results(
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\n",
            &mut outcome,
        );
        conclude(&mut outcome, "unit", failed());
        assert_eq!((outcome.passed, outcome.failed), (12, 1));
        assert!(outcome.failures[0].starts_with("unit: exit status: 101"));
    }

    #[test]
    fn other_lines_count_nothing() {
        let mut outcome = TestReport::default();
        for line in [
            "test result: unknown",
            "   Compiling a v1.0.0",
            "test a ... ok",
            "",
        ] {
            read_results(line, &mut outcome);
        }
        assert_eq!(outcome, TestReport::default());
    }
}
