//! `cargo xtask test`: everything that must pass, in one command, with one line of totals.
//!
//! ```text
//! fmt  tidy  licences      need no build
//! build ─┬─ clippy         same packages and features throughout, so that the dependencies
//!        ├─ unit           are built once
//!        ├─ doc
//!        └─ system         the tests with needs: packages installed, then each binary run alone
//! ```
//!
//! A step that fails doesn't stop the others; only what doesn't compile does.

mod build;
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

use self::report::{Lack, Report};
pub(crate) use self::system::{SYSTEM_TESTS, SystemTest};
use crate::tidy::{self, Tree};
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

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Step {
    Fmt,
    Tidy,
    Licences,
    Build,
    Clippy,
    Unit,
    Doc,
    System,
}

impl Step {
    fn purpose(self) -> &'static str {
        match self {
            Self::Fmt => "the sources are formatted",
            Self::Tidy => "the rules of `cargo xtask tidy`",
            Self::Licences => "every dependency's licence is allowed",
            Self::Build => "libraries, the tool, examples and tests compile",
            Self::Clippy => "no warnings, with all targets and features",
            Self::Unit => "unit, property and integration tests that need nothing",
            Self::Doc => "the examples in the documentation",
            Self::System => "tests that need root, a package or a kernel feature",
        }
    }

    fn needs_build(self) -> bool {
        matches!(
            self,
            Self::Build | Self::Clippy | Self::Unit | Self::Doc | Self::System
        )
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
    let chosen = |step: &Step| arguments.only.is_empty() || arguments.only.contains(step);
    let (build, plain): (Vec<_>, Vec<_>) = Step::value_variants()
        .iter()
        .copied()
        .filter(chosen)
        .partition(|step| step.needs_build());
    let mut report = Report::default();
    run_plain(workspace, &plain, &mut report);
    run_built(workspace, &build, arguments, &mut report)?;
    let is_ci = env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    if is_ci {
        report.refuse_lacks();
    }
    println!("\n{report}");
    Ok(if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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

fn run_plain(workspace: &Workspace, steps: &[Step], report: &mut Report) {
    // The two steps that look at the tree share it.
    let looks = steps
        .iter()
        .any(|step| matches!(step, Step::Tidy | Step::Licences));
    let tree = looks.then(|| Tree::read(workspace).map_err(|error| error.to_string()));
    for step in steps {
        let begun = begin(*step);
        match (step, &tree) {
            (Step::Fmt, _) => cargo::fmt(workspace, report),
            (_, Some(Err(error))) => report.fail(format!("{step}: {error}")),
            (Step::Tidy, Some(Ok(tree))) => {
                report.step("tidy", tidy::complaints(tree).is_empty());
            }
            (_, Some(Ok(tree))) => {
                report.step("licences", tidy::licence_complaints(tree).is_empty());
            }
            (_, None) => {}
        }
        end(*step, begun);
    }
}

fn run_built(
    workspace: &Workspace,
    steps: &[Step],
    arguments: &Arguments,
    report: &mut Report,
) -> Fallible<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let begun = begin(Step::Build);
    let binaries = build::all(workspace)?;
    report.step("build", binaries.is_some());
    end(Step::Build, begun);
    for step in steps.iter().copied().filter(|step| *step != Step::Build) {
        let Some(binaries) = &binaries else {
            report.not_run(step.to_string(), 1, Lack::of_build());
            continue;
        };
        let begun = begin(step);
        match step {
            Step::Clippy => cargo::clippy(workspace, report),
            Step::Doc => cargo::tests(workspace, "doc", &["--doc"], report)?,
            Step::System => system::run(workspace, binaries, !arguments.no_install, report)?,
            _ => {
                let kinds = ["--lib", "--bins", "--tests", "--examples"];
                cargo::tests(workspace, "unit", &kinds, report)?;
            }
        }
        end(step, begun);
    }
    Ok(())
}

fn begin(step: Step) -> Instant {
    println!("\n== {step}: {}", step.purpose());
    Instant::now()
}

fn end(step: Step, begun: Instant) {
    println!("== {step}: {:.1} s", begun.elapsed().as_secs_f64());
}
