//! `cargo xtask mutants`: checks that the tests of pure modules notice a change of one expression.
//!
//! ```text
//! mutants.toml ─► cargo mutants, one group of modules after the other ─► target/mutants/GROUP
//!             └► the survivors that are listed, with a reason ─► those that are not: a failure
//! ```

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;

use crate::needs::has_program;
use crate::workspace::{Fallible, Workspace, exit_code};

const TABLE: &str = "xtask/mutants.toml";

#[derive(clap::Args)]
pub(crate) struct MutantsArguments {
    /// Change only these groups of modules [default: all]
    groups: Vec<String>,
    /// Take the K-th of N parts of each group, from 0, such as 0/4
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// More arguments for cargo-mutants
    #[arg(last = true)]
    more: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MutantTable {
    caught_min: usize,
    group: Vec<MutantGroup>,
    #[serde(default)]
    survivor: Vec<Survivor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MutantGroup {
    name: String,
    package: String,
    files: Vec<String>,
    tests: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    mutant: String,
    reason: String,
}

pub(crate) fn run(workspace: &Workspace, arguments: &MutantsArguments) -> Fallible<ExitCode> {
    if !has_program("cargo-mutants") {
        return Err("there is no cargo-mutants; `cargo install cargo-mutants`".into());
    }
    let table: MutantTable = toml::from_str(&fs::read_to_string(workspace.root.join(TABLE))?)?;
    let names = &arguments.groups;
    let is_chosen = |group: &&MutantGroup| names.is_empty() || names.contains(&group.name);
    let groups: Vec<_> = table.group.iter().filter(is_chosen).collect();
    if groups.len() < names.len() {
        return Err(format!("unknown group among {names:?}; {TABLE} has the known ones").into());
    }
    let mut is_good = true;
    for group in groups {
        let output = workspace.root.join("target/mutants").join(&group.name);
        fs::create_dir_all(&output)?;
        let mut cargo = workspace.cargo("mutants");
        cargo.args(["--package", &group.package, "--all-features", "--output"]);
        // An endless loop counts as caught after this time.
        cargo.arg(&output).args(["--minimum-test-timeout", "20"]);
        cargo.args(group.files.iter().flat_map(|file| ["--file", file]));
        if let Some(part) = &arguments.shard {
            cargo.args(["--sharding", "round-robin", "--shard", part]);
        }
        // Builds only the tests that are run.
        cargo.args(group.tests.iter().map(|test| format!("-C={test}")));
        cargo.args(&arguments.more);
        // The exit code depends on the kind of end; the result is in the files it has written.
        let status = cargo
            .env("CARGO_TARGET_DIR", output.join("build"))
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .status()?;
        let outcome = MutantOutcome::read(&output.join("mutants.out"))
            .map_err(|error| format!("cargo mutants: {status}, without a result: {error}"))?;
        is_good &= outcome.judge(group, &table);
    }
    Ok(exit_code(is_good))
}

/// Mutants by outcome, without line and column.
#[derive(Default)]
struct MutantOutcome {
    caught: usize,
    missed: Vec<String>,
}

impl MutantOutcome {
    fn read(folder: &Path) -> Fallible<Self> {
        let lines = |name: &str| fs::read_to_string(folder.join(name));
        let caught =
            ["caught.txt", "timeout.txt"].map(|name| lines(name).map(|it| it.lines().count()));
        let [caught, timeout] = caught;
        Ok(Self {
            caught: caught? + timeout?,
            missed: lines("missed.txt")?.lines().map(without_place).collect(),
        })
    }

    /// Prints the survivors, and returns whether each is listed and enough mutants are caught.
    fn judge(&self, group: &MutantGroup, table: &MutantTable) -> bool {
        let all = self.caught + self.missed.len();
        println!(
            "\n{}: {} of {all} mutants are caught",
            group.name, self.caught
        );
        let mut unlisted = 0;
        for mutant in &self.missed {
            let listed = table
                .survivor
                .iter()
                .find(|listed| listed.mutant == *mutant);
            unlisted += usize::from(listed.is_none());
            let reason = listed.map_or("not listed", |listed| &listed.reason);
            println!("  {mutant}: {reason}");
        }
        unlisted == 0 && self.caught * 100 >= all * table.caught_min
    }
}

/// Converts `FILE:LINE:COLUMN: CHANGE` to `FILE: CHANGE`.
fn without_place(mutant: &str) -> String {
    let (place, change) = mutant.split_once(": ").unwrap_or((mutant, ""));
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {change}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> MutantTable {
        let text = fs::read_to_string(Workspace::here().root.join(TABLE));
        toml::from_str(&text.expect("a file")).expect("a table")
    }

    #[test]
    fn groups_are_modules_that_exist_and_survivors_are_of_them() {
        let root = Workspace::here().root;
        let table = table();
        let files = table.group.iter().flat_map(|group| &group.files);
        let places: Vec<_> = files.map(|file| file.trim_end_matches("/**")).collect();
        for place in &places {
            assert!(root.join(place).exists(), "{place}");
        }
        for Survivor { mutant, reason } in &table.survivor {
            let is_of_a_group = places.iter().any(|place| mutant.starts_with(place));
            assert!(is_of_a_group && !reason.is_empty(), "{mutant}");
        }
    }

    #[test]
    fn a_survivor_is_listed_or_a_failure() {
        let missed = [
            "a.rs:1:2: replace > with >= in f",
            "a.rs:9:9: delete ! in g",
        ];
        let outcome = MutantOutcome {
            caught: 98,
            missed: missed.map(without_place).into(),
        };
        let mut table = table();
        let group = table.group.pop().expect("a group");
        let listed = |mutant: &str| Survivor {
            mutant: mutant.to_owned(),
            reason: "equivalent".to_owned(),
        };
        table.survivor = vec![listed("a.rs: replace > with >= in f")];
        assert!(!outcome.judge(&group, &table));
        table.survivor.push(listed("a.rs: delete ! in g"));
        assert!(outcome.judge(&group, &table));
        let few = MutantOutcome {
            caught: 97,
            ..outcome
        };
        assert!(!few.judge(&group, &table));
    }
}
