//! `cargo xtask test`: everything that must pass, in one command, with one line of totals.
//!
//! ```text
//! fmt  tidy               need no build
//! build ─┬─ clippy doc     the same packages and features throughout, so that the dependencies
//!        ├─ unit           are built once; but for a look at the tool without TLS
//!        ├─ system         the tests with needs: each binary run alone
//!        └─ guest          those of kernel TLS, with other kernels
//! ```
//!
//! A step that fails doesn't stop the others; only what doesn't compile does.

mod cargo;
mod guest;
mod report;
mod system;

use std::env;
use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;

pub(crate) use self::guest::{GuestArguments, run as run_guests};
use self::report::TestReport;
use self::system::Packages;
use crate::artifacts::{self, Binary};
use crate::needs::{Lack, Need};
use crate::tidy::{self, Tree};
use crate::workspace::{Fallible, Workspace, exit_code};

#[derive(clap::Args)]
pub(crate) struct TestArguments {
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
    /// no warnings, with all targets and features, and without TLS
    Clippy,
    /// the documentation builds without warnings
    Doc,
    /// unit, property, integration and documentation tests
    Unit,
    /// tests that need root, a package, a kernel feature or another toolchain
    System,
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
    let packages = match arguments.install || is_ci {
        true => Packages::Install,
        false => Packages::AsTheyAre,
    };
    let started = Instant::now();
    let steps = steps(&arguments.only);
    let mut report = TestReport::default();
    let mut built = Some(Vec::new());
    for step in steps {
        println!("\n== {step}: {}", step.purpose());
        let begun = Instant::now();
        if built.is_none() && step.needs_build() {
            let lack = Lack::of_failure("the build failed");
            report.not_run(step.to_string(), 1, lack);
        } else if let Err(error) = take(step, workspace, &mut built, packages, &mut report) {
            report.fail(format!("{step}: {error}"));
        }
        println!("== {step}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    if is_ci {
        report.refuse_lacks();
    }
    println!("\n{:.0} s in all", started.elapsed().as_secs_f64());
    println!("{report}");
    Ok(exit_code(report.is_good()))
}

/// Takes a step. `built` is what was built, or nothing where something does not compile.
fn take(
    step: TestStep,
    workspace: &Workspace,
    built: &mut Option<Vec<Binary>>,
    packages: Packages,
    report: &mut TestReport,
) -> Fallible<()> {
    match step {
        TestStep::Fmt => cargo::fmt(workspace, report)?,
        TestStep::Tidy => {
            let complaints = tidy::complaints(&Tree::read(workspace)?);
            report.step("tidy", complaints.is_empty());
        }
        TestStep::Build => {
            *built = artifacts::all(workspace)?;
            report.step("build", built.is_some());
        }
        TestStep::Clippy => cargo::clippy(workspace, report)?,
        TestStep::Doc => cargo::doc(workspace, report)?,
        TestStep::Unit => cargo::tests(workspace, report)?,
        TestStep::System => {
            let built = built.as_deref().unwrap_or_default();
            system::run(workspace, built, packages, report)?;
        }
        TestStep::Guest => {
            let built = built.as_deref().unwrap_or_default();
            guest::run_all(workspace, built, guest::ANSWERS_OF_A_TEST, report)?;
        }
    }
    Ok(())
}

/// The steps to take, in their order. Tests are built first, whether or not that was asked for.
fn steps(only: &[TestStep]) -> Vec<TestStep> {
    let runs_tests = only
        .iter()
        .any(|step| matches!(step, TestStep::Unit | TestStep::System | TestStep::Guest));
    let is_chosen = |step: &TestStep| {
        only.is_empty() || only.contains(step) || (*step == TestStep::Build && runs_tests)
    };
    let all = TestStep::value_variants().iter().copied();
    all.filter(is_chosen).collect()
}

fn list(tree: &Tree) {
    println!("steps:");
    for step in TestStep::value_variants() {
        println!("  {step:10}{}", step.purpose());
    }
    println!("tests with needs:");
    for test in system::all(tree) {
        println!("  {test}: {}", test.purpose);
        test.needs().keys().for_each(|need| println!("    {need}"));
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
    use super::*;

    #[test]
    fn tests_are_built_before_they_are_run() {
        assert_eq!(
            steps(&[TestStep::System, TestStep::Tidy]),
            [TestStep::Tidy, TestStep::Build, TestStep::System]
        );
        assert_eq!(steps(&[TestStep::Clippy]), [TestStep::Clippy]);
    }

    #[test]
    fn every_step_is_taken_where_none_is_chosen() {
        assert_eq!(steps(&[]), TestStep::value_variants());
    }
}
