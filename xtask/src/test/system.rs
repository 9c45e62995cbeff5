//! The tests with needs: which there are, and how they are run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cargo::run_tests;
use super::report::TestReport;
use crate::artifacts::Binary;
use crate::needs::{self, Lack, Need};
use crate::packages;
use crate::tidy::{Ignored, Tree};
use crate::workspace::{BuildTarget, Fallible, Package, Workspace};

/// An integration-test target whose tests are marked
/// `#[ignore = "needs …; run by cargo xtask test"]`. Where one needs mounts, all of them run in a
/// private mount namespace.
pub(super) struct SystemTest<'a> {
    package: &'a Package,
    target: &'a BuildTarget,
    pub(super) needs: Vec<&'static Need>,
    /// The first sentence of its documentation.
    pub(super) purpose: String,
}

/// What to do about packages that are missing.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Packages {
    Install,
    AsTheyAre,
}

/// Every such target, with the needs that its tests name.
pub(super) fn all(tree: &Tree) -> Vec<SystemTest<'_>> {
    let targets = tree
        .metadata
        .ours()
        .flat_map(|package| package.tests().map(move |target| (package, target)));
    let tests = targets.map(|(package, target)| {
        let root = tree.relative(&target.src_path);
        let files = tree
            .rust()
            .filter(|(path, ..)| BuildTarget::has(&root, path));
        let tests = files.flat_map(|(_, _, rust)| &rust.tests);
        let reasons = tests.filter_map(|test| match &test.ignored {
            Ignored::Because(reason) => needs::of_reason(reason).ok(),
            Ignored::No => None,
        });
        let needs: BTreeMap<_, _> = reasons
            .flatten()
            .map(|need| (need.to_string(), need))
            .collect();
        let text = tree.text(&root).unwrap_or_default();
        let lines = text.lines().map_while(|line| line.strip_prefix("//! "));
        let purpose = Vec::from_iter(lines).join(" ");
        let (purpose, _) = purpose.split_once(['.', ':']).unwrap_or((&purpose, ""));
        SystemTest {
            package,
            target,
            needs: needs.into_values().collect(),
            purpose: purpose.to_owned(),
        }
    });
    tests.filter(|test| !test.needs.is_empty()).collect()
}

impl SystemTest<'_> {
    fn lack(&self) -> Option<Lack> {
        self.needs.iter().find_map(|need| need.lack())
    }

    fn binary<'b>(&self, binaries: &'b [Binary]) -> Option<&'b Binary> {
        binaries.iter().find(|binary| {
            binary.is_integration_test()
                && binary.target.name == self.target.name
                && binary.manifest_path == self.package.manifest_path
        })
    }

    /// Runs the test where and as cargo would: in its package's directory, with the tool's path.
    fn command(&self, test: &Binary, binaries: &[Binary]) -> Command {
        let mut command = if self.needs.iter().any(|need| need.is_mounts()) {
            let [program, arguments @ ..] = needs::PRIVATE_MOUNTS;
            let mut command = Command::new(program);
            command.args(arguments).arg(&test.executable);
            command
        } else {
            Command::new(&test.executable)
        };
        let directory = test.manifest_path.parent().unwrap_or(Path::new("."));
        command
            .arg("--ignored")
            .current_dir(directory)
            .env("CARGO_MANIFEST_DIR", directory)
            .env("PATH", needs::search_path());
        for program in binaries.iter().filter(|it| it.is_program()) {
            let name = format!("CARGO_BIN_EXE_{}", program.target.name);
            command.env(name, &program.executable);
        }
        command
    }
}

impl fmt::Display for SystemTest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} --test {}", self.package.name, self.target.name)
    }
}

