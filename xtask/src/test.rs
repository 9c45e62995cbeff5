//! `cargo xtask test`: everything that must pass, in one command, with one line of totals.
//!
//! ```text
//!                          first tier                 `--all`
//! fmt  tidy                needs no build
//! build ─┬─ clippy         one selection of packages and features, so that dependencies are
//!        │                 built once
//!        ├─ tests          without those that take     every test
//!        │                 minutes; an eighth of
//!        │                 each fault matrix
//!        └─ doc  guest     left out                    documentation; kernel TLS and Linux 5.10
//! ```
//!
//! A step that fails doesn't stop the others; only code that doesn't compile does.

mod cargo;
mod guest;
mod report;
mod suites;
mod tier;

use std::env;
use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;

pub(crate) use self::guest::{GuestArguments, run as run_guests};
use self::report::TestReport;
use self::suites::Packages;
use self::tier::TestTier;
use crate::artifacts::{self, Binary};
use crate::needs::{Lack, Need};
use crate::tidy::{self, Tree};
use crate::workspace::{Fallible, Workspace, exit_code};

#[derive(clap::Args)]
pub(crate) struct TestArguments {
    /// Run every test, which takes about an hour; the default takes 20 minutes
    #[arg(long)]
    all: bool,
    /// Run only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<TestStep>,
    /// Install the Debian packages that tests need, which takes a few minutes and needs root; done
    /// without being asked for where CI=true
    #[arg(long)]
    install: bool,
    /// List the steps, the tests with needs, and which needs this machine meets
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum TestStep {
    /// the sources are formatted
    Fmt,
    /// the rules of `cargo xtask tidy`
    Tidy,
    /// libraries, the tool, examples and tests compile
    Build,
    /// no warnings, with all targets and features
    Clippy,
    /// unit, property and integration tests, in two tiers
    Tests,
    /// the documentation builds without warnings, and its examples run
    Doc,
    /// the tests of kernel TLS, in guests whose kernels have it
    Guest,
}

impl TestStep {
    fn purpose(self) -> String {
        let value = self.to_possible_value();
        let help = value.as_ref().and_then(|value| value.get_help());
        help.map(ToString::to_string).unwrap_or_default()
    }

    fn needs_build(self) -> bool {
        !matches!(self, Self::Fmt | Self::Tidy | Self::Build)
    }

    fn is_for_all(self) -> bool {
        matches!(self, Self::Doc | Self::Guest)
    }
}

impl fmt::Display for TestStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &TestArguments) -> Fallible<ExitCode> {
    if arguments.list {
        list(&Tree::read(workspace)?);
        return Ok(ExitCode::SUCCESS);
    }
    let is_ci = env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let tier = match arguments.all {
        true => TestTier::All,
        false => TestTier::first()?,
    };
    let mut run = TestRun {
        workspace,
        tier,
        packages: match arguments.install || is_ci {
            true => Packages::Install,
            false => Packages::AsTheyAre,
        },
        built: Some(Vec::new()),
        rows: Vec::new(),
        report: TestReport::default(),
    };
    let started = Instant::now();
    for step in steps(&run.tier, &arguments.only) {
        run.take(step);
    }
    if is_ci {
        run.report.refuse_lacks();
    }
    println!("\nstep        seconds  passed  failed");
    run.rows.iter().for_each(|row| println!("{row}"));
    println!("all       {:9.1}", started.elapsed().as_secs_f64());
    println!("{}", run.report);
    Ok(exit_code(run.report.is_good()))
}

/// A run of the steps, one after the other.
struct TestRun<'a> {
    workspace: &'a Workspace,
    tier: TestTier,
    packages: Packages,
    /// The binaries of the step `build`, or `None` where something does not compile.
    built: Option<Vec<Binary>>,
    /// A line for each step.
    rows: Vec<String>,
    report: TestReport,
}

