//! The results of the steps, and the line of totals at the end.

use std::fmt;

use crate::needs::Lack;

/// Counts of tests, and the ones that failed or were not run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TestReport {
    pub(super) passed: u64,
    pub(super) failed: u64,
    skipped: u64,
    /// Tests left to `cargo xtask test --all`.
    later: u64,
    pub(super) failures: Vec<String>,
    not_run: Vec<(String, Lack)>,
}

impl TestReport {
    /// Adds a step that counts as one test.
    pub(super) fn step(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.fail(name);
        }
    }

    pub(super) fn fail(&mut self, what: impl Into<String>) {
        self.failed += 1;
        self.failures.push(what.into());
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.later += other.later;
        self.failures.extend(other.failures);
        self.not_run.extend(other.not_run);
    }

    pub(super) fn not_run(&mut self, what: impl Into<String>, tests: u64, lack: Lack) {
        self.skipped += tests;
        self.not_run.push((what.into(), lack));
    }

    /// Counts tests that only `cargo xtask test --all` runs.
    pub(super) fn later(&mut self, tests: u64) {
        self.later += tests;
    }

    /// Adds a failure for everything that was not run for a reason that needs.toml does not excuse.
    pub(super) fn refuse_lacks(&mut self) {
        let refused = self.not_run.iter().filter(|(_, lack)| !lack.is_excused());
        let refused: Vec<_> = refused
            .map(|(what, lack)| format!("{what} was not run: {lack}"))
            .collect();
        refused.into_iter().for_each(|failure| self.fail(failure));
    }

    pub(super) fn is_good(&self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, lack) in &self.not_run {
            writeln!(f, "NOT RUN: {what}: {lack}")?;
        }
        for failure in &self.failures {
            writeln!(f, "FAILED: {failure}")?;
        }
        if self.later > 0 {
            writeln!(f, "{} more are run by cargo xtask test --all", self.later)?;
        }
        let (passed, failed, skipped) = (self.passed, self.failed, self.skipped);
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> TestReport {
        let mut report = TestReport::default();
        report.step("fmt", true);
        report.step("tidy", false);
        report.add(TestReport {
            passed: 7,
            failed: 1,
            failures: vec!["a::b".into()],
            ..TestReport::default()
        });
        report.not_run("a --test kernel", 3, Lack::of("root", "not root"));
        report.not_run("a --test tls", 2, Lack::of("kernel TLS", "no module tls"));
        report
    }

    #[test]
    fn the_last_line_is_the_totals() {
        assert_eq!(
            report().to_string(),
            "NOT RUN: a --test kernel: not root\n\
             NOT RUN: a --test tls: no module tls\n\
             FAILED: tidy\n\
             FAILED: a::b\n\
             8 passed, 2 failed, 5 skipped"
        );
        assert!(!report().is_good());
    }

    #[test]
    fn what_is_not_run_is_no_failure_until_it_is_refused() {
        let mut report = TestReport::default();
        report.not_run("a --test tls", 2, Lack::of("kernel TLS", "no module tls"));
        report.refuse_lacks();
        assert!(report.is_good());
        report.not_run("a --test kernel", 3, Lack::of("root", "not root"));
        assert!(report.is_good());
        report.refuse_lacks();
        assert_eq!((report.passed, report.failed, report.skipped), (0, 1, 5));
        assert_eq!(report.failures, ["a --test kernel was not run: not root"]);
    }

    #[test]
    fn loop_devices_mounts_and_ptrace_have_to_be_there() {
        let mut report = TestReport::default();
        for need in ["loop devices", "mounts", "strace"] {
            report.not_run("a --test b", 1, Lack::of(need, "it is refused"));
        }
        report.refuse_lacks();
        assert_eq!((report.failed, report.skipped), (3, 3));
    }
}
