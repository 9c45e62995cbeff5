//! `cargo xtask test`: everything that must pass, in one command, with one line of totals.
//!
//! ```text
//! fmt  tidy  licences      need no build
//! build ─┬─ clippy         the same packages and features throughout, so that the dependencies
//!        ├─ unit           are built once
//!        └─ system         the tests with needs: packages installed, then each binary run alone
//! ```
//!
//! A step that fails doesn't stop the others; only what doesn't compile does.

mod cargo;
pub(crate) mod needs;
mod packages;
mod report;
mod system;

use std::env;
use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;

pub(crate) use self::needs::{is_root, search_path};
use self::packages::Packages;
pub(crate) use self::packages::install as install_packages;
use self::report::{Lack, Report};
pub(crate) use self::system::{SYSTEM_TESTS, SystemTest};
use crate::artifacts;
use crate::journey::{self, Journey};
use crate::tidy::{self, Complaint, Tree};
use crate::workspace::{Fallible, Workspace};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<Step>,
    /// Install no packages; list the tests that miss one as not run
    #[arg(long)]
    no_install: bool,
    /// List the steps, the tests with needs, and which needs this machine meets
    #[arg(long)]
    list: bool,
}

impl Arguments {
    fn packages(&self) -> Packages {
        if self.no_install {
            Packages::AsTheyAre
        } else {
            Packages::Install
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Step {
    Fmt,
    Tidy,
    Licences,
    Build,
    Clippy,
    Unit,
    System,
    Journey,
}

impl Step {
    fn purpose(self) -> &'static str {
        match self {
            Self::Fmt => "the sources are formatted",
            Self::Tidy => "the rules of `cargo xtask tidy`",
            Self::Licences => "every dependency's licence is allowed",
            Self::Build => "libraries, the tool, examples and tests compile",
            Self::Clippy => "no warnings, with all targets and features",
            Self::Unit => "unit, property, integration and documentation tests",
            Self::System => "tests that need root, a package or a kernel feature",
            Self::Journey => "a request and a copy pass few files, as `cargo xtask journey` counts",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Fallible<ExitCode> {
    if arguments.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let steps = steps(&arguments.only);
    let mut report = Report::default();
    let mut binaries = None;
    for step in &steps {
        println!("\n== {step}: {}", step.purpose());
        let begun = Instant::now();
        let done = match (step, &binaries) {
            (Step::Fmt, _) => cargo::fmt(workspace, &mut report),
            (Step::Tidy, _) => look(workspace, *step, tidy::complaints, &mut report),
            (Step::Licences, _) => look(workspace, *step, tidy::licence_complaints, &mut report),
            (Step::Build, _) => artifacts::all(workspace).map(|built| {
                report.step("build", built.is_some());
                binaries = built;
            }),
            (_, None) if steps.contains(&Step::Build) => {
                report.not_run(step.to_string(), 1, Lack::of_build());
                Ok(())
            }
            (Step::Clippy, _) => cargo::clippy(workspace, &mut report),
            (Step::Unit, _) => cargo::tests(workspace, &mut report),
            (Step::System, built) => {
                let built = built.as_deref().unwrap_or_default();
                system::run(workspace, built, arguments.packages(), &mut report)
            }
            (Step::Journey, _) => count_files(workspace, &mut report),
        };
        if let Err(error) = done {
            report.fail(format!("{step}: {error}"));
        }
        println!("== {step}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    if env::var("CI").is_ok_and(|value| value == "true" || value == "1") {
        report.refuse_lacks();
    }
    println!("\n{report}");
    Ok(if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The steps to take, in their order. Tests are built first, whether or not that was asked for.
fn steps(only: &[Step]) -> Vec<Step> {
    let runs_tests = only
        .iter()
        .any(|step| matches!(step, Step::Unit | Step::System));
    let is_chosen = |step: &Step| {
        only.is_empty() || only.contains(step) || (*step == Step::Build && runs_tests)
    };
    Step::value_variants()
        .iter()
        .copied()
        .filter(is_chosen)
        .collect()
}

fn look(
    workspace: &Workspace,
    step: Step,
    complaints: fn(&Tree) -> Vec<Complaint>,
    report: &mut Report,
) -> Fallible<()> {
    report.step(
        &step.to_string(),
        complaints(&Tree::read(workspace)?).is_empty(),
    );
    Ok(())
}

fn count_files(workspace: &Workspace, report: &mut Report) -> Fallible<()> {
    if let Some(lack) = journey::lack(workspace) {
        report.not_run("journey", 1, Lack::of_machine(lack));
        return Ok(());
    }
    let journeys = journey::journeys(workspace)?;
    journeys.iter().for_each(|journey| println!("{journey}"));
    let is_good = journey::IS_PENDING || journeys.iter().all(Journey::is_short);
    report.step("journey", is_good);
    Ok(())
}

fn list() {
    println!("steps:");
    for step in Step::value_variants() {
        println!("  {:10}{}", step.to_string(), step.purpose());
    }
    println!("tests with needs:");
    for row in SYSTEM_TESTS {
        println!("  {row}: {}", row.why);
        row.needs.iter().for_each(|need| println!("    {need}"));
    }
    println!("needs:");
    for need in needs::ALL {
        let state = need
            .lack()
            .map_or("met".to_owned(), |lack| lack.to_string());
        println!("  {need}: {state}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_built_before_they_are_run() {
        assert_eq!(
            steps(&[Step::System, Step::Tidy]),
            [Step::Tidy, Step::Build, Step::System]
        );
        assert_eq!(steps(&[Step::Clippy]), [Step::Clippy]);
    }

    #[test]
    fn every_step_is_taken_where_none_is_chosen() {
        assert_eq!(steps(&[]), Step::value_variants());
    }
}