impl TestRun<'_> {
    fn take(&mut self, step: TestStep) {
        println!("\n== {step}: {}", step.purpose());
        let begun = Instant::now();
        let mut outcome = TestReport::default();
        if self.built.is_none() && step.needs_build() {
            let lack = Lack::of_failure("the build failed");
            outcome.not_run(step.to_string(), 1, lack);
        } else if let Err(error) = self.perform(step, &mut outcome) {
            outcome.fail(format!("{step}: {error}"));
        }
        let seconds = begun.elapsed().as_secs_f64();
        let (passed, failed) = (outcome.passed, outcome.failed);
        let row = format!("{step:10}{seconds:9.1}{passed:8}{failed:8}");
        println!("== {row}");
        self.rows.push(row);
        self.report.add(outcome);
    }

    fn perform(&mut self, step: TestStep, report: &mut TestReport) -> Fallible<()> {
        let workspace = self.workspace;
        let built = || self.built.as_deref().unwrap_or_default();
        match step {
            TestStep::Fmt => cargo::fmt(workspace, report)?,
            TestStep::Tidy => {
                let complaints = tidy::complaints(&Tree::read(workspace)?);
                report.step("tidy", complaints.is_empty());
            }
            TestStep::Build => {
                self.built = artifacts::all(workspace)?;
                report.step("build", self.built.is_some());
            }
            TestStep::Clippy => cargo::clippy(workspace, report)?,
            TestStep::Tests => {
                suites::run(workspace, built(), &self.tier, self.packages, report)?;
            }
            TestStep::Doc => {
                cargo::doc(workspace, report)?;
                cargo::doc_tests(workspace, report)?;
            }
            TestStep::Guest => {
                guest::run_all(workspace, built(), guest::ANSWERS_OF_A_TEST, report)?;
            }
        }
        Ok(())
    }
}

/// Returns the steps to take, in their order. Tests are built first.
fn steps(tier: &TestTier, only: &[TestStep]) -> Vec<TestStep> {
    let runs_tests = only
        .iter()
        .any(|step| matches!(step, TestStep::Tests | TestStep::Guest));
    let is_chosen = |step: &TestStep| match only {
        [] => *tier == TestTier::All || !step.is_for_all(),
        only => only.contains(step) || (*step == TestStep::Build && runs_tests),
    };
    let all = TestStep::value_variants().iter().copied();
    all.filter(is_chosen).collect()
}

fn list(tree: &Tree) {
    println!("steps:");
    for step in TestStep::value_variants() {
        println!("  {step:10}{}", step.purpose());
    }
    println!("needs of each test binary:");
    for suite in suites::all(tree) {
        let needs = Vec::from_iter(suite.needs().into_keys());
        if !needs.is_empty() {
            println!("  {suite}: {}", needs.join(", "));
        }
    }
    println!("needs:");
    for need in Need::all() {
        let lack = need.lack().map(|lack| lack.to_string());
        println!("  {need}: {}", lack.as_deref().unwrap_or("met"));
        if let Some(excuse) = need.excuse() {
            println!("    may be missing in CI: {excuse}");
        }
    }
}

#[cfg(test)]
mod tests {
    use underpass_testkit::Sample;

    use super::*;

    const FIRST: TestTier = TestTier::First(Sample { part: 3, parts: 8 });

    #[test]
    fn tests_are_built_before_they_are_run() {
        let only = [TestStep::Tests, TestStep::Tidy];
        assert_eq!(
            steps(&FIRST, &only),
            [TestStep::Tidy, TestStep::Build, TestStep::Tests]
        );
        let clippy = [TestStep::Clippy];
        assert_eq!(steps(&FIRST, &clippy), clippy);
    }

    #[test]
    fn every_step_is_taken_by_all_and_the_first_tier_leaves_two_out() {
        let all = TestStep::value_variants();
        assert_eq!(steps(&TestTier::All, &[]), all);
        let first = steps(&FIRST, &[]);
        assert!(first.contains(&TestStep::Tests) && first.contains(&TestStep::Clippy));
        assert_eq!(first.len() + 2, all.len());
    }
}
