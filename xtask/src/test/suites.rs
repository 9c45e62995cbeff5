//! The test binaries: the selection of their tests, and the way each binary is run.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{collections::BTreeMap, io};

use underpass_testkit::{Sample, in_parallel};

use super::cargo::{conclude, read_results};
use super::report::TestReport;
use super::tier::TestTier;
use crate::artifacts::Binary;
use crate::needs::{self, Lack, Need};
use crate::packages;
use crate::tidy::{Ignored, Tree};
use crate::workspace::{BuildTarget, Fallible, Package, Workspace, output};

/// Test binaries that run at a time. Most tests wait for other processes, timers or the disk.
const BINARIES_AT_A_TIME: usize = 2;

/// Threads of each test binary.
const TEST_THREADS: &str = "3";

/// A test target of the workspace.
pub(super) struct TestSuite<'a> {
    package: &'a Package,
    target: &'a BuildTarget,
    ignored: Vec<IgnoredTest<'a>>,
}

/// A test marked `#[ignore = "needs …; run by cargo xtask test"]`.
struct IgnoredTest<'a> {
    /// The module of the test's file within the target.
    module: String,
    name: &'a str,
    needs: Vec<&'static Need>,
}

/// Whether to install missing packages.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Packages {
    Install,
    AsTheyAre,
}

/// The ignored tests of a binary, by their treatment in a run.
#[derive(Debug, Default, PartialEq)]
struct Selection {
    run: Vec<String>,
    /// Tests run after all binaries, one at a time.
    run_alone: Vec<String>,
    /// Tests left to `--all`.
    later: Vec<String>,
    lacking: BTreeMap<Lack, Vec<String>>,
}

/// Returns every test target.
pub(super) fn all(tree: &Tree) -> Vec<TestSuite<'_>> {
    let targets = tree
        .metadata
        .ours()
        .flat_map(|package| package.tests().map(move |target| (package, target)));
    let suites = targets.map(|(package, target)| {
        let root = tree.relative(&target.src_path);
        let files = tree
            .rust()
            .filter(|(path, ..)| BuildTarget::has(&root, path));
        let tests = files.flat_map(|(path, _, rust)| rust.tests.iter().map(move |it| (path, it)));
        let ignored = tests.filter_map(|(path, test)| match &test.ignored {
            Ignored::Because(reason) => Some(IgnoredTest {
                module: module(&root, path),
                name: &test.name,
                needs: needs::of_reason(reason).ok()?,
            }),
            Ignored::No => None,
        });
        let ignored = ignored.collect();
        TestSuite {
            package,
            target,
            ignored,
        }
    });
    suites.collect()
}

/// Returns the module of a file of the target with this root.
fn module(root: &str, path: &str) -> String {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    if path == root {
        return String::new();
    }
    let within = path.strip_prefix(folder).unwrap_or(path);
    let within = within.trim_start_matches('/').trim_end_matches(".rs");
    within.trim_end_matches("/mod").replace('/', "::")
}

impl TestSuite<'_> {
    /// Returns every need of its tests, by name.
    pub(super) fn needs(&self) -> BTreeMap<String, &'static Need> {
        let needs = self.ignored.iter().flat_map(|test| &test.needs);
        needs.map(|need| (need.to_string(), *need)).collect()
    }

    /// Returns the needs of the ignored test that libtest lists under this path.
    fn needs_of(&self, path: &str) -> &[&'static Need] {
        let (modules, name) = path.rsplit_once("::").unwrap_or(("", path));
        let named = self.ignored.iter().filter(|test| test.name == name);
        let found = named
            .filter(|test| modules.starts_with(&*test.module))
            .max_by_key(|test| test.module.len());
        found.map_or(&[], |test| &test.needs)
    }

    /// Sorts the ignored tests that libtest lists.
    fn select(&self, listed: Vec<String>, tier: &TestTier) -> Selection {
        let mut selection = Selection::default();
        for path in listed {
            let needs = self.needs_of(&path);
            if *tier != TestTier::All && needs.iter().any(|need| need.is_for_all()) {
                selection.later.push(path);
            } else if let Some(lack) = needs::worst_lack(needs) {
                selection.lacking.entry(lack).or_default().push(path);
            } else if needs.iter().any(|need| need.is_alone()) {
                selection.run_alone.push(path);
            } else {
                selection.run.push(path);
            }
        }
        selection
    }

    fn binary<'b>(&self, binaries: &'b [Binary]) -> Option<&'b Binary> {
        binaries.iter().find(|binary| {
            binary.is_test()
                && binary.target == *self.target
                && binary.manifest_path == self.package.manifest_path
        })
    }

    /// Returns a call of the binary as cargo would run it: in the package's directory, with the
    /// paths of the programs. If one of the tests mounts, all of them run in a private mount
    /// namespace.
    fn command(&self, test: &Binary, ran: &[String], binaries: &[Binary]) -> Command {
        let mounts = |path: &String| self.needs_of(path).iter().any(|need| need.is_mounts());
        let mut command = if ran.iter().any(mounts) {
            let [program, arguments @ ..] = needs::PRIVATE_MOUNTS;
            let mut command = Command::new(program);
            command.args(arguments).arg(&test.executable);
            command
        } else {
            Command::new(&test.executable)
        };
        let directory = test.manifest_path.parent().unwrap_or(Path::new("."));
        command
            .args(["--color", "never", "--exact"])
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

impl fmt::Display for TestSuite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (package, name) = (&self.package.name, &self.target.name);
        match () {
            () if self.target.is("test") => write!(f, "{package} --test {name}"),
            () if self.target.is("bin") => write!(f, "{package} --bin {name}"),
            () => write!(f, "{package} --lib"),
        }
    }
}