pub(super) fn run(
    workspace: &Workspace,
    binaries: &[Binary],
    packages: Packages,
    report: &mut TestReport,
) -> Fallible<()> {
    let tree = Tree::read(workspace)?;
    let tests = all(&tree);
    if packages == Packages::Install {
        let needs = tests.iter().flat_map(|test| &test.needs);
        packages::install(&needs.filter_map(|need| need.missing_package()).collect())?;
    }
    for test in tests {
        println!("\n   {test}");
        let Some(binary) = test.binary(binaries) else {
            report.fail(format!("{test} was not built"));
            continue;
        };
        match (count(&binary.executable)?, test.lack()) {
            (0, _) => report.fail(format!("{test} has no test that is marked")),
            (tests, Some(lack)) => {
                println!("   not run: {lack}");
                report.not_run(test.to_string(), tests, lack);
            }
            (_, None) => {
                run_tests(&test.to_string(), test.command(binary, binaries), report)?;
            }
        }
    }
    Ok(())
}

/// The number of tests in the binary that are marked.
fn count(executable: &Path) -> Fallible<u64> {
    let listed = Command::new(executable)
        .args(["--list", "--ignored", "--format", "terse"])
        .stdin(Stdio::null())
        .output()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let tests = listed.lines().filter(|line| line.ends_with(": test"));
    Ok(tests.count() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace::fake::ours;

    fn built(package: &str, target: &str, kind: &str) -> Binary {
        let message = json!({
            "manifest_path": format!("/w/{package}/Cargo.toml"),
            "target": {"name": target, "kind": [kind], "src_path": "/w"},
            "profile": {"test": kind == "test"},
            "executable": format!("/t/{package}-{target}"),
        });
        serde_json::from_value(message).expect("a binary")
    }

    fn marked(needs: &str) -> String {
        let reason = format!("needs {needs}; run by cargo xtask test");
        format!("//! It mounts.\n#[test]\n#[ignore = \"{reason}\"]\nfn a() {{}}\n")
    }

    fn tree(root: &str, more: &str) -> Tree {
        let files = [
            ("a/tests/kernel/main.rs", root),
            ("a/tests/kernel/more.rs", more),
            ("a/tests/other.rs", "#[test]\nfn b() {}\n"),
        ];
        let package = ours("a")
            .with_target("test", "kernel", "tests/kernel/main.rs")
            .with_target("test", "other", "tests/other.rs");
        Tree::of(&files).with(package)
    }

    #[test]
    fn targets_need_what_their_tests_need() {
        let tree = tree(&marked("mounts"), &marked("root and mounts"));
        let tests = all(&tree);
        let described = tests.iter().map(|test| {
            let needs = test.needs.iter().map(ToString::to_string);
            (test.to_string(), &*test.purpose, needs.collect())
        });
        let needs: Vec<_> = ["mounts (package mount)", "root"].map(str::to_owned).into();
        let expected = ("a --test kernel".to_owned(), "It mounts", needs);
        assert_eq!(Vec::from_iter(described), [expected]);
    }

    #[test]
    fn a_target_is_found_among_its_namesakes() {
        let tree = tree(&marked("mounts"), "");
        let binaries = [
            built("b", "kernel", "test"),
            built("a", "kernel", "bin"),
            built("a", "kernel", "test"),
        ];
        let tests = all(&tree);
        assert_eq!(tests[0].binary(&binaries), Some(&binaries[2]));
        assert_eq!(tests[0].binary(&binaries[..2]), None);
    }

    #[test]
    fn mounts_are_private_and_the_tool_is_known() {
        let binaries = [built("cli", "underpass", "bin")];
        let test = built("a", "kernel", "test");
        let tree = tree(&marked("mounts"), "");
        let command = all(&tree)[0].command(&test, &binaries);
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let expected = "unshare --mount --propagation private /t/a-kernel --ignored";
        assert_eq!(words.join(" "), expected);
        let mut set = command.get_envs();
        let tool = set.find(|(name, _)| *name == "CARGO_BIN_EXE_underpass");
        assert_eq!(
            tool.and_then(|(_, value)| value),
            Some("/t/cli-underpass".as_ref())
        );
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/a")));
    }
}
