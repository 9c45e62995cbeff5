//! The size of the source: the modules of a folder, the lines of a crate, the test binaries.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{CrateModules, Tree};
use super::complaint::{Complaint, Exceptions, excused};

/// With more modules a folder needs sub-folders that show the grouping.
const FOLDER_MODULES_MAX: usize = 15;

/// Folders that may have more modules, with reasons.
pub(super) const EXCEPTIONS: Exceptions = &[(
    "crates/underpass-broker/src/protocol/tables",
    "a file for each of Kafka's messages",
)];

/// The maximum number of lines of some crates together, with the reason.
struct SourceLimit {
    crates: &'static [&'static str],
    lines_max: usize,
    reason: &'static str,
}

/// The present numbers, rounded up, which may only decrease, except by a new feature: uploads took
/// 7,100 lines, the broker's administration 2,700, the client's side of HTTP and TLS 900, trees
/// 3,600, `send` and `recv` 6,100. The goals without them are 62,000 and 14,000.
const LIMITS: &[SourceLimit] = &[
    SourceLimit {
        crates: &[
            "underpass",
            "underpass-broker",
            "underpass-cli",
            "underpass-copy",
            "underpass-http",
            "underpass-log",
            "underpass-monitor",
            "underpass-net",
            "underpass-receive",
            "underpass-sendrecv",
            "underpass-serve",
            "underpass-tar",
        ],
        lines_max: 99_350,
        reason: "a new face builds on what is there: it is not paid for twice",
    },
    SourceLimit {
        crates: &["underpass-bench", "underpass-testkit", "xtask"],
        lines_max: 23_110,
        reason: "what measures and checks the product must not outweigh it",
    },
];

/// Each integration test binary is linked and run separately, in every build.
const TEST_BINARIES_MAX: usize = 20;

pub(super) fn check_test_binaries(tree: &Tree) -> Vec<Complaint> {
    let targets = tree.metadata.ours().flat_map(|package| &package.targets);
    let number = targets.filter(|target| target.is("test")).count();
    let excess = (number > TEST_BINARIES_MAX).then(|| {
        let text = format!("{number} integration test binaries, of at most {TEST_BINARIES_MAX}");
        Complaint::new("crates/*/tests", text)
    });
    excess.into_iter().collect()
}

pub(super) fn check_folders(tree: &Tree, exceptions: Exceptions) -> Vec<Complaint> {
    let mut folders = BTreeMap::<_, BTreeSet<_>>::new();
    for package in tree.metadata.ours() {
        for file in CrateModules::of(tree, package).files() {
            let mut path = file.strip_suffix("/mod.rs").or(file.strip_suffix(".rs"));
            // A folder is a module of the folder it is in.
            while let Some((folder, module)) = path.and_then(|path| path.rsplit_once('/')) {
                let is_root = folder.ends_with("src") && ["lib", "main"].contains(&module);
                if is_root || !folders.entry(folder).or_default().insert(module) {
                    break;
                }
                path = (!folder.ends_with("src")).then_some(folder);
            }
        }
    }
    folders.retain(|_, modules| modules.len() > FOLDER_MODULES_MAX);
    let crowded = folders.into_iter().map(|(folder, modules)| {
        let number = modules.len();
        Complaint::new(
            folder,
            format!("{number} modules, of at most {FOLDER_MODULES_MAX}"),
        )
    });
    excused(crowded.collect(), exceptions)
}

pub(super) fn check_lines(tree: &Tree) -> Vec<Complaint> {
    let lines = lines(tree);
    let sums = sums(&lines);
    let excesses = sums.filter(|(limit, sum)| *sum > limit.lines_max);
    let complaints = excesses.map(|(limit, sum)| {
        let SourceLimit {
            lines_max, reason, ..
        } = limit;
        let text = format!("{sum} lines outside of tests, of at most {lines_max}: {reason}");
        Complaint::new(limit.crates.join(" + "), text)
    });
    complaints.collect()
}

fn sums(lines: &BTreeMap<&str, usize>) -> impl Iterator<Item = (&'static SourceLimit, usize)> {
    LIMITS.iter().map(|limit| {
        let counted = limit.crates.iter().filter_map(|name| lines.get(name));
        (limit, counted.sum())
    })
}

