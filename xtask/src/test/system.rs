//! The tests with needs: which there are, and how they are run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use super::cargo::run_tests;
use super::report::TestReport;
use crate::artifacts::Binary;
use crate::needs::{self, Lack, Need};
use crate::packages;
use crate::tidy::{Ignored, Tree};
use crate::workspace::{BuildTarget, Fallible, Package, Workspace, output};

/// A test target, some of whose tests are marked
/// `#[ignore = "needs …; run by cargo xtask test"]`.
pub(super) struct SystemTest<'a> {
    package: &'a Package,
    target: &'a BuildTarget,
    /// The needs of each marked test, by its name without its module.
    needs_of: BTreeMap<&'a str, Vec<&'static Need>>,
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
        let marked = tests.filter_map(|test| match &test.ignored {
            Ignored::Because(reason) => Some((&*test.name, needs::of_reason(reason).ok()?)),
            Ignored::No => None,
        });
        let text = tree.text(&root).unwrap_or_default();
        let lines = text.lines().map_while(|line| line.strip_prefix("//! "));
        let purpose = Vec::from_iter(lines).join(" ");
        let (purpose, _) = purpose.split_once(['.', ':']).unwrap_or((&purpose, ""));
        SystemTest {
            package,
            target,
            needs_of: marked.collect(),
            purpose: purpose.to_owned(),
        }
    });
    tests.filter(|test| !test.needs_of.is_empty()).collect()
}

impl SystemTest<'_> {
    /// Every need of its tests.
    pub(super) fn needs(&self) -> BTreeMap<String, &'static Need> {
        let needs = self.needs_of.values().flatten();
        needs.map(|need| (need.to_string(), *need)).collect()
    }

    /// The listed tests that can be run, and the others by what they lack.
    fn sorted(&self, listed: Vec<String>) -> (Vec<String>, BTreeMap<Lack, u64>) {
        let (mut able, mut unable) = (Vec::new(), BTreeMap::new());
        for path in listed {
            let name = path.rsplit("::").next().unwrap_or(&path);
            let needs = self.needs_of.get(name);
            match needs.and_then(|needs| needs::worst_lack(needs)) {
                Some(lack) => *unable.entry(lack).or_default() += 1,
                None => able.push(path),
            }
        }
        (able, unable)
    }

    fn binary<'b>(&self, binaries: &'b [Binary]) -> Option<&'b Binary> {
        binaries.iter().find(|binary| {
            binary.is_test()
                && binary.target == *self.target
                && binary.manifest_path == self.package.manifest_path
        })
    }

    /// Runs tests where and as cargo would: in the package's directory, with the tool's path. Where
    /// one of the target needs mounts, all of them run in a private mount namespace.
    fn command(&self, test: &Binary, names: &[String], binaries: &[Binary]) -> Command {
        let mut command = if self.needs().values().any(|need| need.is_mounts()) {
            let [program, arguments @ ..] = needs::PRIVATE_MOUNTS;
            let mut command = Command::new(program);
            command.args(arguments).arg(&test.executable);
            command
        } else {
            Command::new(&test.executable)
        };
        let directory = test.manifest_path.parent().unwrap_or(Path::new("."));
        command
            .args(["--ignored", "--exact"])
            .args(names)
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
        let (package, name) = (&self.package.name, &self.target.name);
        match self.target.is("test") {
            true => write!(f, "{package} --test {name}"),
            false => write!(f, "{package} --lib"),
        }
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
        let needs = || tests.iter().flat_map(|test| test.needs().into_values());
        packages::install(&needs().filter_map(Need::missing_package).collect())?;
        let commands = needs().filter_map(Need::missing_provision);
        commands.for_each(packages::provide);
    }
    for test in tests {
        println!("\n   {test}");
        let Some(binary) = test.binary(binaries) else {
            report.fail(format!("{test} was not built"));
            continue;
        };
        let (able, unable) = test.sorted(marked(&binary.executable)?);
        if able.is_empty() && unable.is_empty() {
            report.fail(format!("{test} has no test that is marked"));
        }
        for (lack, tests) in unable {
            println!("   {tests} not run: {lack}");
            report.not_run(test.to_string(), tests, lack);
        }
        if !able.is_empty() {
            let command = test.command(binary, &able, binaries);
            run_tests(&test.to_string(), command, report)?;
        }
    }
    Ok(())
}

/// The tests in the binary that are marked, with their modules.
fn marked(executable: &Path) -> Fallible<Vec<String>> {
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
        let tree = tree(&with_test("mounts"), &with_test("root and mounts"));
        let tests = all(&tree);
        let described = tests.iter().map(|test| {
            let needs = test.needs().into_keys().collect();
            (test.to_string(), &*test.purpose, needs)
        });
        let needs: Vec<_> = ["mounts (package mount)", "root"].map(str::to_owned).into();
        let expected = ("a --test kernel".to_owned(), "It mounts", needs);
        assert_eq!(Vec::from_iter(described), [expected]);
    }

    #[test]
    fn a_target_is_found_among_its_namesakes() {
        let tree = tree(&with_test("mounts"), "");
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
        let tree = tree(&with_test("mounts"), "");
        let command = all(&tree)[0].command(&test, &["m::a".to_owned()], &binaries);
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let expected = "unshare --mount --propagation private /t/a-kernel --ignored --exact m::a";
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