/// Installs the missing packages for the tests of this tier.
fn install(suites: &[TestSuite<'_>], tier: &TestTier) -> Fallible<()> {
    let tests = suites.iter().flat_map(|suite| &suite.ignored);
    let taken = tests
        .filter(|test| *tier == TestTier::All || !test.needs.iter().any(|need| need.is_for_all()));
    let needs: Vec<_> = taken.flat_map(|test| &test.needs).copied().collect();
    let packages = needs.iter().filter_map(|need| need.missing_package());
    packages::install(&packages.collect())?;
    let mut commands: Vec<_> = needs
        .iter()
        .filter_map(|need| need.missing_provision())
        .collect();
    commands.sort_unstable();
    commands.dedup();
    commands.into_iter().for_each(packages::provide);
    Ok(())
}

/// Runs the tests of every binary.
pub(super) fn run(
    workspace: &Workspace,
    binaries: &[Binary],
    tier: &TestTier,
    packages: Packages,
    report: &mut TestReport,
) -> Fallible<()> {
    let tree = Tree::read(workspace)?;
    let mut suites = all(&tree);
    if packages == Packages::Install {
        install(&suites, tier)?;
    }
    // Suites with many such tests take longest.
    suites.sort_by_key(|suite| std::cmp::Reverse(suite.ignored.len()));
    let mut built = Vec::new();
    for suite in &suites {
        let Some(binary) = suite.binary(binaries) else {
            report.fail(format!("{suite} was not built"));
            continue;
        };
        let selection = suite.select(ignored(&binary.executable)?, tier);
        report.later(selection.later.len() as u64);
        for (lack, tests) in &selection.lacking {
            report.not_run(suite.to_string(), tests.len() as u64, lack.clone());
        }
        built.push((suite, binary, selection));
    }
    let outcomes = in_parallel(
        BINARIES_AT_A_TIME,
        &built,
        |_, (suite, binary, selection)| {
            let mut command = suite.command(binary, &selection.run, binaries);
            if let TestTier::First(sample) = tier {
                command.env(Sample::VARIABLE, sample.to_string());
            }
            command.args(["--include-ignored", "--test-threads", TEST_THREADS]);
            let lacking = selection.lacking.values().flatten();
            for left_out in lacking.chain(&selection.later).chain(&selection.run_alone) {
                command.args(["--skip", left_out]);
            }
            run_binary(&suite.to_string(), command)
        },
    );
    for outcome in outcomes {
        report.add(outcome?);
    }
    for (suite, binary, selection) in &built {
        if !selection.run_alone.is_empty() {
            let mut command = suite.command(binary, &selection.run_alone, binaries);
            command.args(["--ignored", "--test-threads", "1"]);
            command.args(&selection.run_alone);
            report.add(run_binary(&format!("{suite}, alone"), command)?);
        }
    }
    Ok(())
}

/// Runs a test binary, and prints its totals, or everything where a test failed.
fn run_binary(name: &str, mut command: Command) -> io::Result<TestReport> {
    let begun = Instant::now();
    let mut output = tempfile::tempfile()?;
    let status = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .status()?;
    let mut outcome = TestReport::default();
    let text = whole(&mut output)?;
    text.lines()
        .for_each(|line| read_results(line, &mut outcome));
    conclude(&mut outcome, name, status);
    let seconds = begun.elapsed().as_secs_f64();
    let shown = if outcome.is_good() { "" } else { &text };
    let (passed, failed) = (outcome.passed, outcome.failed);
    println!("{shown}   {name}: {passed} passed, {failed} failed, {seconds:.1} s");
    Ok(outcome)
}

fn whole(output: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the ignored tests in the binary, with their modules.
fn ignored(executable: &Path) -> Fallible<Vec<String>> {
    let mut list = Command::new(executable);
    let listed = output(list.args(["--list", "--ignored", "--format", "terse"]))?;
    let tests = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    Ok(tests.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace::fake::ours;

    const FIRST: TestTier = TestTier::First(Sample { part: 3, parts: 8 });

    fn built(package: &str, target: &str, kind: &str) -> Binary {
        let root = format!("/w/{package}/tests/{target}/main.rs");
        let message = json!({
            "manifest_path": format!("/w/{package}/Cargo.toml"),
            "target": {"name": target, "kind": [kind], "src_path": root},
            "profile": {"test": kind == "test"},
            "executable": format!("/t/{package}-{target}"),
        });
        serde_json::from_value(message).expect("a binary")
    }

    fn with_test(needs: &str) -> String {
        let reason = format!("needs {needs}; run by cargo xtask test");
        format!("#[test]\n#[ignore = \"{reason}\"]\nfn a() {{}}\n")
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

    fn paths(paths: &[&str]) -> Vec<String> {
        paths.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn targets_need_what_their_tests_need() {
        let tree = tree(&with_test("mounts"), &with_test("root and mounts"));
        let suites = all(&tree);
        let described = suites
            .iter()
            .map(|suite| (suite.to_string(), suite.needs().into_keys().collect()));
        let needs = paths(&["mounts (package mount)", "root"]);
        let expected = [
            ("a --test kernel".to_owned(), needs),
            ("a --test other".to_owned(), vec![]),
        ];
        assert_eq!(Vec::from_iter(described), expected);
    }

    #[test]
    fn tests_of_one_name_have_the_needs_of_their_module() {
        let tree = tree(&with_test("a minute"), &with_test("an idle machine"));
        let suite = &all(&tree)[0];
        let listed = || paths(&["a", "more::a", "more::tests::a"]);
        let first = Selection {
            run_alone: paths(&["more::a", "more::tests::a"]),
            later: paths(&["a"]),
            ..Selection::default()
        };
        assert_eq!(suite.select(listed(), &FIRST), first);
        let all = Selection {
            run: paths(&["a"]),
            run_alone: paths(&["more::a", "more::tests::a"]),
            ..Selection::default()
        };
        assert_eq!(suite.select(listed(), &TestTier::All), all);
    }

    #[test]
    fn files_have_the_module_that_rust_gives_them() {
        let within = |path: &str| module("a/tests/suite/main.rs", path);
        assert_eq!(within("a/tests/suite/main.rs"), "");
        assert_eq!(within("a/tests/suite/b.rs"), "b");
        assert_eq!(within("a/tests/suite/b/mod.rs"), "b");
        assert_eq!(within("a/tests/suite/b/c.rs"), "b::c");
    }

    #[test]
    fn a_target_is_found_among_its_namesakes() {
        let tree = tree(&with_test("mounts"), "");
        let binaries = [
            built("b", "kernel", "test"),
            built("a", "kernel", "bin"),
            built("a", "kernel", "test"),
        ];
        let suites = all(&tree);
        assert_eq!(suites[0].binary(&binaries), Some(&binaries[2]));
        assert_eq!(suites[0].binary(&binaries[..2]), None);
    }

    #[test]
    fn mounts_are_private_and_the_tool_is_known() {
        let binaries = [built("cli", "underpass", "bin")];
        let test = built("a", "kernel", "test");
        let tree = tree(&with_test("mounts"), "");
        let words = |ran: &[&str]| {
            let command = all(&tree)[0].command(&test, &paths(ran), &binaries);
            let words = [command.get_program()]
                .into_iter()
                .chain(command.get_args());
            let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
            let tool = command
                .get_envs()
                .find(|(name, _)| *name == "CARGO_BIN_EXE_underpass")
                .and_then(|(_, value)| value);
            assert_eq!(tool, Some("/t/cli-underpass".as_ref()));
            assert_eq!(command.get_current_dir(), Some(Path::new("/w/a")));
            words.join(" ")
        };
        let shared = "/t/a-kernel --color never --exact";
        assert_eq!(words(&[]), shared);
        let private = format!("unshare --mount --propagation private {shared}");
        assert_eq!(words(&["a"]), private);
    }

    #[test]
    fn the_results_of_a_binary_are_counted_and_a_death_is_a_failure() {
        let run = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            run_binary("a", shell).expect("sh starts")
        };
        let good = run("echo 'test result: ok. 3 passed; 0 failed; 1 ignored'");
        assert_eq!((good.passed, good.failed), (3, 0));
        let dead = run("echo 'test result: ok. 3 passed; 0 failed; 1 ignored'; exit 101");
        assert_eq!((dead.passed, dead.failed), (3, 1));
    }
}