/// Returns the lines of each crate, blank ones and comments included, in the files of its library
/// and programs, without items for tests only.
pub(super) fn lines(tree: &Tree) -> BTreeMap<&str, usize> {
    let lines = tree.metadata.ours().map(|package| {
        let files = CrateModules::of(tree, package).files();
        let shipped = tree.rust().filter(|(path, ..)| files.contains(path));
        let lines = shipped.map(|(_, text, rust)| rust.shipped_lines(text));
        (package.name.as_str(), lines.sum())
    });
    lines.collect()
}

/// Returns the output of `cargo xtask tidy --lines`.
pub(super) fn report(tree: &Tree) -> String {
    let lines = lines(tree);
    let crates = lines
        .iter()
        .map(|(name, lines)| format!("{lines:7} {name}\n"));
    let sums = sums(&lines).map(|(limit, sum)| {
        let crates = limit.crates.join(" + ");
        format!("{sum:7} of at most {}: {crates}\n", limit.lines_max)
    });
    crates.chain(sums).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::ours;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::of(files).with(ours("xtask").with_target("bin", "xtask", "src/main.rs"))
    }

    fn crowded(modules: usize, exceptions: &[(&str, &str)]) -> Vec<String> {
        let names: Vec<_> = (0..modules).map(|number| format!("m{number}")).collect();
        let declared: String = names.iter().map(|name| format!("mod {name};")).collect();
        let parent = format!("{declared}\n#[cfg(test)]\nmod tests;");
        let paths = names.iter().map(|name| format!("xtask/src/a/{name}.rs"));
        let paths: Vec<_> = paths.chain(["xtask/src/a/tests.rs".to_owned()]).collect();
        let mut files = vec![("xtask/src/main.rs", "mod a;"), ("xtask/src/a.rs", &parent)];
        files.extend(paths.iter().map(|path| (path.as_str(), "")));
        let complaints = check_folders(&tree(&files), exceptions);
        complaints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn folders_have_fifteen_modules() {
        assert_eq!(crowded(15, &[]), [""; 0]);
        assert_eq!(crowded(16, &[]), ["xtask/src/a: 16 modules, of at most 15"]);
    }

    #[test]
    fn there_are_twenty_test_binaries() {
        let tree = |binaries: usize| {
            let package = ours("a").with_target("lib", "a", "src/lib.rs");
            let with = (0..binaries).fold(package, |package, number| {
                let name = format!("t{number}");
                package.with_target("test", &name, &format!("tests/{name}/main.rs"))
            });
            Tree::of(&[]).with(with)
        };
        assert!(check_test_binaries(&tree(20)).is_empty());
        assert_eq!(check_test_binaries(&tree(21)).len(), 1);
    }

    #[test]
    fn a_folder_is_one_module_with_its_file() {
        let tree = tree(&[
            ("xtask/src/main.rs", "mod a; mod b { mod c; }"),
            ("xtask/src/a.rs", "mod d;"),
            ("xtask/src/a/d.rs", ""),
            ("xtask/src/b/c.rs", ""),
        ]);
        assert_eq!(lines(&tree)["xtask"], 2);
        assert!(check_folders(&tree, &[]).is_empty());
    }

    #[test]
    fn an_exception_silences_and_grows_stale() {
        let exceptions = [("xtask/src/a", "one module for each letter")];
        assert!(crowded(16, &exceptions).is_empty());
        assert_eq!(crowded(15, &exceptions).len(), 1);
    }

    #[test]
    fn lines_are_those_outside_of_tests() {
        let of = |lines: usize| {
            let main = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod c {\n\n}\n";
            let a = "\n".repeat(lines - 1);
            tree(&[
                ("xtask/src/main.rs", main),
                ("xtask/src/a.rs", &a),
                ("xtask/src/b.rs", "\n"),
            ])
        };
        let most = LIMITS[1].lines_max;
        assert_eq!(lines(&of(most))["xtask"], most);
        assert!(check_lines(&of(most)).is_empty());
        assert_eq!(check_lines(&of(most + 1)).len(), 1);
    }
}
